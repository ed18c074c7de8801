"""Whether an engine is used as mean function, and with which weight, by cross-validation.

A foundation model describes structures outside the training set, but inside a narrow domain its
error may be harder to learn than the energy itself. Two models are fitted, without the engine
(weight 0) and with it (weight 1). The labels at a weight w are y(w) = (1 − w) y(0) + w y(1), since
the energies per element follow by linear least squares; leave-one-out and leave-group-out residuals
are linear in the labels, so that all weights follow from one factorisation.

A weight is permitted if its errors of energies and of forces, leave-one-out and leave-group-out,
exceed the smallest ones of all weights by at most 5 %; if no weight is, the one with the smallest
excess is. The largest permitted weight is chosen, because the value of a foundation model outside
the training set does not show in cross-validation: a model of lithium crystals, trained on bulk
structures, had 11.1 meV/atom on vacancies and surfaces without CHGNet and 6.2 with weight 1, while
its leave-group-out errors were smaller without it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np

from nugget.calibration.leave_one_out import check_number, similar_structures
from nugget.errors import NuggetError
from nugget.gp.cross_validation import blocks_of, left_out_labels, structure_of
from nugget.gp.labels import ENERGY, FORCE
from nugget.gp.regression import SparseRegression
from nugget.numerics.arrays import Floats, Ints
from nugget.potential.mean_functions.base import MeanFunction, SumMeanFunction
from nugget.potential.potential import Potential
from nugget.potential.training import TrainingData

#: Weights that are tried besides 0 and 1, for mean functions that have a weight.
WEIGHTS = (0.25, 0.5, 0.75)

# Largest ratio of an error to the smallest one.
TOLERANCE = 1.05


@runtime_checkable
class Weighted(Protocol):
    """A mean function with a weight."""

    def scaled(self, weight: float) -> MeanFunction:
        """The same mean function with another weight."""


@dataclass(frozen=True)
class Errors:
    """Mean absolute errors of energies (eV/atom) and force components (eV/Å; NaN: no forces)."""

    energy: float
    force: float
    energy_error: float = 0.0  # standard error of `energy`

    @property
    def both(self) -> tuple[float, float]:
        return self.energy, self.force


@dataclass(frozen=True)
class WeightTrial:
    """Cross-validation errors of one weight of the engine."""

    weight: float
    leave_one_out: Errors
    leave_group_out: Errors


@dataclass(frozen=True)
class MeanChoice:
    """The errors of an engine on a training set, alone and corrected, and the chosen weight."""

    engine: str
    alone: Errors  # without correction, but with fitted energies per element
    trials: tuple[WeightTrial, ...]  # by weight, 0 first and 1 last
    weight: float

    @property
    def chosen(self) -> WeightTrial:
        return next(one for one in self.trials if one.weight == self.weight)

    @property
    def without(self) -> WeightTrial:
        return self.trials[0]

    @property
    def corrected(self) -> WeightTrial:
        return self.trials[-1]

    def record(self) -> dict[str, Any]:
        """Plain data for model files and reports; NaN becomes None."""
        plain: dict[str, Any] = _without_nan(asdict(self))
        return plain


def _without_nan(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_nan(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(item) for item in value]
    return None if isinstance(value, float) and np.isnan(value) else value


def fit_with_mean(
    engine: str,
    mean: MeanFunction,
    fit: Callable[[MeanFunction | None], Potential],
    data: TrainingData,
    weight: float | None = None,
) -> tuple[Potential, MeanChoice]:
    """The better potential of those with and without the mean function of an engine.

    `fit` returns a potential that is fitted to `data` with an additional mean function, or without.
    A given `weight` is used whatever the errors are.
    """
    check_number(len(data.batch))
    plain, whole = fit(None), fit(mean)
    tried = WEIGHTS if isinstance(mean, Weighted) else ()
    trials = weight_trials(plain, whole, data, tried if weight is None else (*tried, weight))
    best = choose(trials) if weight is None else weight
    choice = MeanChoice(engine, _alone(whole.fitted.regression), trials, best)
    if best == 0.0:
        chosen = plain
    elif best == 1.0:
        chosen = whole
    elif isinstance(mean, Weighted):
        chosen = fit(mean.scaled(best))
    else:
        raise NuggetError(f"The mean function {engine} has no weight; choose 0 or 1.")
    chosen.choices = {**(chosen.choices or {}), "mean": choice.record()}
    return chosen, choice


def weight_trials(
    plain: Potential, whole: Potential, data: TrainingData, weights: Sequence[float] = WEIGHTS
) -> tuple[WeightTrial, ...]:
    """Errors of all weights; those of 0 come from `plain`, all others from `whole`."""
    without, full = plain.fitted.regression, whole.fitted.regression
    env = data.environments(plain.descriptor)
    n_species = len(plain.descriptor.species)
    groups = similar_structures(env.values, env.species, env.owner, n_species, plain.seed)
    others = np.array(sorted({w for w in weights if w != 0.0} | {1.0}))
    labels = np.outer(without.y, 1.0 - others) + np.outer(full.y, others)
    first = _errors(without, groups, without.y[:, None])
    more = _errors(full, groups, labels)
    return tuple(
        WeightTrial(float(w), *pair)
        for w, pair in zip((0.0, *others), (*first, *more), strict=True)
    )


def choose(trials: Sequence[WeightTrial]) -> float:
    """The weight by the rule of the module."""
    errors = np.array([[*one.leave_one_out.both, *one.leave_group_out.both] for one in trials])
    errors = np.maximum(errors[:, ~np.isnan(errors).any(axis=0)], 1e-12)
    excess = (errors / errors.min(axis=0)).max(axis=1)
    permitted = excess <= max(TOLERANCE, float(excess.min()))
    return max(one.weight for one, ok in zip(trials, permitted, strict=True) if ok)


def _errors(
    regression: SparseRegression, groups: Ints, labels: Floats
) -> list[tuple[Errors, Errors]]:
    """Leave-one-out and leave-group-out errors of each column of labels."""
    owner = structure_of(regression)
    singly = left_out_labels(regression, blocks_of(owner), labels)
    together = left_out_labels(regression, blocks_of(groups[owner]), labels)
    return [
        (mean_errors(regression, a), mean_errors(regression, b))
        for a, b in zip(singly.T, together.T, strict=True)
    ]


def mean_errors(regression: SparseRegression, residual: Floats) -> Errors:
    """Mean absolute errors from residuals of all labels (p,)."""
    energies, forces = regression.kind == ENERGY, regression.kind == FORCE
    per_atom = residual[energies] / regression.count[energies]
    force = float(np.mean(np.abs(residual[forces]))) if forces.any() else float("nan")
    size = np.abs(per_atom)
    return Errors(float(size.mean()), force, float(size.std() / np.sqrt(len(size))))


def _alone(regression: SparseRegression) -> Errors:
    """Errors of the mean function alone, whose residuals are the labels of the regression."""
    return mean_errors(regression, regression.y)


def with_mean(mean: MeanFunction, more: MeanFunction | None) -> MeanFunction:
    """A sum of mean functions with one more part."""
    if more is None:
        return mean
    parts = mean.parts if isinstance(mean, SumMeanFunction) else (mean,)
    return SumMeanFunction((*parts, more))
