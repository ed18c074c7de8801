"""A campaign in numbers: success and speed of every cell, and tests between them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from nugget.campaign.grid import cell_name
from nugget.campaign.results import Row
from nugget.campaign.survival import KaplanMeier, fisher, holm, logrank, wilson


@dataclass(frozen=True, eq=False)
class Group:
    """The searches of one cell that have ended. One that failed counts as not solved."""

    cell: dict[str, str]
    rows: list[Row]

    @property
    def name(self) -> str:
        return cell_name(self.cell)

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
    """By cell, in the order in which cells first appear."""
    groups: dict[str, Group] = {}
    for row in rows:
        name = cell_name(row.cell)
        groups.setdefault(name, Group(row.cell, [])).rows.append(row)
    return list(groups.values())


def has_reference(rows: Sequence[Row]) -> bool:
    """Is there something to be found at all?"""
    return any(row.outcome.found is not None for row in rows)


def compare(pairs: Sequence[tuple[Group, Group]]) -> list[dict[str, Any]]:
    """Log-rank and Fisher's test of each pair, corrected (Holm) for the number of pairs."""
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
    """One cell as plain data."""
    outcomes = [row.outcome for row in group.rows]
    best = [o.best_energy for o in outcomes if o.best_energy is not None]
    above = [o.best_above_reference for o in outcomes if o.best_above_reference is not None]
    data: dict[str, Any] = {
        "cell": group.cell,
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
    """All cells, and tests of all pairs of cells if there is something to be found."""
    groups = grouped(rows)
    pairs = list(itertools.combinations(groups, 2)) if has_reference(rows) else []
    return {"cells": [describe(group) for group in groups], "tests": compare(pairs)}
