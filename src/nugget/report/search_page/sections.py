"""The sections of a search's page, from its records."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nugget.report.digest import counted, duration, failures, improvements, quality, shares
from nugget.report.hull_sections import hull_figures
from nugget.report.page import sections as parts
from nugget.report.page.sections import Section
from nugget.report.search_page.evaluations import NAME
from nugget.report.search_page.minima import Low, signed
from nugget.search.goal import AboveHull, Goal
from nugget.search.polish_step import PolishStep
from nugget.search.reader import State
from nugget.search.stop import Confidence
from nugget.search.store import Record

#: Words for what a search is doing, and how they look.
BADGES = {
    "running": "busy",
    "finished": "good",
    "found": "good",
    "interrupted": "plain",
    "stopped": "bad",
    "failed": "bad",
}


def figures(
    records: Sequence[Record],
    steps: Sequence[PolishStep],
    low: Sequence[Low],
    goal: Goal,
    sure: Confidence,
    budget: int,
) -> Section:
    """The numbers that one wants to see first."""
    items: list[tuple[str, str, str]] = []
    if isinstance(goal, AboveHull):
        items += hull_figures(goal)
    elif low:
        best = low[0]
        maker = next((r.generator for r in records if r.iteration == best.start), "")
        how = f"evaluation {best.start + 1}" if best.start >= 0 else "known before"
        if best.polished:
            how = f"relaxed from {how}"
        note = f"{how}, {maker.replace('_', ' ')}" if maker else how
        items.append(("lowest energy", f"{signed(best.value)} {goal.unit}", note))
    if len(low) > 1 and not isinstance(goal, AboveHull):
        gap = 1e3 * (low[1].value - low[0].value)
        unit = "meV" if goal.unit == "eV" else "meV/atom"
        items.append(("next structure", f"+{gap:.0f} {unit}", "the lowest one that differs"))
    polish = f"and {len(steps)} to relax the lowest" if steps else f"of {budget}"
    items.append(("evaluations", f"{len(records)}", polish))
    if sure.probability is not None:
        met = f"met again {sure.met} times, independently"
        items.append(("lowest is found", f"{100 * sure.probability:.0f} %", met))
    if (found := quality(records)) is not None:
        items.append(
            ("model error", f"{1e3 * found.error:.1f} meV/atom", f"the last {found.count}")
        )
        honest = f"rms of error/σ of the last {found.count}; 1 is honest"
        items.append(("error bars", f"{found.z:.2f}", honest))
    kinds = failures(records)
    items.append(("failures", str(sum(kinds.values())), counted(kinds) if kinds else "none"))
    return parts.figures(items)


def _difference(goal: Goal) -> str:
    """What is shown of an evaluation, in a word."""
    return "above the hull" if isinstance(goal, AboveHull) else "E − lowest"


def energies(goal: Goal) -> Section:
    """Every evaluation and the lowest so far."""
    return parts.plot(
        NAME,
        [
            parts.points("number", "value"),
            parts.line("number", "value", "lowest so far", "min", steps=True),
        ],
        title="The search",
        x=parts.axis("evaluation"),
        y=parts.axis(f"{_difference(goal)} ({goal.unit})", relative=True, robust=True),
        colors=["generator", "purpose"],
        caption="Every evaluation with the engine; paler marks at the upper edge lie above it. "
        "Purpose: start, before there was a model; improve, to find a lower structure; explore, to "
        "learn about what is unlike the known ones. Click a point to see its structure; drag a "
        "rectangle to zoom in, double-click to zoom out.",
    )  # fmt: skip


def expectations(goal: Goal) -> Section:
    """What was expected, and what came."""
    over_time = parts.plot(
        NAME,
        [
            parts.zone(-2, 2), parts.zone(-1, 1, "within 1 and 2 σ"),
            parts.points("number", "z"), parts.line("number", "z", "rms of the last 20", "rms"),
        ],
        title="Surprises",
        x=parts.axis("evaluation"),
        y=parts.axis("(E − expected) / σ", robust=True),
        colors=["purpose"],
        caption="The engine's answer against what the model expected at the time, in units of its "
        "error bar. Honest error bars keep the line near 1.",
    )  # fmt: skip
    parity = parts.plot(
        NAME,
        [parts.diagonal(), parts.points("value", "expected", error="std")],
        title="Expected and answered",
        x=parts.axis(
            f"by the engine: {_difference(goal)} ({goal.unit})", relative="value", robust=True
        ),
        y=parts.axis(f"expected ± σ ({goal.unit})", relative="value", robust=True),
        colors=["number"],
        square=True,
        caption="Expected energies with their error bars, as the search went.",
    )
    return parts.side_by_side(over_time, parity)


def landscape() -> Section:
    """The map."""
    return parts.plot(
        NAME,
        [parts.points("map_x", "map_y")],
        title="Map of the structures",
        x=parts.axis("first principal component", robust=True),
        y=parts.axis("second", robust=True),
        colors=["value", "number", "generator"],
        caption="Two principal components of the mean features of the atoms: structures that are "
        "alike lie close together.",
    )


def spent(records: Sequence[Record], steps: Sequence[PolishStep], goal: Goal) -> Section:
    """Where the time went, and what the generators did."""
    times = {
        "engine": sum(r.engine_seconds for r in records),
        "surrogate": sum(r.surrogate_seconds for r in records),
        "relaxing the lowest": sum(s.engine_seconds for s in steps),
    }
    total = sum(times.values())
    items = [
        (name, t, f"{duration(t)} ({t / total:.0%})" if total else duration(t))
        for name, t in times.items()
        if t or name != "relaxing the lowest"
    ]
    bars = parts.bars(items, title="Where the time went")
    made = shares(records, improvements(records, goal), None)
    rows = [[one.name.replace("_", " "), one.chosen, one.best] for one in made]
    makers = parts.table(
        ["made by", "evaluated", "lower than all before"], rows, title="Where structures came from",
        empty="Nothing was evaluated yet.",
    )  # fmt: skip
    return parts.side_by_side(bars, makers)


def failed(records: Sequence[Record], steps: Sequence[PolishStep], rows: Sequence[int]) -> Section:
    """Failures and their reasons."""
    lines: list[list[Any]] = []
    structures: list[int | None] = []
    for record, row in zip(records, rows, strict=True):
        if not record.ok:
            reason = " ".join(record.reason.split())
            maker = record.generator.replace("_", " ")
            lines.append([record.iteration + 1, maker, record.failure, reason])
            structures.append(row)
    for step in steps:
        if not step.ok:
            where = f"relaxing {step.start + 1}"
            lines.append([where, "", step.failure, " ".join(step.reason.split())])
            structures.append(None)
    return parts.table(
        ["evaluation", "made by", "failure", "reason"], lines, title="Failures",
        structures=structures, empty="No evaluation failed.",
    )  # fmt: skip


def state_words(state: State, done: int, budget: int) -> tuple[str, str]:
    """The badge, and what stands below the title."""
    if state.doing == "running":
        flying = f", {state.in_flight} in flight" if state.in_flight > 1 else ""
        return "running", f"{done} of {budget} evaluations{flying}"
    if state.doing == "stopped":
        why = state.reason or "no process works on it here"
        return "stopped", f"{done} of {budget} evaluations, {why}"
    return state.doing, f"{done} of {budget} evaluations, {state.reason}"
