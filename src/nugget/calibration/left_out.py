"""Error bars that are honest without a validation file: from predictions for what was left out.

The regression tells in closed form what it would have predicted for a structure that it had not
seen (`nugget.gp.left_out`), and with which posterior variance v. Structures are left out one by
one, and in groups of structures that resemble each other, so that the error bars are also held to
what happens where the model extrapolates. For energies, force components and stress components:

1. σ² = factor²·v + floor² by maximum likelihood over both kinds of leaving out,
2. one more factor that brings the shares within 1σ and 2σ, of what was left out one by one, as near
   as possible to 68 and 95 %: errors have heavier tails than a Gaussian, and a likelihood follows
   the tails.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import minimize_scalar
from sklearn.cluster import KMeans

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget.errors import NuggetError
from nugget.gp.labels import ENERGY, FORCE, STRESS
from nugget.gp.left_out import LeftOut, blocks_of, left_out, structure_of
from nugget.structures.batch import Batch

if TYPE_CHECKING:
    from nugget.potential.potential import Potential

KINDS: dict[str, int] = {"energy": ENERGY, "force": FORCE, "stress": STRESS}
# Fewer structures than this say nothing about σ.
FEWEST = 5
_GROUPS = 8
_GAUSSIAN = ((1.0, 0.6827, 1.0), (2.0, 0.9545, 2.0))  # k, share within kσ, weight
# Scores that a model file keeps for intervals, per kind.
_KEPT = 1000


@dataclass(frozen=True)
class Level:
    """σ² = factor²·v + floor² (for energies: v/N² and per atom)."""

    factor: float
    floor: float

    def std(self, variance: Floats, unit: Floats) -> Floats:
        return np.sqrt(self.factor**2 * variance + (self.floor * unit) ** 2)


def calibrate_left_out(potential: Potential) -> dict[str, Any]:
    """Set the levels of a `Posterior` uncertainty from what was left out; no refit.

    Returns what `potential.calibration` keeps: levels, shares within 1σ and 2σ, and the scores
    |error|/σ of what was left out one by one, from which intervals are made.
    """
    fit = potential.fitted
    regression, batch = fit.regression, fit.training.batch
    if not hasattr(fit.uncertainty, "with_levels") or "energy_floor" not in (
        fit.uncertainty.level_names
    ):
        raise NuggetError(
            f"calibrate='loo' needs the uncertainty Posterior, not "
            f"{type(fit.uncertainty.settings).__name__}; calibrate on a validation set instead."
        )
    if len(batch) < FEWEST:
        raise NuggetError(
            f"{len(batch)} structures are too few to leave some out; give {FEWEST} or more."
        )
    owner = structure_of(regression)
    singly = left_out(regression, blocks_of(owner))
    groups = similar_structures(potential, batch)
    together = left_out(regression, blocks_of(groups[owner]))
    unit = np.where(regression.kind == ENERGY, regression.count, 1.0)
    levels: dict[str, float] = {}
    shares: dict[str, list[float]] = {}
    scores: dict[str, list[float]] = {}
    for name, kind in KINDS.items():
        rows = regression.kind == kind
        if rows.any():
            level = fit_level(_rows(singly, rows), _rows(together, rows), unit[rows])
            z = np.abs(singly.residual[rows]) / level.std(singly.variance[rows], unit[rows])
            levels |= {name: level.factor, f"{name}_floor": level.floor}
            shares[name] = [float(np.mean(z <= k)) for k in (1.0, 2.0)]
            scores[name] = kept_scores(z, potential.seed)
    energies = regression.kind == ENERGY
    levels["prior"] = float(
        np.sqrt(np.mean((regression.y[energies] / regression.count[energies]) ** 2))
    )
    fitted: Any = fit.uncertainty.with_scale(1.0)
    potential.set_uncertainty(fitted.with_levels(**levels))
    mae = {
        name: float(np.mean(np.abs(singly.residual[rows] / unit[rows])))
        for name, kind in KINDS.items()
        if (rows := regression.kind == kind).any()
    }
    potential.calibration = {
        "method": "left out one by one, and in groups",
        "n": len(batch),
        "groups": int(groups.max()) + 1,
        "levels": levels,
        "within": shares,
        "mae": mae,
        "scores": scores,
    }
    return potential.calibration


def kept_scores(z: Floats, seed: int) -> list[float]:
    """Scores |error|/σ in order, as a model file keeps them: no more than are of use."""
    kept = z if len(z) <= _KEPT else np.random.default_rng(seed).choice(z, _KEPT, replace=False)
    return [float(f"{value:.5g}") for value in np.sort(kept)]


def _rows(found: LeftOut, rows: Bools) -> LeftOut:
    return LeftOut(found.residual[rows], found.variance[rows])


def fit_level(singly: LeftOut, together: LeftOut, unit: Floats) -> Level:
    """The factor and the floor of one kind of label (see the module's text)."""
    residual = np.concatenate([singly.residual, together.residual])
    variance = np.concatenate([singly.variance, together.variance])
    units = np.concatenate([unit, unit]) ** 2
    mean = float(np.mean(variance / units))

    def shape(log_ratio: float) -> Floats:
        """σ² up to a factor; the ratio is that of the floor to the mean variance."""
        found: Floats = variance + np.exp(log_ratio) * mean * units
        return found

    def loss(log_ratio: float) -> float:
        """Negative log likelihood with the best factor, s² = mean(r²/shape)."""
        s = shape(log_ratio)
        return float(np.mean(np.log(s)) + np.log(np.mean(residual**2 / s)))

    grid = np.linspace(-12.0, 10.0, 45)
    start = grid[int(np.argmin([loss(g) for g in grid]))]
    best = float(minimize_scalar(loss, bounds=(start - 0.5, start + 0.5), method="bounded").x)
    square = float(np.mean(residual**2 / shape(best)))
    level = Level(float(np.sqrt(square)), float(np.sqrt(square * np.exp(best) * mean)))
    more = balance(np.abs(singly.residual) / level.std(singly.variance, unit))
    return Level(more * level.factor, more * level.floor)


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


def similar_structures(potential: Potential, batch: Batch) -> Ints:
    """A group number per structure: clusters of their mean features, element by element."""
    env = potential.descriptor.compute(batch)
    n_species = len(potential.descriptor.species)
    f = env.values.shape[1]
    mean = np.zeros((len(batch), n_species, f))
    np.add.at(mean, (env.owner, env.species), env.values)
    mean /= batch.sizes[:, None, None]
    flat = mean.reshape(len(batch), -1)
    spread = flat.std(axis=0)
    flat = flat[:, spread > 1e-9 * max(float(spread.max()), 1e-300)]
    number = min(_GROUPS, max(len(batch) // FEWEST, 2))
    if flat.shape[1] == 0:  # all alike: groups by position in the list
        return np.arange(len(batch)) % number
    clusters = KMeans(number, n_init=4, random_state=potential.seed).fit_predict(flat)
    groups: Ints = np.unique(clusters, return_inverse=True)[1].astype(np.int64)
    return groups
