"""The convex hull at the end of a search over compositions: table and figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nugget.cli._common import table
from nugget.report.hull_figure import DRAWN, hull_figure
from nugget.search.phases import FIGURE
from nugget.structures.files import replacing

_SHOWN = 12  # phases in the table at the end, at the least the stable ones


def draw_hull(report: dict[str, Any]) -> None:
    """hull.png beside hull.json, of two or three elements; the report says where."""
    phases = report["phases"]
    if phases and len(phases[0]["composition"]) in DRAWN:
        path = Path(report["directory"]) / FIGURE
        with replacing(path) as partial:
            title = f"{report['formula']}, {report['engine']}"
            hull_figure(phases, title).savefig(partial, format="png", dpi=160)
        report["hull_figure"] = str(path)


def show_hull(report: dict[str, Any]) -> None:
    """The stable phases, and the others closest to the hull."""
    phases = sorted(report["phases"], key=lambda phase: phase["above_hull"])
    shown = {id(p) for p in phases if p["stable"]} | {id(p) for p in phases[:_SHOWN]}
    rows = [
        [
            phase["formula"],
            f"{1e3 * phase['formation']:.1f}",
            "stable" if phase["stable"] else f"+{1e3 * phase['above_hull']:.1f}",
            phase["space_group"],
            phase["atoms"],
            "yes" if phase["relaxed"] else "no",
        ]
        for phase in report["phases"]
        if id(phase) in shown
    ]
    columns = ["phase", "formation, meV/atom", "above the hull", "space group", "atoms", "relaxed"]
    table("Convex hull", columns, rows)
