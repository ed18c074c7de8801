"""The records of a search summarised in numbers and short texts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import floor, isfinite, log10, sqrt
from statistics import fmean, median
from typing import TYPE_CHECKING, Any

from nugget.search.polish import HULL, Minimum
from nugget.search.record import EndReason
from nugget.search.stop import RediscoveryCounter
from nugget.search.store import BEST, DATABASE, MINIMA
from nugget.systems.system_settings import make_goal

if TYPE_CHECKING:
    from nugget.search.record import PolishStep, Record
    from nugget.search.search import Result, Search
    from nugget.systems.goal import Goal


#: Errors and times are averaged over this many of the last evaluations.
LAST = 20


@dataclass(frozen=True)
class Quality:
    """Errors and calibration of the last predictions."""

    count: int
    error: float  # mean |E − predicted E|, eV/atom
    median: float  # the same, median
    z: float  # rms of (E − predicted E)/σ with the calibrated σ; 1 is ideal


def quality(records: Sequence[Record], last: int = LAST) -> Quality | None:
    """Of the last predictions with a result; None before there are any."""
    predicted = [r for r in records if r.ok and r.predicted is not None and r.std][-last:]
    if not predicted:
        return None
    errors = [record.energy - float(record.predicted or 0.0) for record in predicted]
    sizes = [abs(e) / len(r.atoms) for e, r in zip(errors, predicted, strict=True)]
    bars = [record.scale * float(record.std or 0.0) for record in predicted]
    return Quality(
        len(predicted),
        fmean(sizes),
        median(sizes),
        sqrt(sum((e / s) ** 2 for e, s in zip(errors, bars, strict=True)) / len(predicted)),
    )


@dataclass(frozen=True)
class Share:
    """The contribution of one generator."""

    name: str
    chosen: int  # structures that were evaluated
    best: int  # of those, lower than all earlier ones
    last: bool  # it generated the lowest structure


def informed(goal: Goal, records: Sequence[Record], steps: Sequence[PolishStep]) -> Goal:
    """The goal after these structures, which may lower a convex hull."""
    evaluated = [record.atoms for record in records if record.ok]
    for atoms in [*evaluated, *(step.atoms for step in steps if step.ok)]:
        goal = goal.informed(atoms, float(atoms.calc.results["energy"]))
    return goal


def shares(
    records: Sequence[Record], improved: Sequence[bool], lowest: Record | None
) -> list[Share]:
    """Contributions of the generators, the most frequent first.

    `improved` holds for each record whether it was lower than all earlier ones.
    """
    chosen = Counter(record.generator for record in records)
    best = Counter(r.generator for r, lower in zip(records, improved, strict=True) if lower)
    holder = lowest.generator if lowest is not None else None
    return [Share(name, n, best[name], name == holder) for name, n in chosen.most_common()]


def improvements(records: Sequence[Record], goal: Goal) -> list[bool]:
    """For each record, whether it was lower than all earlier ones by the goal at that time."""
    lower: list[bool] = []
    earlier: list[Record] = []
    lowest = float("inf")
    for record in records:
        value = goal.value(record.atoms, record.energy) if record.ok else float("inf")
        lower.append(value < lowest)
        if not record.ok:
            continue
        earlier.append(record)
        informed = goal.informed(record.atoms, record.energy)
        if informed is goal:
            lowest = min(lowest, value)
        else:
            goal, lowest = informed, min(informed.value(r.atoms, r.energy) for r in earlier)
    return lower


def failures(records: Sequence[Record]) -> dict[str, int]:
    """Number of failed evaluations by kind."""
    return dict(Counter(record.failure for record in records if not record.ok).most_common())


def seconds_left(
    records: Sequence[Record], budget: int, last: int = LAST, in_flight: int = 1
) -> float | None:
    """Remaining time by the mean of the last evaluations; None before the first."""
    recent = records[-last:]
    if not recent:
        return None
    together = max(in_flight, 1)
    mean = sum(r.engine_seconds / together + r.surrogate_seconds for r in recent) / len(recent)
    return mean * max(budget - len(records), 0)


def fixed(value: float, digits: int = 4, plus: bool = False) -> str:
    """A number for a page with a typographic minus; zero has no sign."""
    text = f"{value:z.{digits}f}".replace("-", "−")
    return f"+{text}" if plus and round(value, digits) > 0 else text


def rounded(value: float, digits: int = 2, plus: bool = False) -> str:
    """A number with this many significant digits and no exponent: 0.0031, 0.42, 120."""
    if value == 0 or not isfinite(value):
        return fixed(value, 0, plus)
    decimals = max(digits - 1 - floor(log10(abs(value))), 0)
    return fixed(value, min(decimals, 6), plus)


def per_atom(error: float) -> str:
    """An error in eV/atom for people, in meV/atom up to 1 eV."""
    return f"{rounded(error)} eV/atom" if error >= 1 else f"{fixed(1e3 * error, 1)} meV/atom"


def likely(probability: float) -> str:
    """A probability for people; an estimate is never certain."""
    return "more than 99%" if probability > 0.99 else f"{probability:.0%}"


def failure_counts(kinds: dict[str, int]) -> str:
    """Failures as text: 3 (timeout 2, nan 1)."""
    if not kinds:
        return "none"
    parts = ", ".join(f"{kind} {n}" for kind, n in kinds.items())
    return f"{sum(kinds.values())} ({parts})"


def _minimum(one: Minimum) -> dict[str, Any]:
    groups = {name: getattr(one, name) or None for name in ("point_group", "space_group")}
    relaxed = {name: getattr(one.relaxed, name) for name in ("fmax", "converged")}
    start = {"start": one.start if one.start >= 0 else None, "learned": one.start < 0}
    return {"energy": one.value, **relaxed, **groups, "met": one.met, **start}


def search_summary(search: Search, result: Result | None) -> dict[str, Any]:
    """The result of a search as plain data; `result` is None if it was broken off."""
    records = search.store.records()
    good = [record for record in records if record.ok]
    goal = make_goal(search.config.system)
    before = search.knowledge().learned
    for record in (*before, *good):
        goal = goal.informed(record.atoms, record.energy)
    value = {record.iteration: goal.value(record.atoms, record.energy) for record in good}
    best = min(good, key=lambda record: goal.order(record.atoms, record.energy), default=None)
    directory = search.store.directory
    steps = search.store.polish_steps()
    minima = () if result is None else result.minima
    confidence = RediscoveryCounter.of(records, before).confidence()
    learned = [goal.value(record.atoms, record.energy) for record in before]
    phases = () if result is None else result.phases
    lowest = None if result is None else result.lowest
    # The same structure as in best.extxyz; of a hull, the most stable phase.
    values = learned + ([] if best is None else [value[best.iteration]])
    if lowest is not None:
        values = [lowest.value]
    if phases:
        stable = [phase.formation for phase in phases if phase.stable]
        values = stable or [phase.formation for phase in phases]
    checks = search.store.checks()
    report = None if result is None else result.engine_check
    return {
        "directory": str(directory),
        "formula": search.config.system.title,
        "engine": search.config.engine.name,
        "seed": search.config.search.seed,
        "in_flight": search.config.search.in_flight,
        "evaluations": len(records),
        "status": "interrupted" if result is None else result.end.status,
        "reason": "broken off" if result is None else result.end.reason,
        "cause": EndReason.BROKEN_OFF if result is None else result.end.cause,
        "unit": goal.unit,
        "quantity": goal.quantity,
        "best_energy": min(values, default=None),
        "best_evaluated": None if best is None else value[best.iteration],
        "best_iteration": None if best is None else best.iteration,
        "best_generator": None if best is None else best.generator,
        "best_file": None if best is None else str(directory / BEST),
        "learned": len(learned),
        "best_learned": min(learned, default=None),
        "met_independently": confidence.met,
        "lower_predicted": confidence.lower,
        "probability_lowest_found": confidence.probability,
        "no_estimate": confidence.no_estimate if search.problem.counts_rediscoveries else "",
        "engine_check": None if report is None else str(report),
        "check_evaluations": sum(check.evaluations for check in checks),
        "verdicts": dict(Counter(check.kind.value for check in checks if check.remarkable)),
        "polish_evaluations": len(steps),
        "polish_seconds": sum(step.engine_seconds for step in steps),
        "minima": [_minimum(one) for one in sorted(minima, key=lambda one: one is not lowest)],
        "minima_file": str(directory / MINIMA) if minima else None,
        "phases": [phase.row() for phase in phases],
        "hull_file": str(directory / HULL) if phases else None,
        "hull_figure": None,
        "phase_diagram": None if result is None or not result.diagram else result.diagram.data(),
        "diagram_figure": None,
        "database": str(directory / DATABASE),
        "reference": search.config.search.reference,
        "found": None if not search.references or result is None else result.found,
        "failures": failures(records),
        "engine_seconds": sum(record.engine_seconds for record in records),
        "surrogate_seconds": sum(record.surrogate_seconds for record in records),
    }
