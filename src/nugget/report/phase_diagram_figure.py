"""The phase diagram as a Matplotlib figure: lines of Ω, a map over two potentials, or (T, p)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.report.phase_diagram_sections import envelope_from, omega_lines
from nugget.report.style import COLUMN, Theme, drawing, finish
from nugget.systems.grand_potential import formation, stable_on

#: Numbers of chemical potentials that can be drawn.
DRAWN = (1, 2)

_POINTS = 161  # of a map, per axis


def diagram_figure(diagram: Mapping[str, Any], title: str = "", dark: bool = False) -> Figure:
    """The contents of phase_diagram.json; a second panel shows temperature and pressure."""
    elements = diagram["elements"]
    if len(elements) not in DRAWN:
        raise NuggetError(
            f"Only diagrams of one or two chemical potentials can be drawn, not of "
            f"{len(elements)}; see phase_diagram.json for the numbers."
        )
    with drawing(dark) as theme:
        panels = 1 if diagram["conditions"] is None else 2
        figure = Figure(figsize=(1.2 * COLUMN * panels, 3.2), layout="constrained")
        axes = list(np.atleast_1d(figure.subplots(1, panels)))
        draw = _draw_lines if len(elements) == 1 else _draw_map
        draw(axes[0], diagram, theme)
        if panels == 2:
            _draw_conditions(axes[1], diagram["conditions"], diagram["stable"], theme)
        if title:
            figure.suptitle(title, fontsize=9)
        return finish(figure, axes if panels > 1 else ())


def _label(diagram: Mapping[str, Any], element: str) -> str:
    return f"Δμ({element}) relative to {diagram['reservoirs'][element]}, eV"


def _draw_lines(axes: Axes, diagram: Mapping[str, Any], theme: Theme) -> None:
    """Ω of the stable phases, with the 90 % intervals of the boundaries as bands."""
    delta, lines = omega_lines(diagram)
    lowest = np.min([line for _, _, line in lines], axis=0)
    for one in diagram["boundaries"]:
        if one["low"] is not None and one["high"] > one["low"]:
            axes.axvspan(one["low"], one["high"], color=theme.soft, alpha=0.25, linewidth=0)
    chosen = [(name, line) for name, stable, line in lines if stable]
    for k, (name, line) in enumerate(chosen):
        axes.plot(delta, line, color=theme.colour(k), label=name)
    axes.set_ylim(float(lowest.min()) - 0.1, max(float(lowest.max()), 0.0) + 0.6)
    axes.set_xlim(delta[0], delta[-1])
    axes.set_xlabel(_label(diagram, diagram["elements"][0]))
    axes.set_ylabel("Ω, eV")
    axes.legend()


def _draw_map(axes: Axes, diagram: Mapping[str, Any], theme: Theme) -> None:
    """The stable phase over two chemical potentials."""
    names, envelope = envelope_from(diagram)
    x, y = (
        np.linspace(a, b, _POINTS) for a, b in zip(envelope.lowest, envelope.highest, strict=True)
    )
    points = np.stack([one.ravel() for one in np.meshgrid(x, y)], axis=-1)
    counts = np.array(list(envelope.points))
    energies = formation(envelope, list(envelope.points), np.array(list(envelope.points.values())))
    stable = stable_on(points, counts, energies[None])[0].reshape(len(y), len(x))
    _draw_regions(axes, x, y, stable, names, theme)
    axes.set_xlabel(_label(diagram, diagram["elements"][0]))
    axes.set_ylabel(_label(diagram, diagram["elements"][1]))


def _draw_conditions(
    axes: Axes, conditions: Mapping[str, Any], names: Sequence[str], theme: Theme
) -> None:
    index = {name: k for k, name in enumerate(names)}
    stable = np.array([[index[name] for name in row] for row in conditions["stable"]])
    temperatures, pressures = (np.array(conditions[n]) for n in ("temperatures", "pressures"))
    _draw_regions(axes, temperatures, np.log10(pressures), stable, list(names), theme)
    axes.set_xlabel("temperature, K")
    axes.set_ylabel(f"log₁₀ p({conditions['gas']})/bar")


def _draw_regions(
    axes: Axes, x: Floats, y: Floats, stable: Ints, names: Sequence[str], theme: Theme
) -> None:
    """Coloured regions with the names of their phases."""
    present = np.unique(stable)
    colours = ListedColormap([theme.colour(k) for k in range(len(present))])
    shown = np.searchsorted(present, stable)
    axes.pcolormesh(x, y, shown, cmap=colours, vmin=-0.5, vmax=len(present) - 0.5, alpha=0.45)
    for k, phase in enumerate(present):
        rows, columns = np.nonzero(shown == k)
        middle = int(np.argsort(rows)[len(rows) // 2])
        row = rows[middle]
        own = columns[rows == row]
        axes.text(x[own[len(own) // 2]], y[row], names[phase], ha="center", va="center", fontsize=8)
