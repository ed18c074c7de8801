"""The weight of an engine as mean function, by leave-one-out and leave-group-out errors."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster

from nugget import RBF, SOAP, Potential
from nugget.errors import NuggetError
from nugget.gp.cross_validation import blocks_of, left_out, left_out_labels, structure_of
from nugget.potential.mean_choice import Errors, WeightTrial, choose, fit_with_mean, with_mean
from nugget.potential.mean_functions.base import FixedMeanFunction, MeanFunction, MeanValues
from nugget.potential.mean_functions.foundation import FoundationMean
from nugget.potential.mean_functions.from_models import CalculatorMean
from nugget.potential.training import TrainingData
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs


def images(number: int = 10, offset: float = 3.0) -> list[Atoms]:
    """Gold clusters with EMT, and another zero of energy."""
    made = []
    for seed in range(number):
        atoms = gold_cluster(8, seed, 0.15)
        atoms.calc = EMT()
        energy, forces = atoms.get_potential_energy() + offset * len(atoms), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
        made.append(atoms)
    return made


DATA = TrainingData.read(images(), None, False)


def fit(more: MeanFunction | None) -> Potential:
    potential = Potential(SOAP(["Au"], 4.0), RBF(20.0, 10.0), noise=0.005, force_noise=0.05)
    potential.prior = with_mean(potential.prior, more)
    return potential.fit_data(DATA)


class Rough(FixedMeanFunction):
    """Energies that no smooth model can learn."""

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        x = batch.positions
        return MeanValues(np.sin(40.0 * x).sum(axis=1), 40.0 * np.cos(40.0 * x))


def test_an_engine_that_is_right_is_used() -> None:
    potential, choice = fit_with_mean("emt", CalculatorMean("emt"), fit, DATA)
    assert choice.weight == 1.0
    assert choice.alone.energy < 1e-9  # the zero of energy is fitted
    assert choice.alone.force < 1e-9
    assert choice.corrected.leave_one_out.energy < choice.without.leave_one_out.energy
    assert potential.choices["mean"]["weight"] == 1.0


def test_an_engine_that_makes_a_model_worse_is_not_used() -> None:
    potential, choice = fit_with_mean("rough", Rough(), fit, DATA)
    assert choice.weight == 0.0
    alone = fit(None)
    assert np.array_equal(potential.fitted.regression.alpha, alone.fitted.regression.alpha)


def test_errors_of_a_weight_are_those_of_a_fit_with_it() -> None:
    mean = FoundationMean("pair-model", (("depth", 0.5),))
    whole = fit(mean)
    choice = fit_with_mean("pair-model", mean, lambda more: whole if more is mean else fit(more),
                           DATA, weight=0.5)[1]  # fmt: skip
    half = fit(mean.scaled(0.5)).fitted.regression
    out = left_out(half, blocks_of(structure_of(half)))
    energies = half.kind == 0
    expected = np.abs(out.residual[energies] / half.count[energies]).mean()
    assert choice.weight == 0.5
    assert choice.chosen.leave_one_out.energy == pytest.approx(expected, rel=1e-6)


def test_residuals_of_other_labels() -> None:
    regression = fit(None).fitted.regression
    blocks = blocks_of(structure_of(regression))
    expected = left_out(regression, blocks).residual
    columns = np.stack([regression.y, -2.0 * regression.y], axis=1)
    found = left_out_labels(regression, blocks, columns)
    np.testing.assert_allclose(found[:, 0], expected, atol=1e-9)
    np.testing.assert_allclose(found[:, 1], -2.0 * expected, atol=1e-9)


def trial(weight: float, inside: tuple[float, float], groups: tuple[float, float]) -> WeightTrial:
    return WeightTrial(weight, Errors(*inside), Errors(*groups))


def test_the_rule() -> None:
    nan = float("nan")
    without, half = trial(0.0, (1.0, 0.1), (5.0, 0.5)), trial(0.5, (1.04, 0.1), (5.0, 0.51))
    assert choose([without, half]) == 0.5  # the largest weight within 5 %
    for worse in ((1.06, 0.1, 5.0, 0.5), (1.0, 0.11, 5.0, 0.5), (1.0, 0.1, 5.3, 0.5)):
        assert choose([without, half, trial(1.0, worse[:2], worse[2:])]) == 0.5
    # No weight is within 5 % in all columns: the smallest excess, here 6 %.
    assert choose([trial(0.0, (1.0, 0.1), (9.0, 0.9)), trial(1.0, (1.06, 0.1), (5.0, 0.5))]) == 1.0
    # Energies alone.
    both = [trial(0.0, (1.0, nan), (9.0, nan)), trial(1.0, (0.5, nan), (5.0, nan))]
    assert choose(both) == 1.0
    assert choose([trial(0.0, (1.0, nan), (9.0, nan)), trial(1.0, (1.1, nan), (9.0, nan))]) == 0.0


def test_few_structures_are_refused() -> None:
    few = TrainingData.read(images(3), None, False)
    with pytest.raises(NuggetError, match="too few for leave-one-out"):
        fit_with_mean("emt", CalculatorMean("emt"), fit, few)


def test_a_weight_needs_a_mean_function_that_has_one() -> None:
    with pytest.raises(NuggetError, match="has no weight; choose 0 or 1"):
        fit_with_mean("rough", Rough(), fit, DATA, weight=0.5)
