"""Formation enthalpies and the convex hull of two or three elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nugget.errors import NuggetError
from nugget.report.style import COLUMN, Theme, drawing, finish

#: Elements that a figure can show.
DRAWN = (2, 3)


def hull_figure(phases: Sequence[Mapping[str, Any]], title: str = "", dark: bool = False) -> Figure:
    """The phases (rows of hull.json): stable ones on the hull, others above it."""
    elements = list(phases[0]["composition"]) if phases else []
    if len(elements) not in DRAWN:
        raise NuggetError(
            f"A hull of {len(elements)} elements cannot be drawn, one of 2 or 3 can; hull.json "
            "has all numbers."
        )
    with drawing(dark) as theme:
        binary = len(elements) == 2
        figure = Figure(figsize=(1.3 * COLUMN, 3.0 if binary else 3.8), layout="constrained")
        draw = _line if binary else _triangle
        draw(figure.subplots(), phases, elements, theme)
        if title:
            figure.suptitle(title, fontsize=9)
        return finish(figure)


def _line(
    axes: Axes, phases: Sequence[Mapping[str, Any]], elements: list[str], theme: Theme
) -> None:
    second = elements[1]
    x = np.array([phase["composition"][second] for phase in phases])
    y = 1e3 * np.array([phase["formation"] for phase in phases])
    on = np.array([phase["stable"] for phase in phases])
    order = np.argsort(x[on])
    axes.axhline(0.0, color=theme.soft, linewidth=0.8)
    axes.plot(x[on][order], y[on][order], "-o", color=theme.colour(0), label="stable")
    axes.plot(x[~on], y[~on], "s", color=theme.colour(1), mfc="none", ms=3.5, label="others")
    for phase, a, b in zip(phases, x, y, strict=True):
        if phase["stable"]:
            axes.annotate(
                phase["formula"], (a, b), (0, -11), textcoords="offset points", ha="center",
                fontsize=7.5,
            )  # fmt: skip
    axes.margins(y=0.15)
    axes.set_xlabel(f"share of {second}")
    axes.set_ylabel("formation enthalpy, meV/atom")
    axes.legend()


def _triangle(
    axes: Axes, phases: Sequence[Mapping[str, Any]], elements: list[str], theme: Theme
) -> None:
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    points = np.array([[phase["composition"][e] for e in elements] for phase in phases]) @ corners
    above = 1e3 * np.array([phase["above_hull"] for phase in phases])
    on = np.array([phase["stable"] for phase in phases])
    axes.plot(*corners[[0, 1, 2, 0]].T, color=theme.soft, linewidth=0.8)
    x, y = points.T
    shown = axes.scatter(x, y, np.where(on, 60, 22), above, cmap="viridis_r", zorder=2)
    for phase, point in zip(phases, points, strict=True):
        if phase["stable"]:
            axes.annotate(phase["formula"], tuple(point), (5, 4), textcoords="offset points",
                          fontsize=8)  # fmt: skip
    axes.figure.colorbar(shown, ax=axes, label="above the hull, meV/atom (stable: large)")
    axes.set_aspect("equal")
    axes.axis("off")
