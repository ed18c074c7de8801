"""The conformance check of acquisitions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.descriptors.soap import SOAP
from nugget.potential.potential import Potential
from nugget.testing import _compare as ref

if TYPE_CHECKING:
    from nugget.search.acquisition import Acquisition


def check_acquisition(acquisition: Acquisition, seed: int = 0) -> None:
    """Raise ConformanceError unless the acquisition keeps its contract.

    Its surface has right gradients and follows the given random numbers; its score prefers low
    energies where all else is equal.
    """
    ref.plain_settings(acquisition, "acquisition")
    rng = np.random.default_rng(seed)
    potential = _small_potential()
    query = ref.random_structures(["Cu", "Au"], seed + 100)["cluster"]
    best = float(potential.predict([query]).energy[0])

    first, again = (
        acquisition.surface(potential, 1.3, np.random.default_rng(seed), best) for _ in range(2)
    )
    value, gradients = first([query])
    ref.same(again([query])[0], value, "The same random numbers give the same surface.")
    direction = rng.normal(size=query.positions.shape)
    slope = ref.derivative(lambda t: first([ref.moved(query, direction, t)])[0][0])
    ref.close(np.sum(gradients[0] * direction), slope, "The surface's gradients are right", 1e-5)
    energy, std = best + rng.normal(size=20), rng.uniform(0.1, 1.0, size=20)
    score = acquisition.score(energy, std, best)
    ref.require(np.shape(score) == (20,), "One score per structure.")
    ref.require(bool(np.isfinite(score).all()), "Scores are finite.")
    lower = acquisition.score(energy - 0.5, std, best)
    ref.require(bool((lower < score).all()), "A lower energy has a lower (better) score.")
    certain = acquisition.score(energy, np.zeros(20), best)
    ref.require(bool(np.isfinite(certain).all()), "Scores are finite where nothing is uncertain.")


def _small_potential() -> Potential:
    images: list[Atoms] = []
    for k in range(6):
        atoms = ref.random_structures(["Cu", "Au"], k)["cluster"]
        atoms.calc = EMT()
        energy = atoms.get_potential_energy()
        atoms.calc = SinglePointCalculator(atoms, energy=energy)
        images.append(atoms)
    return Potential(SOAP(("Cu", "Au"), 4.5)).fit(images)
