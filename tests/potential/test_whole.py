"""One compiled call for everything: the bits of the steps one by one, and their errors."""

from __future__ import annotations

import numpy as np
import pytest
from ase.build import bulk, molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator

from nugget import CUR, SOAP, LabelNoise, NuggetError, Posterior, Potential, ProjectedProcess
from nugget.potential.evaluate import MEAN_AND_STD, value_and_grad
from nugget.potential.mean_functions.pair_terms import Repulsion
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs


def alloys(count: int) -> list:
    rng, images = np.random.default_rng(3), []
    for k in range(count):
        atoms = bulk("Cu", cubic=True).repeat((2, 1, 1))
        atoms.symbols = rng.choice(["Cu", "Au"], len(atoms))
        atoms.pbc = k % 2 == 0
        atoms.rattle(0.15, rng=rng)
        atoms.calc = EMT()
        atoms.calc = SinglePointCalculator(atoms, energy=atoms.get_potential_energy())
        images.append(atoms)
    return images


IMAGES = alloys(16)
KINDS = {
    "committee": {"uncertainty": LabelNoise(members=5)},
    "exact": {},
    "posterior": {"uncertainty": Posterior()},
    "prior with pairs": {"prior": Repulsion()},
    "compressed": {"descriptor": SOAP(["Cu", "Au"], 4.0, compression="mu2")},
}


def fitted(descriptor=None, **options) -> Potential:
    soap = descriptor or SOAP(["Cu", "Au"], 4.0)
    return Potential(soap, inducing=CUR(50), **options).fit(IMAGES[:10], use_forces=False)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_pairs", [False, True])
def test_same_bits_as_step_by_step(kind: str, with_pairs: bool, monkeypatch: pytest.MonkeyPatch):
    potential, batch = fitted(**KINDS[kind]), as_batch(IMAGES[10:])
    pairs = find_pairs(batch, 4.5) if with_pairs else None
    assert potential.fitted.compiled is not None
    at_once = value_and_grad(potential.fitted, batch, MEAN_AND_STD, pairs=pairs)
    assert at_once.environments is None
    monkeypatch.setitem(vars(potential.fitted), "compiled", None)
    steps = value_and_grad(potential.fitted, batch, MEAN_AND_STD, pairs=pairs)
    for name in ("energy", "std", "gradients", "strains"):
        np.testing.assert_array_equal(getattr(at_once, name), getattr(steps, name))


def test_members_and_means_alone(monkeypatch: pytest.MonkeyPatch):
    potential, batch = fitted(), as_batch(IMAGES[10:])
    weights, shifts = potential.fitted.uncertainty.members(
        potential.fitted.regression.alpha, np.random.default_rng(0), 1
    )
    options = {"std": False, "member": (weights[0], float(shifts[0]))}
    at_once = value_and_grad(potential.fitted, batch, MEAN_AND_STD[:1], **options)
    assert at_once.std is None
    monkeypatch.setitem(vars(potential.fitted), "compiled", None)
    steps = value_and_grad(potential.fitted, batch, MEAN_AND_STD[:1], **options)
    np.testing.assert_array_equal(at_once.energy, steps.energy)
    np.testing.assert_array_equal(at_once.gradients, steps.gradients)


def test_what_is_unusual_goes_step_by_step():
    potential = fitted()
    with pytest.raises(NuggetError, match="Structure 0"):
        potential.predict(molecule("CO"))
    close = IMAGES[0].copy()
    close.positions[1] = close.positions[0] + [0.0, 0.0, 1e-4]
    with pytest.raises(NuggetError, match="apart"):
        potential.predict(close)
    found = potential.lcb(1.0).evaluate(as_batch([IMAGES[1], close]), strict=False)
    assert np.isnan(found.value).tolist() == [False, True]
    large = bulk("Cu", cubic=True).repeat(4)  # more atoms than the loop over pairs takes
    assert potential.predict(large).forces[0].shape == (256, 3)
    assert fitted(uncertainty=ProjectedProcess()).fitted.compiled is None
