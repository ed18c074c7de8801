"""How often and how soon: success shares, Kaplan–Meier curves, and tests between groups.

A search that has not found the solution is *censored*: all that is known is that it takes more
evaluations than were used. Kaplan–Meier and the log-rank test take such searches for what they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from nugget.errors import NuggetError

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Z95 = float(stats.norm.ppf(0.975))


def wilson(hits: int, trials: int, z: float = Z95) -> tuple[float, float]:
    """Wilson's 95 % interval of a share; unlike p ± z·SE it stays honest at 0 and 1."""
    if trials == 0:
        return 0.0, 1.0
    p = hits / trials
    centre = (p + z * z / (2 * trials)) / (1 + z * z / trials)
    half = z / (1 + z * z / trials) * sqrt(p * (1 - p) / trials + (z / (2 * trials)) ** 2)
    # At p = 0 and p = 1 an end is 0 or 1 exactly; round-off must not carry it further.
    return max(centre - half, 0.0), min(centre + half, 1.0)


@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """Share S(t) not yet solved after t evaluations, a step at every t with a solution.

    The interval is Greenwood's on the scale log(−log S), where it cannot leave [0, 1]. Where S is 0
    it is not defined (nan).
    """

    times: Ints  # where S steps down, ascending
    survival: Floats  # S just after each of them
    low: Floats
    high: Floats
    at_risk: Ints  # searches still going just before each of them
    events: Ints  # solutions at each of them
    last: int  # the longest search, solved or censored

    @classmethod
    def of(cls, times: ArrayLike, solved: ArrayLike, z: float = Z95) -> KaplanMeier:
        """From evaluations used and whether each search was solved at that evaluation."""
        t, d = _checked(times, solved)
        steps = np.unique(t[d])
        at_risk = np.array([np.sum(t >= step) for step in steps], dtype=np.int64)
        events = np.array([np.sum(d & (t == step)) for step in steps], dtype=np.int64)
        survival: Floats = np.cumprod(1.0 - events / at_risk, dtype=np.float64)
        low, high = _greenwood(survival, at_risk, events, z)
        return cls(steps, survival, low, high, at_risk, events, int(t.max()))

    @property
    def median(self) -> int | None:
        """Evaluations after which half are solved; None if that was never reached."""
        return _first_below(self.times, self.survival)

    @property
    def median_interval(self) -> tuple[int | None, int | None]:
        """Where the interval of S holds ½ (Brookmeyer and Crowley); None: beyond the data."""
        return _first_below(self.times, self.low), _first_below(self.times, self.high)

    def at(self, evaluations: float) -> float:
        """S after so many evaluations."""
        k = int(np.searchsorted(self.times, evaluations, side="right"))
        return 1.0 if k == 0 else float(self.survival[k - 1])


def _checked(times: ArrayLike, solved: ArrayLike) -> tuple[Ints, NDArray[np.bool_]]:
    t, d = np.asarray(times, dtype=np.int64), np.asarray(solved, dtype=bool)
    if t.ndim != 1 or t.shape != d.shape or len(t) == 0:
        raise NuggetError("A Kaplan–Meier curve needs one time and one outcome for each search.")
    return t, d


def _greenwood(survival: Floats, at_risk: Ints, events: Ints, z: float) -> tuple[Floats, Floats]:
    """S^exp(±z·SE) with SE² = Σ d/(n(n−d)) / log²S, the variance of log(−log S)."""
    left = at_risk - events
    with np.errstate(divide="ignore", invalid="ignore"):
        variance = np.cumsum(events / (at_risk * left))
        width = z * np.sqrt(variance) / np.abs(np.log(survival))
        low, high = survival ** np.exp(width), survival ** np.exp(-width)
    low[left == 0] = high[left == 0] = np.nan
    return low, high


def _first_below(times: Ints, curve: Floats, level: float = 0.5) -> int | None:
    below = np.flatnonzero(curve <= level + 1e-12)
    return int(times[below[0]]) if len(below) else None


@dataclass(frozen=True)
class LogRank:
    """Are two curves the same? χ² with one degree of freedom."""

    chi2: float
    p: float
    observed: float  # solutions in the first group
    expected: float  # and how many there would be if both groups were the same


def logrank(
    times_a: ArrayLike, solved_a: ArrayLike, times_b: ArrayLike, solved_b: ArrayLike
) -> LogRank:
    """Log-rank test of two groups (Mantel): (O − E)²/V over all times with a solution."""
    (ta, da), (tb, db) = _checked(times_a, solved_a), _checked(times_b, solved_b)
    observed, expected, variance = float(da.sum()), 0.0, 0.0
    for t in np.unique(np.concatenate([ta[da], tb[db]])):
        na, nb = float(np.sum(ta >= t)), float(np.sum(tb >= t))
        d = float(np.sum(da & (ta == t)) + np.sum(db & (tb == t)))
        n = na + nb
        expected += d * na / n
        if n > 1:
            variance += d * (na / n) * (nb / n) * (n - d) / (n - 1)
    if variance == 0:
        return LogRank(0.0, 1.0, observed, expected)
    chi2 = (observed - expected) ** 2 / variance
    return LogRank(chi2, float(stats.chi2.sf(chi2, 1)), observed, expected)


def fisher(hits_a: int, trials_a: int, hits_b: int, trials_b: int) -> float:
    """Fisher's exact test, two-sided, of equal success in two groups."""
    table = [[hits_a, trials_a - hits_a], [hits_b, trials_b - hits_b]]
    return float(stats.fisher_exact(table)[1])


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for their number, so that one false alarm among all stays at its level."""
    order = np.argsort(p, kind="stable")
    corrected, largest = [1.0] * len(p), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * float(p[k])))
        corrected[k] = largest
    return corrected
