"""The records of a search in a few numbers and words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from nugget.search.goal import Goal
    from nugget.search.polish_step import PolishStep
    from nugget.search.run import Status
    from nugget.search.store import Record

#: How many of the last evaluations errors and times are taken from.
LAST = 20


@dataclass(frozen=True)
class Quality:
    """How good the last predictions were."""

    count: int
    error: float  # mean |E − predicted E|, eV/atom
    z: float  # root mean square of (E − predicted E)/σ with σ as it was rescaled; 1 is calibrated


def quality(records: Sequence[Record], last: int = LAST) -> Quality | None:
    """Of the last predictions that met their outcome; None before there are any."""
    met = [r for r in records if r.ok and r.predicted is not None and r.std][-last:]
    if not met:
        return None
    errors = [record.energy - float(record.predicted or 0.0) for record in met]
    bars = [record.scale * float(record.std or 0.0) for record in met]
    return Quality(
        len(met),
        sum(abs(e) / len(r.atoms) for e, r in zip(errors, met, strict=True)) / len(met),
        sqrt(sum((e / s) ** 2 for e, s in zip(errors, bars, strict=True)) / len(met)),
    )


@dataclass(frozen=True)
class Share:
    """What one generator has contributed."""

    name: str
    chosen: int  # structures that were evaluated
    best: int  # of those, lower than all before
    last: bool  # it made the lowest one of all


def informed(goal: Goal, records: Sequence[Record], steps: Sequence[PolishStep]) -> Goal:
    """The goal that knows these structures, too: a convex hull may have sunk."""
    known = [record.atoms for record in records if record.ok]
    for atoms in [*known, *(step.atoms for step in steps if step.ok)]:
        goal = goal.informed(atoms, float(atoms.calc.results["energy"]))
    return goal


def shares(
    records: Sequence[Record], improved: Sequence[bool], lowest: Record | None
) -> list[Share]:
    """Of all generators that were evaluated, the most frequent first.

    `improved` says of each record whether it was lower than all before.
    """
    chosen = Counter(record.generator for record in records)
    best = Counter(r.generator for r, lower in zip(records, improved, strict=True) if lower)
    holder = lowest.generator if lowest is not None else None
    return [Share(name, n, best[name], name == holder) for name, n in chosen.most_common()]


def improvements(records: Sequence[Record], goal: Goal) -> list[bool]:
    """Of each record, whether it was lower than all before, by what was known then."""
    lower: list[bool] = []
    known: list[Record] = []
    lowest = float("inf")
    for record in records:
        value = goal.value(record.atoms, record.energy) if record.ok else float("inf")
        lower.append(value < lowest)
        if not record.ok:
            continue
        known.append(record)
        informed = goal.informed(record.atoms, record.energy)
        if informed is goal:
            lowest = min(lowest, value)
        else:
            goal, lowest = informed, min(informed.value(r.atoms, r.energy) for r in known)
    return lower


def failures(records: Sequence[Record]) -> dict[str, int]:
    """How many evaluations failed, by kind."""
    return dict(Counter(record.failure for record in records if not record.ok).most_common())


def seconds_left(
    records: Sequence[Record], budget: int, last: int = LAST, in_flight: int = 1
) -> float | None:
    """From the mean of the last evaluations, `in_flight` at a time; None before the first."""
    recent = records[-last:]
    if not recent:
        return None
    together = max(in_flight, 1)
    mean = sum(r.engine_seconds / together + r.surrogate_seconds for r in recent) / len(recent)
    return mean * max(budget - len(records), 0)


def duration(seconds: float) -> str:
    """A time for people: 0.42 s, 17 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def counted(kinds: dict[str, int]) -> str:
    """Failures in words: 3 (timeout 2, nan 1)."""
    if not kinds:
        return "none"
    parts = ", ".join(f"{kind} {n}" for kind, n in kinds.items())
    return f"{sum(kinds.values())} ({parts})"


def polish_line(status: Status) -> str:
    """The last evaluation of a relaxation with the engine, in one line."""
    step = status.polish[-1]
    head = f"polish {len(status.polish):3d}  evaluation {step.start + 1}"
    if not step.ok:
        return f"{head}  {step.failure}: {' '.join(step.reason.split())}"
    results = step.atoms.calc.results
    fmax = float(np.linalg.norm(results["forces"], axis=1).max())
    goal = status.learner.goal
    value = goal.value(step.atoms, results["energy"])
    return f"{head}  {value:.4f} {goal.unit}  largest force {fmax:.3f} eV/Å"


def plain_line(status: Status) -> str:
    """One evaluation in one line."""
    record, best = status.record, status.learner.best
    assert record is not None
    head = f"{status.evaluations:4d}/{status.budget}"
    if not record.ok:
        return f"{head}  {record.failure}: {' '.join(record.reason.split())}  {record.generator}"
    assert best is not None
    learner, goal = status.learner, status.learner.goal
    mark = "*" if best is record else " "
    expected = ""
    if record.predicted is not None and record.std:
        bar = goal.stds([record.atoms], np.array([record.scale * record.std]))[0]
        expected = f"  expected {goal.value(record.atoms, record.predicted):.3f} ± {bar:.3f}"
    unit = goal.unit
    return (
        f"{head} {mark} {learner.value(record):.4f} {unit}  best {learner.value(best):.4f} {unit}"
        f"{expected}  "
        f"{record.generator}{', to explore' if record.purpose == 'explore' else ''}"
    )
