"""A page with searches side by side: best energies, curves over each other, what differs."""

from __future__ import annotations

import numpy as np

from nugget import __version__
from nugget._compiled.arrays import Floats
from nugget.report.courses import CLOSE, Comparison, Course, letter
from nugget.report.digest import duration
from nugget.report.page import Data, Structures, column, page, sections
from nugget.report.page.sections import Section
from nugget.report.search_page.minima import symmetry

_DIGITS = (None, 4, 4, None, 0, 0, 0, 0, None)  # of the columns of the first table


def compare_page(found: Comparison) -> str:
    """The page as HTML."""
    structures = Structures()
    numbers = [_add(found, k, structures) for k in range(len(found.courses))]
    formulas = dict.fromkeys(course.config.system.formula for course in found.courses)
    engines = dict.fromkeys(course.config.engine.name for course in found.courses)
    parts = [
        *([] if found.comparable else [_warning()]),
        _table(found, numbers),
        _curves(found),
        _spent(found),
        _gallery(found, numbers),
        _settings(found),
    ]
    return page(
        " and ".join(formulas), parts, structures=structures, data=[_data(found, numbers)],
        subtitle=f"{len(found.courses)} searches compared, {', '.join(engines)}",
        footer=f"nugget {__version__}",
    )  # fmt: skip


def _warning() -> Section:
    return sections.text(
        "These searches differ in system, pressure or engine, or have a convex hull each: their "
        "energies cannot be compared."
    )


def _add(found: Comparison, k: int, structures: Structures) -> int | None:
    best = found.courses[k].best
    if best is None:
        return None
    energy = float(best.atoms.calc.results["energy"])
    return structures.add(best.atoms, f"lowest of {found.names[k]}", {}, energy)


def _data(found: Comparison, numbers: list[int | None]) -> Data:
    rows = found.rows()
    unit = found.courses[0].goal.unit
    columns = {
        "run": column(found.names, "search"),
        "best": column([row["best"] for row in rows], "lowest", unit, 4),
        "above": column([row["above_lowest"] for row in rows], "above the lowest", unit, 4),
        "to_best": column([row["evaluations_to_best"] for row in rows], "evaluations to it"),
        "structure": column([row["structure"] for row in rows], "structure"),
    }
    return Data("searches", columns, numbers)


def _table(found: Comparison, numbers: list[int | None]) -> Section:
    unit = found.courses[0].goal.unit
    heads = [
        "search", f"lowest, {unit}", f"above the lowest of all, {unit}", "structure",
        "evaluations to it", f"to within {CLOSE} {unit} of the lowest", "evaluations", "failed",
        "state",
    ]  # fmt: skip
    rows = [
        [
            row["run"], row["best"], row["above_lowest"], row["structure"],
            row["evaluations_to_best"], row["evaluations_to_lowest"], row["evaluations"],
            row["failures"], row["state"],
        ]
        for row in found.rows()
    ]  # fmt: skip
    return sections.table(
        heads, rows, title="Lowest energies", structures=numbers, digits=_DIGITS,
        caption="The same letter: the same structure, by its bonds (crystals: whatever the cell) "
        f"and within {CLOSE} {unit}. A click on a row shows it.",
    )  # fmt: skip


def _curves(found: Comparison) -> Section:
    low = found.lowest or 0.0
    unit = found.courses[0].goal.unit
    curves, early = [], [CLOSE]
    for name, course in zip(found.names, found.courses, strict=True):
        x, y = _steps(course, low)
        if len(x):
            curves.append(sections.curve(name, x.tolist(), y.tolist(), steps=True))
            early.append(float(y[len(y) // 10]))
    return sections.plot(
        "", curves, title="Best so far", x=sections.axis("evaluations"),
        y=sections.axis(f"above the lowest of all, {unit}", limits=(0, 1.2 * max(early))),
        caption="As evaluated; what relaxing the lowest with the engine gained is in the table.",
    )  # fmt: skip


def _steps(course: Course, low: float) -> tuple[Floats, Floats]:
    y = course.best_so_far - low
    there = np.isfinite(y)
    return np.arange(1, len(y) + 1, dtype=float)[there], y[there]


def _spent(found: Comparison) -> Section:
    items = []
    for name, course in zip(found.names, found.courses, strict=True):
        seconds = course.engine_seconds + course.surrogate_seconds
        share = course.engine_seconds / seconds if seconds else 0.0
        items.append((name, seconds, f"{duration(seconds)}, {share:.0%} engine"))
    return sections.bars(items, title="Time")


def _gallery(found: Comparison, numbers: list[int | None]) -> Section:
    """One structure of each kind, the lowest first."""
    items, seen = [], set()
    order = sorted(
        (k for k, kind in enumerate(found.kinds) if kind is not None),
        key=lambda k: (found.kinds[k], found.courses[k].best.value),  # type: ignore[union-attr]
    )
    for k in order:
        kind, number, best = found.kinds[k], numbers[k], found.courses[k].best
        if kind is None or kind in seen or number is None or best is None:
            continue
        seen.add(kind)
        own = [n for n, other in zip(found.names, found.kinds, strict=True) if other == kind]
        facts = [("lowest", f"{best.value:.4f} {found.courses[k].goal.unit}")]
        name, symbol = symmetry(best.atoms)
        facts += [(name, symbol)] if symbol else []
        facts.append(("found by", ", ".join(own)))
        items.append(sections.item(number, f"Structure {letter(kind)}", facts))
    return sections.gallery(items, title="Structures", empty="No search has found one yet.")


def _settings(found: Comparison) -> Section:
    rows = [[name, *values] for name, values in found.differing.items()]
    return sections.table(
        ["setting", *found.names], rows, title="Settings that differ", empty="None: all are alike."
    )
