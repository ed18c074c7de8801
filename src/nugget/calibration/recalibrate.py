"""Fit noise levels, or one factor on σ, to validation data without a refit.

The predictive variance of a label-noise ensemble is a quadratic form of its levels,
σ² = sᵀGs, with matrices G that do not depend on the levels, so a whole grid of levels costs a few
array operations.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import product
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from nugget.calibration.metrics import LEVELS, checked, crps_terms, nll_terms, percentiles
from nugget.errors import NuggetError

Array = NDArray[np.float64]
Objective = Literal["calibration_error", "nll", "crps"]
_BOUNDS = ndtri(LEVELS)

# Trial points per axis of one zoom window for one, two, three levels.
_WINDOW = {1: 17, 2: 9, 3: 5}
_MAX_ROUNDS = 60


@dataclass(frozen=True)
class Terms:
    """Contribution of each label to the objective for each of G trial σ; bootstraps reweight it."""

    objective: Objective
    loss: Array  # (G, n): negative log-likelihood, or CRPS
    first: NDArray[np.intp] | None  # (G, n): the lowest level j with F_i(y_i) ≤ p_j

    @classmethod
    def of(cls, error: Array, sigma: Array, objective: Objective) -> Terms:
        """From errors y − ŷ (n,) and trial standard deviations (G, n)."""
        if objective == "crps":
            return cls(objective, crps_terms(error, sigma), None)
        loss = nll_terms(error, sigma)
        if objective == "nll":
            return cls(objective, loss, None)
        return cls(objective, loss, np.searchsorted(_BOUNDS, error / sigma, side="left"))

    def score(self, weights: Array) -> tuple[Array, Array]:
        """Objective and search function (G,) when label i counts weights[i] times.

        The calibration error is piecewise constant: many trials share the very same CE. The search
        function is therefore CE + NLL/n². It breaks ties, and near-ties, by the likelihood: one
        unit of NLL weighs as much as one label on the wrong side of one level, 1/n². The other
        objectives are smooth and searched as they are.
        """
        share = weights / weights.sum()
        loss = self.loss @ share
        if self.first is None:
            return loss, loss
        trials, levels = len(self.first), len(LEVELS)
        cell = self.first + levels * np.arange(trials)[:, None]
        # Share of labels whose first level is j; their running sum over j is p̂_j.
        counts = np.bincount(
            cell.ravel(), np.broadcast_to(share, cell.shape).ravel(), trials * levels
        )
        observed = np.cumsum(counts.reshape(trials, levels), axis=1)
        value = np.sum((LEVELS - observed) ** 2, axis=1)
        return value, value + loss / weights.sum() ** 2


def zoom(
    function: Callable[[Array], Array],
    start: Array,
    width: Array,
    bounds: Array,
    tolerance: float,
    restarts: int = 0,
) -> tuple[Array, float]:
    """Minimum of a rugged function by a grid of points that recentres and shrinks.

    `function` takes trial points (G, k) and gives (G,) values. The window of half-width `width`
    halves whenever its best point lies inside and moves when that lies on its rim, so that it
    follows narrow valleys. The search ends when the half-width is below `tolerance` on every axis.
    It restarts with the full window, up to `restarts` times, as long as that helps, because a flat
    valley can end it too early.
    """
    k = len(start)
    offsets = np.array(list(product(np.linspace(-1, 1, _WINDOW[k]), repeat=k)))
    rim = np.abs(offsets).max(axis=1) == 1
    best, half = start, width.copy()
    lowest = begun = float(function(start[None, :])[0])
    for _ in range(_MAX_ROUNDS):
        trials = np.clip(best + offsets * half, bounds[:, 0], bounds[:, 1])
        values = function(trials)
        lead = int(np.argmin(values))
        moved = values[lead] < lowest
        if moved:
            lowest = float(values[lead])
            outside = rim[lead] and not np.array_equal(trials[lead], best)
            best = trials[lead]
            if outside:
                continue
        half = half / 2
        if (half < tolerance).all():
            break
    if restarts and lowest < begun:
        return zoom(function, best, width, bounds, tolerance, restarts - 1)
    return best, lowest


#: Search interval of levels, in eV/atom (eV/Å for forces).
LEVEL_BOUNDS = (1e-5, 1e1)
SCALE_BOUNDS = (1e-3, 1e3)

#: Below this many validation structures a calibration comes with a warning.
FEW = 10

# Grid points per axis for one, two, three levels: every axis of six decades in steps of a factor
# 1.07, 1.4 and 2.0, which `zoom` then refines.
_GRID = {1: 201, 2: 41, 3: 21}
_STARTS = 3

# Keeps 1/σ² finite where the unit variances of a structure are only round-off.
_TINY = 1e-200


class CalibrationWarning(UserWarning):
    """The calibration rests on few structures, or a level ended on a bound."""


@dataclass(frozen=True)
class Calibration:
    """The result of a calibration; model files store it."""

    objective: str
    value: float
    n: int
    levels: dict[str, float] = field(default_factory=dict)
    scale: float = 1.0
    interval: dict[str, tuple[float, float]] = field(default_factory=dict)
    on_bound: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        interval = {name: list(pair) for name, pair in self.interval.items()}
        return {**asdict(self), "interval": interval, "on_bound": list(self.on_bound)}


@dataclass(frozen=True)
class _Problem:
    """The search for the logarithms of k levels; bootstraps reweight part of the grid."""

    error: Array
    sigma_of: Callable[[Array], Array]  # (G, k) levels to (G, n) standard deviations
    objective: Objective
    bounds: Array  # (k, 2), logarithms
    spacing: Array  # (k,), of the grid
    grid: Array  # (G, k), logarithms, best first
    terms: Terms  # of these grid points

    def solve(
        self, weights: Array, starts: int = _STARTS, tolerance: float = 1e-6, restarts: int = 8
    ) -> tuple[Array, float]:
        """The best point after zooming in on the best few points of the grid."""

        def function(x: Array) -> Array:
            return Terms.of(self.error, self.sigma_of(np.exp(x)), self.objective).score(weights)[1]

        order = np.argsort(self.terms.score(weights)[1], kind="stable")[:starts]
        minima = [
            zoom(function, x, self.spacing, self.bounds, tolerance, restarts)
            for x in self.grid[order]
        ]
        best = min(minima, key=lambda pair: pair[1])[0]
        sigma = self.sigma_of(np.exp(best)[None, :])
        return best, float(Terms.of(self.error, sigma, self.objective).score(weights)[0][0])


def _problem(
    error: Array,
    sigma_of: Callable[[Array], Array],
    bounds: list[tuple[float, float]],
    objective: Objective,
) -> _Problem:
    if objective not in get_args(Objective):
        raise NuggetError(
            f"objective is {objective!r}; choose one of {', '.join(get_args(Objective))}."
        )
    for low, high in bounds:
        if not 0 < low < high < np.inf:
            raise NuggetError(f"bounds ({low}, {high}) must be positive, finite and increasing.")
    k = len(bounds)
    if k not in _GRID:
        raise NuggetError(f"{k} levels were given; one to three can be calibrated.")
    if len(error) < k:
        raise NuggetError(
            f"{len(error)} validation structures cannot determine {k} levels; give more."
        )
    if len(error) < FEW:
        warnings.warn(
            f"calibrated on {len(error)} structures only; use {FEW} or more.",
            CalibrationWarning,
            stacklevel=3,
        )
    log_bounds = np.log(np.asarray(bounds, dtype=np.float64))
    axes = [np.linspace(low, high, _GRID[k]) for low, high in log_bounds]
    grid = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1).reshape(-1, k)
    spacing = np.array([axis[1] - axis[0] for axis in axes])
    # In chunks; only the better quarter, in which resampled labels have their optimum, is stored.
    scores = []
    for chunk in np.array_split(grid, max(1, len(grid) // 1000)):
        terms = Terms.of(error, sigma_of(np.exp(chunk)), objective)
        scores.append(terms.score(np.ones(len(error)))[1])
    grid = grid[np.argsort(np.concatenate(scores), kind="stable")[: len(grid) // 4]]
    terms = Terms.of(error, sigma_of(np.exp(grid)), objective)
    return _Problem(error, sigma_of, objective, log_bounds, spacing, grid, terms)


def _solve(
    problem: _Problem,
    names: tuple[str, ...],
    rng: np.random.Generator | None,
    resamples: int,
    confidence: float,
) -> tuple[dict[str, float], float, dict[str, tuple[float, float]], tuple[str, ...]]:
    n = len(problem.error)
    best, value = problem.solve(np.ones(n))
    interval: dict[str, tuple[float, float]] = {}
    if rng is not None:
        draws = rng.multinomial(n, np.full(n, 1 / n), size=resamples).astype(np.float64)
        logs = [problem.solve(w, starts=1, tolerance=2e-3, restarts=0)[0] for w in draws]
        samples = np.exp(logs)
        interval = {
            name: percentiles(column, confidence)
            for name, column in zip(names, samples.T, strict=True)
        }
    near = 0.01 * problem.spacing
    low, high = problem.bounds.T
    on_bound = tuple(np.array(names)[(best < low + near) | (best > high - near)].tolist())
    for name in on_bound:
        warnings.warn(
            f"the best {name} lies on a bound of its search interval: either it does not matter "
            "for these data (leave it out) or the bounds are too narrow.",
            CalibrationWarning,
            stacklevel=3,
        )
    levels = {name: float(x) for name, x in zip(names, np.exp(best), strict=True)}
    return levels, value, interval, on_bound


def fit_levels(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    gram: Array,
    names: tuple[str, ...],
    *,
    objective: Objective = "calibration_error",
    bounds: Mapping[str, tuple[float, float]] | None = None,
    rng: np.random.Generator | None = None,
    resamples: int = 100,
    confidence: float = 0.95,
) -> Calibration:
    """The noise levels that minimise `objective` over the given labels.

    `gram` (n, k, k) are matrices G with σ² = sᵀGs for the levels s called `names`. Bootstrap
    intervals are computed with a generator `rng`. The search evaluates a logarithmic grid within
    `bounds`, then ever finer grids around its three best points. It uses no derivatives, because CE
    is piecewise constant; `Terms.score` describes how ties are broken.
    """
    error, sigma_of = _from_gram(y_true, y_pred, gram, names)
    limits = {**dict.fromkeys(names, LEVEL_BOUNDS), **(bounds or {})}
    if unknown := set(limits) - set(names):
        raise NuggetError(f"bounds are given for {sorted(unknown)}; the levels are {names}.")
    problem = _problem(error, sigma_of, [limits[name] for name in names], objective)
    levels, value, interval, on_bound = _solve(problem, names, rng, resamples, confidence)
    return Calibration(objective, value, len(error), levels, 1.0, interval, on_bound)


def fit_scale(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    *,
    objective: Objective = "calibration_error",
    bounds: tuple[float, float] = SCALE_BOUNDS,
    rng: np.random.Generator | None = None,
    resamples: int = 100,
    confidence: float = 0.95,
) -> Calibration:
    """One factor on all σ.

    For the projected process at fixed θ₀/σ_n the factor is √θ₀, so that predictions do not change.
    """
    true, pred, std = checked(y_true, y_pred, y_std)
    problem = _problem(true - pred, lambda s: s * std[None, :], [bounds], objective)
    levels, value, interval, on_bound = _solve(problem, ("scale",), rng, resamples, confidence)
    return Calibration(objective, value, len(true), {}, levels["scale"], interval, on_bound)


def _from_gram(
    y_true: ArrayLike, y_pred: ArrayLike, gram: Array, names: tuple[str, ...]
) -> tuple[Array, Callable[[Array], Array]]:
    true, pred, _ = checked(y_true, y_pred, np.ones(np.shape(y_true)))
    k = len(names)
    if gram.shape != (len(true), k, k) or not np.isfinite(gram).all():
        raise NuggetError(
            f"the matrices of {k} levels for {len(true)} structures have shape {gram.shape}; "
            f"give ({len(true)}, {k}, {k}) finite numbers."
        )
    flat = gram.reshape(len(true), k * k).T

    def sigma_of(levels: Array) -> Array:
        pairs = (levels[:, :, None] * levels[:, None, :]).reshape(len(levels), k * k)
        return np.sqrt(np.maximum(pairs @ flat, _TINY))

    return true - pred, sigma_of
