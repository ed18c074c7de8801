"""Success rates, Kaplan–Meier curves and tests between the settings of a campaign.

A search that has not found the solution is *censored*: it takes more evaluations than were used.
Kaplan–Meier curves and the log-rank test account for censoring.
"""

from __future__ import annotations

import itertools
import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from nugget.campaign.grid import setting_name
from nugget.campaign.results import Row
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints


def wilson(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's 95 % interval of a success rate, which is valid at rates of 0 and 1 too."""
    if trials == 0:
        return 0.0, 1.0
    low, high = stats.binomtest(hits, trials).proportion_ci(0.95, method="wilson")
    return float(low), float(high)


@dataclass(frozen=True, eq=False)
class KaplanMeier:
    """Share S(t) of searches that are not solved after t evaluations, with a 95 % interval.

    The interval is Greenwood's on the scale log(−log S), where it stays within [0, 1]. It is
    undefined (nan) where S is 0.
    """

    times: Ints  # where S decreases, ascending
    survival: Floats  # S just after each of them
    low: Floats
    high: Floats
    last: int  # the longest search, solved or censored

    @classmethod
    def of(cls, times: ArrayLike, solved: ArrayLike) -> KaplanMeier:
        """From evaluations used, and whether each search was solved at that evaluation."""
        t, d = _checked(times, solved)
        curve = stats.ecdf(stats.CensoredData(uncensored=t[d], right=t[~d])).sf
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # undefined where S is 0
            interval = curve.confidence_interval(0.95, method="log-log")
        steps = np.isin(curve.quantiles, t[d])
        return cls(
            curve.quantiles[steps].astype(np.int64), curve.probabilities[steps],
            interval.low.probabilities[steps], interval.high.probabilities[steps], int(t.max()),
        )  # fmt: skip

    @property
    def median(self) -> int | None:
        """Evaluations after which half are solved; None if that was never reached."""
        return _first_below(self.times, self.survival)

    @property
    def median_interval(self) -> tuple[int | None, int | None]:
        """Where the interval of S contains ½ (Brookmeyer and Crowley); None beyond the data."""
        return _first_below(self.times, self.low), _first_below(self.times, self.high)

    def at(self, evaluations: float) -> float:
        """S after this number of evaluations."""
        k = int(np.searchsorted(self.times, evaluations, side="right"))
        return 1.0 if k == 0 else float(self.survival[k - 1])


def _checked(times: ArrayLike, solved: ArrayLike) -> tuple[Ints, Any]:
    t, d = np.asarray(times, dtype=np.int64), np.asarray(solved, dtype=bool)
    if t.ndim != 1 or t.shape != d.shape or len(t) == 0:
        raise NuggetError("A Kaplan–Meier curve needs one time and one outcome for each search.")
    return t, d


def _first_below(times: Ints, curve: Floats, level: float = 0.5) -> int | None:
    below = np.flatnonzero(curve <= level + 1e-12)
    return int(times[below[0]]) if len(below) else None


@dataclass(frozen=True)
class LogRank:
    """The log-rank statistic, χ² with one degree of freedom, and its p-value."""

    chi2: float
    p: float


def logrank(
    times_a: ArrayLike, solved_a: ArrayLike, times_b: ArrayLike, solved_b: ArrayLike
) -> LogRank:
    """Log-rank test of equal curves in two groups; p is 1 where it is undefined."""
    (ta, da), (tb, db) = _checked(times_a, solved_a), _checked(times_b, solved_b)
    a, b = (stats.CensoredData(uncensored=t[d], right=t[~d]) for t, d in ((ta, da), (tb, db)))
    with np.errstate(divide="ignore", invalid="ignore"):
        result = stats.logrank(a, b)
    if not np.isfinite(result.statistic):  # without solutions, or only with the last ones
        return LogRank(0.0, 1.0)
    return LogRank(float(result.statistic) ** 2, float(result.pvalue))


def fisher(hits_a: int, trials_a: int, hits_b: int, trials_b: int) -> float:
    """Fisher's exact test, two-sided, of equal success in two groups."""
    table = [[hits_a, trials_a - hits_a], [hits_b, trials_b - hits_b]]
    return float(stats.fisher_exact(table)[1])


def holm(p: Sequence[float]) -> list[float]:
    """p-values corrected for multiple tests by Holm's method."""
    order = np.argsort(p, kind="stable")
    corrected, largest = [1.0] * len(p), 0.0
    for rank, k in enumerate(order):
        largest = max(largest, min(1.0, (len(p) - rank) * float(p[k])))
        corrected[k] = largest
    return corrected


@dataclass(frozen=True, eq=False)
class Group:
    """The searches with one setting that have ended. A failed one counts as not solved."""

    setting: dict[str, str]
    rows: list[Row]

    @property
    def name(self) -> str:
        return setting_name(self.setting)

    @property
    def times(self) -> list[int]:
        """Evaluations to the solution, or used without one."""
        outcomes = [row.outcome for row in self.rows]
        return [o.evaluations_to_solution if o.found else o.evaluations for o in outcomes]  # type: ignore[misc]

    @property
    def solved(self) -> list[bool]:
        return [bool(row.outcome.found) for row in self.rows]

    @property
    def hits(self) -> int:
        return sum(self.solved)

    @property
    def success(self) -> float:
        return self.hits / len(self.rows)

    @property
    def interval(self) -> tuple[float, float]:
        return wilson(self.hits, len(self.rows))

    @property
    def curve(self) -> KaplanMeier:
        return KaplanMeier.of(self.times, self.solved)


def grouped(rows: Iterable[Row]) -> list[Group]:
    """By setting, in the order in which settings first appear."""
    groups: dict[str, Group] = {}
    for row in rows:
        name = setting_name(row.setting)
        groups.setdefault(name, Group(row.setting, [])).rows.append(row)
    return list(groups.values())


def has_reference(rows: Sequence[Row]) -> bool:
    """Did the searches have a reference structure?"""
    return any(row.outcome.found is not None for row in rows)


def compare(pairs: Sequence[tuple[Group, Group]]) -> list[dict[str, Any]]:
    """Log-rank and Fisher's test of each pair, corrected for multiple tests (Holm)."""
    ranks = [logrank(a.times, a.solved, b.times, b.solved) for a, b in pairs]
    exact = [fisher(a.hits, len(a.rows), b.hits, len(b.rows)) for a, b in pairs]
    corrected = zip(holm([r.p for r in ranks]), holm(exact), strict=True)
    return [
        {
            "a": a.name,
            "b": b.name,
            "success_difference": a.success - b.success,
            "logrank_chi2": rank.chi2,
            "logrank_p": rank.p,
            "logrank_p_holm": rank_holm,
            "fisher_p": p,
            "fisher_p_holm": fisher_holm,
        }
        for (a, b), rank, p, (rank_holm, fisher_holm) in zip(
            pairs, ranks, exact, corrected, strict=True
        )
    ]


def describe(group: Group, curves: bool = True) -> dict[str, Any]:
    """One setting as plain data."""
    outcomes = [row.outcome for row in group.rows]
    best = [o.best_energy for o in outcomes if o.best_energy is not None]
    above = [o.best_above_reference for o in outcomes if o.best_above_reference is not None]
    data: dict[str, Any] = {
        "cell": group.setting,
        "name": group.name,
        "searches": len(outcomes),
        "errors": sum(bool(o.error) for o in outcomes),
        "evaluations": sum(o.evaluations for o in outcomes),
        "failures": sum(o.failures for o in outcomes),
        "engine_seconds": sum(o.engine_seconds for o in outcomes),
        "surrogate_seconds": sum(o.surrogate_seconds for o in outcomes),
        "best_energy": min(best, default=None),
        "median_best_above_reference": float(np.median(above)) if above else None,
    }
    if not has_reference(group.rows):
        return data
    curve = group.curve
    data |= {
        "found": group.hits,
        "success": group.success,
        "success_interval": list(group.interval),
        "median_evaluations": curve.median,
        "median_interval": list(curve.median_interval),
    }
    if curves:
        data["curve"] = {
            "evaluations": curve.times.tolist(),
            "solved": _plain(1 - curve.survival),
            "low": _plain(1 - curve.high),
            "high": _plain(1 - curve.low),
        }
    return data


def _plain(values: Any) -> list[float | None]:
    return [None if math.isnan(value) else float(value) for value in values]


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """All settings, and tests of all pairs of them if there is a reference structure."""
    groups = grouped(rows)
    pairs = list(itertools.combinations(groups, 2)) if has_reference(rows) else []
    return {"cells": [describe(group) for group in groups], "tests": compare(pairs)}
