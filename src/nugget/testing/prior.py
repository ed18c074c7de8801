"""The conformance check of priors."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ase import Atoms

from nugget.potential.priors import Prior, prior_from_settings, prior_settings
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs
from nugget.testing import _compare as ref


def check_prior(prior: Prior, species: Sequence[str] = ("Cu", "Au"), seed: int = 0) -> None:
    """Raise ConformanceError unless the prior keeps its contract (`nugget.potential.priors.base`).

    Fitting, extensivity, derivatives by positions and strain, reproducibility, and settings that a
    model file can keep (for a registered prior).
    """
    ref.plain_settings(prior, "prior")
    rng = np.random.default_rng(seed)
    structures = ref.random_structures(species, seed)
    images = list(structures.values())
    energies = rng.normal(size=len(images)) - 3.0 * np.array([len(a) for a in images])
    fitted = prior.fit(as_batch(images), energies)
    again = prior.fit(as_batch(images), energies)
    before = fitted.evaluate(as_batch(images)).energies
    ref.same(
        again.evaluate(as_batch(images)).energies, before, "The same data give the same prior."
    )
    ref.same(fitted.evaluate(as_batch(images)).energies, before, "Evaluating twice gives the same.")
    for name, atoms in structures.items():
        _check_derivatives(fitted, atoms, name, rng)
    _check_extensive(fitted, structures["cluster"])
    batch = as_batch(images)
    longer = fitted.evaluate(batch, find_pairs(batch, 9.0))
    ref.close(longer.energies, before, "A longer list of pairs changes nothing", 1e-9)
    rest = prior_from_settings(prior_settings(fitted))
    ref.same(
        rest.evaluate(batch).energies, before, "The settings describe the fitted prior wholly."
    )


def _total(prior: Prior, atoms: Atoms) -> float:
    return float(prior.evaluate(as_batch([atoms])).energies.sum())


def _check_derivatives(prior: Prior, atoms: Atoms, name: str, rng: np.random.Generator) -> None:
    found = prior.evaluate(as_batch([atoms]))
    ref.require(found.energies.shape == (len(atoms),), "A prior gives one energy per atom.")
    direction = rng.normal(size=atoms.positions.shape)
    gradient = np.zeros_like(atoms.positions) if found.gradient is None else found.gradient
    slope = ref.derivative(lambda t: _total(prior, ref.moved(atoms, direction, t)))
    ref.close(
        np.sum(gradient * direction), slope,
        f"The prior's gradient of the {name} is the derivative by positions", 1e-5,
    )  # fmt: skip
    if atoms.pbc.all():
        strain = np.zeros((1, 3, 3)) if found.strain is None else found.strain
        slopes = [
            ref.derivative(lambda t, c=c: _total(prior, ref.strained(atoms, c, t)), 5e-4)  # type: ignore[misc]
            for c in range(6)
        ]
        ref.close(
            ref.voigt(strain[0]), np.array(slopes),
            f"The prior's strain derivative of the {name} is right", 1e-5,
        )  # fmt: skip


def _check_extensive(prior: Prior, cluster: Atoms) -> None:
    far = cluster.copy()
    far.positions += 100.0
    ref.close(
        _total(prior, cluster + far), 2.0 * _total(prior, cluster),
        "The prior of two structures far apart is the sum of both", 1e-8,
    )  # fmt: skip
