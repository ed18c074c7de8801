"""What a calibration minimises, for many trial σ at once, and how the minimum is found."""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import product
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr, ndtri

from nugget.calibration.metrics import LEVELS

Array = NDArray[np.float64]
Objective = Literal["calibration_error", "nll", "crps"]

_BOUNDS = ndtri(LEVELS)
# Trial points per axis of one zoom window for one, two, three levels.
_WINDOW = {1: 17, 2: 9, 3: 5}
_MAX_ROUNDS = 60


@dataclass(frozen=True)
class Terms:
    """What each label adds to the objective under each of G trial σ; bootstraps only reweigh it."""

    objective: Objective
    loss: Array  # (G, n): negative log-likelihood, or CRPS
    first: NDArray[np.intp] | None  # (G, n): the lowest level j with F_i(y_i) ≤ p_j

    @classmethod
    def of(cls, error: Array, sigma: Array, objective: Objective) -> "Terms":
        """From errors y − ŷ (n,) and trial standard deviations (G, n)."""
        z = error / sigma
        if objective == "crps":
            density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
            score = sigma * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi))
            return cls(objective, score, None)
        loss = 0.5 * np.log(2 * np.pi) + np.log(sigma) + 0.5 * z**2
        if objective == "nll":
            return cls(objective, loss, None)
        return cls(objective, loss, np.searchsorted(_BOUNDS, z, side="left"))

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
    halves whenever its best point lies inside, and only moves when that lies on its rim, so narrow
    valleys are followed. Ends when the half-width is below `tolerance` on every axis. Then it opens
    again, up to `restarts` times, as long as that helps: a flat valley can close it too early.
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
