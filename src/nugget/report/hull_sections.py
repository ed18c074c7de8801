"""The convex hull of a search over compositions (`hull.json`): plot, table, phases in 3D."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.report.digest import fixed
from nugget.report.page import Data, Structures, column, sections
from nugget.report.page.sections import Section
from nugget.search.polish import HULL
from nugget.search.record import PolishStep, Record, lowest_steps
from nugget.structures.identity import conventional
from nugget.systems.goal import Goal, Hull

_GALLERY = 9
_KINDS: dict[str, type] = {"formula": str, "space_group": str, "start": int, "relaxed": bool}
_CORNERS = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])


def hull_parts(
    directory: Path,
    records: Sequence[Record],
    steps: Sequence[PolishStep],
    structures: Structures,
    goal: Goal,
    live: bool = False,
) -> tuple[list[Data], list[Section]]:
    """The columns and sections of the hull; none without one, and on live pages."""
    file = directory / HULL
    if live or not file.exists():
        return [], []
    phases = read_phases(file)
    numbers = [_add(phase, records, steps, structures, goal) for phase in phases]
    elements = list(phases[0]["composition"])
    columns = {
        "formula": column([p["formula"] for p in phases], "phase"),
        "formation": column([1e3 * p["formation"] for p in phases], "formation", "meV/atom", 1),
        "above": column([1e3 * p["above_hull"] for p in phases], "above the hull", "meV/atom", 1),
        "stable": column(["stable" if p["stable"] else "above" for p in phases], "on the hull"),
        "group": column([p["space_group"] for p in phases], "space group"),
        "relaxed": column(["yes" if p["relaxed"] else "no" for p in phases], "relaxed"),
    }
    parts: list[Section] = []
    if len(elements) == 2:
        shares = [p["composition"][elements[1]] for p in phases]
        columns["x"] = column(shares, f"share of {elements[1]}", "", 3)
        parts.append(_line(phases, elements[1]))
    elif len(elements) == 3:
        places = _shares(phases, elements) @ _CORNERS
        columns["x"] = column(places[:, 0].tolist(), shown=False)
        columns["y"] = column(places[:, 1].tolist(), shown=False)
        parts.append(_triangle(elements))
    parts += [_table(phases, numbers), _gallery(phases, numbers)]
    return [Data("phases", columns, numbers)], parts


def hull_so_far(hull: Hull) -> Section:
    """The stable compositions of a search that is still at work."""
    stable = hull.vertices() if hull.complete else []
    rows = [[hull.name(s), 1e3 * (hull.formation(s, hull.points[s]) or 0.0)] for s in stable]
    return sections.table(
        ["phase", "formation, meV/atom"], rows, title="On the convex hull so far", digits=(None, 1),
        empty="The hull needs an energy of every element.",
    )  # fmt: skip


def read_phases(file: Path) -> list[dict[str, Any]]:
    """The phases in hull.json."""
    try:
        phases = json.loads(file.read_text(encoding="utf-8"))["phases"]
        for phase in phases:
            numbers = [phase["formation"], phase["above_hull"], *phase["composition"].values()]
            if not np.isfinite(np.array(numbers, dtype=float)).all():
                raise ValueError("numbers are missing")
            for name, kind in _KINDS.items():
                phase[name] = kind(phase[name])
        if not phases or len({tuple(phase["composition"]) for phase in phases}) > 1:
            raise ValueError("no phases of the same elements")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NuggetError(
            f"{file} is damaged ({error}); remove it, and the search writes it again at its end."
        ) from None
    return list(phases)


def _add(
    phase: Mapping[str, Any],
    records: Sequence[Record],
    steps: Sequence[PolishStep],
    structures: Structures,
    goal: Goal,
) -> int | None:
    """The conventional cell of a phase; None if it comes from another search."""
    relaxed = lowest_steps(steps, goal) if phase["relaxed"] else {}
    atoms = relaxed.get(phase["start"])
    if atoms is None:
        atoms = next((r.atoms for r in records if r.iteration == phase["start"] and r.ok), None)
    return None if atoms is None else structures.add(conventional(atoms), phase["formula"])


def _shares(phases: Sequence[Mapping[str, Any]], elements: Sequence[str]) -> Floats:
    return np.array([[p["composition"][e] for e in elements] for p in phases], dtype=float)


def _line(phases: Sequence[Mapping[str, Any]], element: str) -> Section:
    stable = sorted(
        (p["composition"][element], 1e3 * p["formation"]) for p in phases if p["stable"]
    )
    hull = sections.curve("convex hull", [x for x, _ in stable], [y for _, y in stable])
    return sections.plot(
        "phases", [hull, sections.points("x", "formation")], title="Convex hull",
        x=sections.axis(f"share of {element}", limits=(-0.03, 1.03)), colors=["stable", "above"],
        y=sections.axis("formation enthalpy, meV/atom", limits=_limits(phases)),
        caption="The lowest crystal of each composition. Phases on the hull are stable against "
        "decomposition. Click a point to see the crystal.",
    )  # fmt: skip


def _limits(phases: Sequence[Mapping[str, Any]]) -> tuple[float, float]:
    """Limits of the axis; crystals far above the hull are drawn at the edge."""
    formation = 1e3 * np.array([phase["formation"] for phase in phases])
    ceiling = max(30.0, -5 * formation.min(), 3 * float(np.median(np.abs(formation))))
    high, low = min(1.1 * max(formation.max(), 5.0), ceiling), formation.min()
    return float(low - 0.08 * (high - low)), float(high)


def _triangle(elements: Sequence[str]) -> Section:
    around = _CORNERS[[0, 1, 2, 0]]
    edge = sections.curve(" – ".join(elements), around[:, 0].tolist(), around[:, 1].tolist())
    return sections.plot(
        "phases", [edge, sections.points("x", "y")], title="Convex hull", square=True,
        x=sections.axis("", limits=(-0.05, 1.05)), y=sections.axis("", limits=(-0.1, 1.0)),
        colors=["stable", "above", "formation"],
        caption=f"Corners: {elements[0]} left, {elements[1]} right, {elements[2]} at the top. "
        "Click a point to see the crystal.",
    )  # fmt: skip


def _table(phases: Sequence[Mapping[str, Any]], numbers: Sequence[int | None]) -> Section:
    heads = ["phase", "formation, meV/atom", "above the hull, meV/atom"]
    heads += ["space group", "atoms", "relaxed"]
    order = sorted(range(len(phases)), key=lambda k: phases[k]["above_hull"])
    rows = []
    for phase in (phases[k] for k in order):
        energies = [1e3 * phase["formation"], 1e3 * phase["above_hull"]]
        relaxed = "yes" if phase["relaxed"] else "no"
        rows.append([phase["formula"], *energies, phase["space_group"], phase["atoms"], relaxed])
    shown, digits = [numbers[k] for k in order], (None, 1, 1, None, 0, None)
    return sections.table(heads, rows, title="Phases", structures=shown, digits=digits)


def _gallery(phases: Sequence[Mapping[str, Any]], numbers: Sequence[int | None]) -> Section:
    items: list[Section] = []
    for phase, number in zip(phases, numbers, strict=True):
        if phase["stable"] and number is not None and len(items) < _GALLERY:
            facts = [
                ("formation", f"{fixed(1e3 * phase['formation'], 1)} meV/atom"),
                ("space group", phase["space_group"]),
            ]
            items.append(sections.item(number, phase["formula"], facts))
    return sections.gallery(items, title="Stable phases", empty="None of this search.")
