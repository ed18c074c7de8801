"""Calibration on leave-one-out and leave-group-out residuals, without a validation set.

The regression gives in closed form its prediction for a structure that it was not trained on
(`gp.cross_validation`), with a posterior variance v. Structures are omitted one by one, and in
groups of similar structures, so that the error bars account for extrapolation. The calibration of
energies, force components and stress components has three steps.

1. σ² = factor²·v + floor² by maximum likelihood over both kinds of residuals. For the projected
   process v includes the prior variance that the inducing points leave open. A label-noise ensemble
   has σ² = σ_l²·a + σ_lf²·c + σ_p²·b instead, whose levels energies and forces share.
2. One more factor that brings the leave-one-out shares within 1σ and 2σ as close as possible to 68
   and 95 %. Errors have heavier tails than a Gaussian, and a likelihood follows the tails.
3. A factor 1 + 10/n for n structures. Range, noise and levels were all chosen on the same
   residuals, which are therefore smaller than those of new structures (10 to 30 % with 60
   structures, 0 to 10 % with 200).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.optimize import minimize, minimize_scalar
from sklearn.cluster import KMeans

from nugget.calibration.metrics import Method
from nugget.errors import NuggetError
from nugget.gp.cross_validation import (
    LeftOut,
    blocks_of,
    left_out,
    left_out_noise,
    structure_of,
)
from nugget.gp.labels import ENERGY, FORCE, STRESS
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty import FittedUncertainty, Uncertainty
from nugget.gp.uncertainty.base import AdjustableLevels, HasFloors, HasLevels, HasNoiseLevels
from nugget.numerics.arrays import Bools, Floats, Ints

KINDS: dict[str, int] = {"energy": ENERGY, "force": FORCE, "stress": STRESS}

# Smallest number of structures that can be calibrated on.
FEWEST = 5

# Largest number of groups for leave-group-out.
_GROUPS = 8

# Correction for choices made on the same residuals (step 3 above).
_CHOICES = 10.0
_GAUSSIAN = ((1.0, 0.6827, 1.0), (2.0, 0.9545, 2.0))  # k, share within kσ, weight

# Structures whose force components determine the levels of a label-noise ensemble.
_FORCE_STRUCTURES = 40

# Scores per kind of label that a model file stores for intervals.
_STORED = 1000


@dataclass(frozen=True)
class Level:
    """σ² = factor²·v + floor² (for energies v/N² and σ per atom)."""

    factor: float
    floor: float

    def times(self, factor: float) -> Level:
        """The same with every σ multiplied by a factor."""
        return Level(factor * self.factor, factor * self.floor)

    def std(self, variance: Floats, unit: Floats) -> Floats:
        return np.sqrt(self.factor**2 * variance + (self.floor * unit) ** 2)


def calibrate_leave_one_out(
    regression: SparseRegression,
    fitted: FittedUncertainty,
    groups: Ints,
    seed: int,
    open_variance: Floats | None = None,
) -> tuple[FittedUncertainty, dict[str, Any]]:
    """The calibrated uncertainty and a record for the model file; no refit.

    `groups` numbers the group of each structure for leave-group-out. `open_variance` (p,) is the
    prior variance of each label that the inducing points leave open, for uncertainties that use it;
    NaN where it was not computed. The record holds the levels, the shares within 1σ and 2σ, and the
    leave-one-out scores |error|/σ, which define intervals.
    """
    check_number(len(groups))
    check_leave_one_out(fitted.settings)
    owner = structure_of(regression)
    blocks = blocks_of(owner), blocks_of(groups[owner])
    singly, together = (left_out(regression, each) for each in blocks)
    if open_variance is not None:
        singly, together = (
            LeftOut(each.residual, each.variance + open_variance) for each in (singly, together)
        )
    unit = np.where(regression.kind == ENERGY, regression.count, 1.0)
    unscaled = fitted.with_scale(1.0)
    assert isinstance(unscaled, AdjustableLevels)
    if isinstance(unscaled.settings, HasFloors):
        kinds = unscaled.settings.floor_kinds
        levels, std = _factors_and_floors(regression, singly, together, unit, kinds, len(groups))
    else:
        levels, std = _noise_levels(regression, blocks, (singly, together), seed)
    if isinstance(unscaled, HasLevels):
        levels["prior"] = mean_function_error(regression)
    shares: dict[str, list[float]] = {}
    scores: dict[str, list[float]] = {}
    mae: dict[str, float] = {}
    for name, kind in KINDS.items():
        rows = (regression.kind == kind) & np.isfinite(std)
        if not rows.any():
            continue
        z = np.abs(singly.residual[rows]) / std[rows]
        shares[name] = [float(np.mean(z <= k)) for k in (1.0, 2.0)]
        scores[name] = stored_scores(z, seed)
        mae[name] = float(np.mean(np.abs(singly.residual[rows] / unit[rows])))
    record = {
        "method": Method.LEAVE_ONE_OUT.value,
        "n": len(groups),
        "groups": int(groups.max()) + 1,
        "levels": levels,
        "within": shares,
        "mae": mae,
        "scores": scores,
    }
    return unscaled.with_levels(**levels), record


def can_leave_one_out(settings: Uncertainty) -> bool:
    """Whether leave-one-out residuals can calibrate an uncertainty with these settings."""
    if isinstance(settings, HasFloors):
        return bool(settings.floor_kinds)
    return isinstance(settings, HasNoiseLevels)


def check_leave_one_out(settings: Uncertainty) -> None:
    """Raise an error for settings that leave-one-out residuals cannot calibrate."""
    if not can_leave_one_out(settings):
        raise NuggetError(
            f"Leave-one-out residuals cannot calibrate {settings}: calibrate it on a validation "
            "set, or use Posterior, LabelNoise or ProjectedProcess('structures')."
        )


def posterior_level(regression: SparseRegression, fitted: FittedUncertainty, groups: Ints) -> Level:
    """Factor and floor on the posterior of energies, for any calibrated uncertainty."""
    if isinstance(fitted.settings, HasFloors) and not fitted.uses_prior_variance:
        settings: Any = fitted.settings
        return Level(settings.energy, settings.energy_floor)
    owner, rows = structure_of(regression), regression.kind == ENERGY
    singly, together = (
        _rows(left_out(regression, blocks_of(each)), rows) for each in (owner, groups[owner])
    )
    level = fit_level(singly, together, regression.count[rows])
    return level.times(1.0 + _CHOICES / len(groups))


def _factors_and_floors(
    regression: SparseRegression,
    singly: LeftOut,
    together: LeftOut,
    unit: Floats,
    kinds: Sequence[str],
    structures: int,
) -> tuple[dict[str, float], Floats]:
    """Factor and floor of each kind of label, and leave-one-out σ (p,)."""
    levels: dict[str, float] = {}
    std = np.full(len(unit), np.nan)
    for name in kinds:
        rows = (regression.kind == KINDS[name]) & np.isfinite(singly.variance)
        if not rows.any():
            continue
        level = fit_level(_rows(singly, rows), _rows(together, rows), unit[rows])
        level = level.times(1.0 + _CHOICES / structures)
        std[rows] = level.std(singly.variance[rows], unit[rows])
        levels |= {name: level.factor, f"{name}_floor": level.floor}
    return levels, std


def mean_function_error(regression: SparseRegression) -> float:
    """σ_p, the root mean square of (E − mean function)/N over the training energies, eV/atom."""
    energies = regression.kind == ENERGY
    per_atom = regression.y[energies] / regression.count[energies]
    return float(np.sqrt(np.mean(per_atom**2)))


def _noise_levels(
    regression: SparseRegression,
    blocks: tuple[list[Ints], list[Ints]],
    residuals: tuple[LeftOut, LeftOut],
    seed: int,
) -> tuple[dict[str, float], Floats]:
    """σ_l and σ_lf of a label-noise ensemble, and leave-one-out σ (p,).

    σ_p is the error of the mean function, which residuals inside the training set hardly depend on.
    Force components of some structures only are used.
    """
    energy, owner = regression.kind == ENERGY, structure_of(regression)
    structures = int(owner[-1]) + 1
    sample = np.random.default_rng(seed).permutation(structures)[:_FORCE_STRUCTURES]
    wanted = energy | ((regression.kind == FORCE) & np.isin(owner, sample))
    noise = [left_out_noise(regression, each, wanted) for each in blocks]
    prior = mean_function_error(regression)
    kinds = [energy, wanted & ~energy] if (wanted & ~energy).any() else [energy]

    def square(k: int, levels: Floats) -> Floats:
        """σ² of the wanted rows for σ_l and σ_lf, with rows omitted one by one or in groups."""
        own, (label, force) = noise[k], np.exp(2.0 * levels)
        total: Floats = label * own.energy + force * own.other + prior**2 * own.prior
        return np.maximum(total, 1e-300)

    def loss(levels: Floats) -> float:
        """Negative log likelihood; energies and forces, and both kinds of blocks, count alike."""
        value = 0.0
        for k in range(2):
            variance = square(k, levels)
            terms = np.log(variance) + residuals[k].residual ** 2 / variance
            value += sum(float(np.mean(terms[rows])) for rows in kinds)
        return value

    grid = np.log(np.geomspace(1e-4, 3.0, 12))
    starts = [np.array([a, b]) for a in grid for b in grid]
    best = minimize(loss, min(starts, key=loss), method="Nelder-Mead", options={"xatol": 1e-3})
    std = np.sqrt(square(0, best.x))
    more = balance(np.abs(residuals[0].residual[energy]) / std[energy])
    more *= 1.0 + _CHOICES / structures
    label, force = (float(more * level) for level in np.exp(best.x))
    levels = {"label": label}
    if len(kinds) > 1:
        levels["force"] = force
    return levels, np.sqrt(square(0, best.x + np.log(more)))


def check_number(structures: int) -> None:
    """Raise an error for a training set that is too small for leave-one-out."""
    if structures < FEWEST:
        raise NuggetError(
            f"{structures} structures are too few for leave-one-out; give {FEWEST} or more."
        )


def stored_scores(z: Floats, seed: int) -> list[float]:
    """Sorted scores |error|/σ for a model file; a random sample if there are very many."""
    few = len(z) <= _STORED
    sample = z if few else np.random.default_rng(seed).choice(z, _STORED, replace=False)
    return [float(f"{value:.5g}") for value in np.sort(sample)]


def _rows(residuals: LeftOut, rows: Bools) -> LeftOut:
    return LeftOut(residuals.residual[rows], residuals.variance[rows])


def fit_level(singly: LeftOut, together: LeftOut, unit: Floats) -> Level:
    """Factor and floor of one kind of label, from leave-one-out and leave-group-out residuals."""
    residual = np.concatenate([singly.residual, together.residual])
    variance = np.concatenate([singly.variance, together.variance])
    units = np.concatenate([unit, unit]) ** 2
    mean = float(np.mean(variance / units))

    def shape(log_ratio: float) -> Floats:
        """σ² up to a factor, for a ratio of floor² to the mean variance."""
        square: Floats = variance + np.exp(log_ratio) * mean * units
        return square

    def loss(log_ratio: float) -> float:
        """Negative log likelihood for the best factor s² = mean(r²/shape)."""
        s = shape(log_ratio)
        return float(np.mean(np.log(s)) + np.log(np.mean(residual**2 / s)))

    grid = np.linspace(-12.0, 10.0, 45)
    start = grid[int(np.argmin([loss(g) for g in grid]))]
    best = float(minimize_scalar(loss, bounds=(start - 0.5, start + 0.5), method="bounded").x)
    square = float(np.mean(residual**2 / shape(best)))
    level = Level(float(np.sqrt(square)), float(np.sqrt(square * np.exp(best) * mean)))
    more = balance(np.abs(singly.residual) / level.std(singly.variance, unit))
    return level.times(more)


def balance(scores: Floats) -> float:
    """The factor on σ that brings the shares within 1σ and 2σ nearest to a Gaussian's."""
    trials = np.geomspace(0.3, 3.0, 121)
    z = np.sort(scores)
    cost = np.zeros(len(trials))
    for k, share, weight in _GAUSSIAN:
        within = np.searchsorted(z, k * trials, side="right") / len(z)
        cost += weight * (within - share) ** 2
    best = np.flatnonzero(cost <= cost.min() + 1e-12)
    return float(trials[best[len(best) // 2]])


def similar_structures(
    values: Floats, species: Ints, owner: Ints, n_species: int, seed: int
) -> Ints:
    """A group number per structure, from clusters of the mean features of each element.

    `values` (n, f), `species` (n,) and `owner` (n,) are the features of all atoms, their species
    and their structures.
    """
    sizes = np.bincount(owner)
    mean = np.zeros((len(sizes), n_species, values.shape[1]))
    np.add.at(mean, (owner, species), values)
    mean /= sizes[:, None, None]
    flat = mean.reshape(len(sizes), -1)
    spread = flat.std(axis=0)
    flat = flat[:, spread > 1e-9 * max(float(spread.max()), 1e-300)]
    number = min(_GROUPS, max(len(sizes) // FEWEST, 2))
    if flat.shape[1] == 0:  # identical structures: groups by position in the list
        return np.arange(len(sizes)) % number
    clusters = KMeans(number, n_init=4, random_state=seed).fit_predict(flat)
    groups: Ints = np.unique(clusters, return_inverse=True)[1].astype(np.int64)
    return groups
