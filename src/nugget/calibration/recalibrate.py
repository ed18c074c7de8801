"""Find noise levels (or one factor) that make σ honest on validation data, without a refit.

The predictive variance of the label-noise committee is σ²(θ) = σ_l² a + σ_lf² c + σ_p² b with
a, b, c free of the levels, so a whole grid of levels costs a few array operations.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nugget.calibration.metrics import checked
from nugget.calibration.objectives import Objective, Terms, zoom
from nugget.calibration.summary import percentiles
from nugget.errors import NuggetError

Array = NDArray[np.float64]
#: σ as a function of the levels, for variances that are not a plain sum of squares.
SigmaOf = Callable[[dict[str, float]], ArrayLike]

#: Where levels are looked for, in eV/atom (eV/Å for forces).
LEVEL_BOUNDS = (1e-5, 1e1)
SCALE_BOUNDS = (1e-3, 1e3)
#: Below this many validation structures a calibration comes with a warning.
FEW = 10
# Grid points per axis for one, two, three levels: every axis of six decades in steps of a factor
# 1.07, 1.4 and 2.0, which `zoom` then refines.
_GRID = {1: 201, 2: 41, 3: 21}
_STARTS = 3
# Keeps 1/σ² finite where the unit variances of a structure are nothing but round-off.
_TINY = 1e-200


class CalibrationWarning(UserWarning):
    """The calibration stands on weak ground; the message says why."""


@dataclass(frozen=True)
class Calibration:
    """What a calibration found; plain data, kept in the model file."""

    objective: str
    value: float
    n: int
    levels: dict[str, float] = field(default_factory=dict)
    scale: float = 1.0
    interval: dict[str, tuple[float, float]] = field(default_factory=dict)
    on_bound: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, strings and lists."""
        return {
            "objective": self.objective,
            "value": self.value,
            "n": self.n,
            "levels": dict(self.levels),
            "scale": self.scale,
            "interval": {name: list(pair) for name, pair in self.interval.items()},
            "on_bound": list(self.on_bound),
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> "Calibration":
        """The inverse of `to_dict`."""
        return cls(
            objective=str(data["objective"]),
            value=float(data["value"]),
            n=int(data["n"]),
            levels={str(k): float(v) for k, v in data["levels"].items()},
            scale=float(data["scale"]),
            interval={str(k): (float(a), float(b)) for k, (a, b) in data["interval"].items()},
            on_bound=tuple(str(name) for name in data["on_bound"]),
        )


@dataclass(frozen=True)
class _Problem:
    """The search for the logarithms of k levels; bootstraps reweigh the grid's better part."""

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
        """The best point found by zooming in on the best few points of the grid."""

        def function(x: Array) -> Array:
            return Terms.of(self.error, self.sigma_of(np.exp(x)), self.objective).score(weights)[1]

        order = np.argsort(self.terms.score(weights)[1], kind="stable")[:starts]
        found = [
            zoom(function, x, self.spacing, self.bounds, tolerance, restarts)
            for x in self.grid[order]
        ]
        best = min(found, key=lambda pair: pair[1])[0]
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
    # In chunks, keeping the better quarter: resampled labels have their optimum among those.
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
            f"the best {name} sits on a bound of its search interval: either it does not matter "
            "for these data (leave it out) or the bounds are too narrow.",
            CalibrationWarning,
            stacklevel=3,
        )
    levels = {name: float(x) for name, x in zip(names, np.exp(best), strict=True)}
    return levels, value, interval, on_bound


def fit_levels(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    sigma: Mapping[str, ArrayLike] | Array | SigmaOf,
    *,
    names: tuple[str, ...] | None = None,
    objective: Objective = "calibration_error",
    bounds: Mapping[str, tuple[float, float]] | None = None,
    rng: np.random.Generator | None = None,
    resamples: int = 100,
    confidence: float = 0.95,
) -> Calibration:
    """The noise levels that minimise `objective` over the given labels.

    `sigma` is either the unit variances {"label": a, "force": c, "prior": b}, meaning
    σ² = σ_label² a + σ_force² c + σ_prior² b (levels left out are zero); or matrices G (n, k, k)
    with σ² = sᵀGs, for a sampled committee with its cross terms; or any function that takes
    {name: level} and returns σ (n,). For the last two `names` says which levels there are.
    Bootstrap intervals are made when a generator `rng` is given. Search: a logarithmic grid within
    `bounds`, then ever finer grids around its three best points (no derivatives, since CE is
    piecewise constant; see `Terms.score` for how ties are broken).
    """
    if isinstance(sigma, Mapping):
        order = tuple(sigma)
        error, sigma_of = _from_pieces(y_true, y_pred, sigma)
    elif not names:
        raise NuggetError("names are missing: say which levels the sigma function takes.")
    elif callable(sigma):
        order = names
        error, sigma_of = _from_function(y_true, y_pred, sigma, order)
    else:
        order = names
        error, sigma_of = _from_gram(y_true, y_pred, sigma, order)
    limits = {**dict.fromkeys(order, LEVEL_BOUNDS), **(bounds or {})}
    if unknown := set(limits) - set(order):
        raise NuggetError(f"bounds are given for {sorted(unknown)}; the levels are {order}.")
    problem = _problem(error, sigma_of, [limits[name] for name in order], objective)
    levels, value, interval, on_bound = _solve(problem, order, rng, resamples, confidence)
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

    For the projected process at fixed θ₀/σ_n the factor is √θ₀: predictions do not change.
    """
    true, pred, std = checked(y_true, y_pred, y_std)
    problem = _problem(true - pred, lambda s: s * std[None, :], [bounds], objective)
    levels, value, interval, on_bound = _solve(problem, ("scale",), rng, resamples, confidence)
    return Calibration(objective, value, len(true), {}, levels["scale"], interval, on_bound)


def _from_pieces(
    y_true: ArrayLike, y_pred: ArrayLike, pieces: Mapping[str, ArrayLike]
) -> tuple[Array, Callable[[Array], Array]]:
    if not pieces:
        raise NuggetError("no unit variances were given; name at least one level.")
    ones = np.ones(np.shape(y_true))
    true, pred, _ = checked(y_true, y_pred, ones)
    rows = []
    for name, piece in pieces.items():
        variance = np.asarray(piece, dtype=np.float64)
        if variance.shape != true.shape or not np.isfinite(variance).all() or (variance < 0).any():
            raise NuggetError(
                f"the unit variance of {name!r} must be {len(true)} finite numbers, none negative."
            )
        if not (variance > 0).any():
            raise NuggetError(
                f"the unit variance of {name!r} is zero everywhere, so its level cannot be found; "
                "leave it out."
            )
        rows.append(variance)
    unit = np.vstack(rows)
    if (unit.sum(axis=0) <= 0).any():
        first = int(np.flatnonzero(unit.sum(axis=0) <= 0)[0])
        raise NuggetError(f"structure {first} has no variance at any level; leave it out.")
    return true - pred, lambda levels: np.sqrt(np.maximum(levels**2 @ unit, _TINY))


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


def _from_function(
    y_true: ArrayLike, y_pred: ArrayLike, sigma: SigmaOf, names: tuple[str, ...]
) -> tuple[Array, Callable[[Array], Array]]:
    true, pred, _ = checked(y_true, y_pred, np.ones(np.shape(y_true)))

    def sigma_of(levels: Array) -> Array:
        named = [dict(zip(names, map(float, point), strict=True)) for point in levels]
        return np.vstack([checked(true, pred, sigma(one))[2] for one in named])

    return true - pred, sigma_of
