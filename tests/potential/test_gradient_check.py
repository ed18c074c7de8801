from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import alloy_slab, gold_cluster

from nugget import RBF, SOAP, LabelNoise, NuggetError, Potential, ProjectedProcess
from nugget.potential.gradient_check import FLOOR, check_gradients
from nugget.potential.mean_functions.base import SpeciesEnergies
from nugget.potential.mean_functions.pair_terms import Repulsion


def labelled(atoms: Atoms) -> Atoms:
    work = atoms.copy()
    work.calc = EMT()
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def gold_cell(seed: int) -> Atoms:
    atoms = bulk("Au", cubic=True)
    atoms.rattle(0.1, seed=seed)
    return atoms


IMAGES = [labelled(gold_cluster(6, 1)), labelled(alloy_slab(1)), labelled(gold_cell(1))]
TEST = [gold_cluster(6, 2), gold_cell(2)]


@pytest.fixture(params=[LabelNoise(), LabelNoise(members=5), ProjectedProcess()])
def potential(request: pytest.FixtureRequest) -> Potential:
    prior = [SpeciesEnergies(), Repulsion(reach=1.1)]
    pot = Potential(SOAP(["Cu", "Au"], 4.5), RBF(10.0), uncertainty=request.param, prior=prior)
    return pot.fit(IMAGES)


def test_right_gradients_pass(potential):
    steps: list[tuple[int, int]] = []
    checks = check_gradients(potential, TEST, progress=lambda *done: steps.append(done))
    assert [c.name for c in checks] == ["E → forces", "σ → ∇σ", "E−2σ → gradient", "E → stress"]
    assert [c.components for c in checks] == [30, 30, 30, 6]
    assert all(c.passed for c in checks), checks
    assert all(c.largest > 0 for c in checks)
    assert steps == [(1, 2), (2, 2)]


@pytest.mark.parametrize(
    ("wrong", "name"),
    [("forces", "E → forces"), ("uncertainty_gradient", "σ → ∇σ"), ("stress", "E → stress")],
)
@pytest.mark.parametrize("error", [1e-3, np.nan])
def test_a_wrong_component_is_found_and_named(potential, monkeypatch, wrong, name, error):
    whole = Potential.predict

    def spoilt(self, *args, **options):
        found = whole(self, *args, **options)
        values = getattr(found, wrong)
        if values is None or len(found.energy) > 1:
            return found
        values = [np.array(v) for v in values]
        flat = values[0].reshape(-1)
        flat[2] += error * np.abs(flat).max()
        return replace(found, **{wrong: values if wrong != "stress" else np.array(values)})

    monkeypatch.setattr(Potential, "predict", spoilt)
    checks = {c.name: c for c in check_gradients(potential, TEST[1:])}
    assert [n for n, c in checks.items() if not c.passed] == [name]
    assert checks[name].where in ("#0 atom 0 z", "#0 zz")
    if np.isfinite(error):
        share = min(checks[name].largest / FLOOR, 1.0)  # tiny gradients are held to the floor
        assert checks[name].deviation == pytest.approx(error * share, rel=0.02)


def test_bad_requests(potential):
    with pytest.raises(NuggetError, match="no structures"):
        check_gradients(potential, [])
    with pytest.raises(NuggetError, match="tolerance is 0"):
        check_gradients(potential, TEST, tolerance=0.0)
