"""The number of inducing points that a fit chooses."""

from __future__ import annotations

import numpy as np
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster

from nugget import RBF, SOAP, PivotedCholesky, Potential
from nugget.gp.cross_validation import NoiseSearch
from nugget.potential import fitting
from nugget.potential.training import TrainingData


def _images(number: int):
    images = [gold_cluster(6, seed) for seed in range(number)]
    for atoms in images:
        work = atoms.copy()
        work.calc = EMT()
        results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **results)
    return images


def _potential(points: int) -> Potential:
    rule = PivotedCholesky(1e-10, points)
    return Potential(SOAP(["Au"], 5.0), RBF(20.0, 100.0), rule, domain=False)


def test_points_are_added_while_errors_fall() -> None:
    data = TrainingData.read(_images(24), None, False)
    grown = _potential(10).fit_data(data, calibrate=None, choose_points=True)
    points = len(grown.fitted.inducing)
    assert points >= 20
    assert grown.choices == {"points": points}
    whole = _potential(points).fit_data(data, calibrate=None)
    np.testing.assert_allclose(grown.fitted.inducing.z, whole.fitted.inducing.z)
    images = _images(3)
    np.testing.assert_allclose(
        grown.predict(images).energy, whole.predict(images).energy, atol=1e-5
    )


def test_no_points_are_added_beyond_the_cost(monkeypatch) -> None:
    monkeypatch.setattr(fitting, "LARGEST_COST", 1.0)
    data = TrainingData.read(_images(24), None, False)
    assert len(_potential(10).fit_data(data, choose_points=True).fitted.inducing) == 10


def test_first_columns_are_those_of_a_fit_with_fewer_points() -> None:
    data = TrainingData.read(_images(12), None, False)
    many, few = (_potential(m).fit_data(data, calibrate=None).fitted.regression for m in (30, 15))
    first = NoiseSearch(many, columns=15).trial(1.0, 1.0)
    alone = NoiseSearch(few).trial(1.0, 1.0)
    np.testing.assert_allclose(
        [first.energy_mae, first.force_mae], [alone.energy_mae, alone.force_mae], rtol=1e-4
    )
