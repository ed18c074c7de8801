"""A learning curve as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

from nugget.report.style import COLUMN, drawing, finish

if TYPE_CHECKING:
    from nugget.calibration.learning import CurvePoint


def learning_figure(points: Sequence[CurvePoint], dark: bool = False) -> Figure:
    """Errors of energies and forces against the number of structures, both logarithmic."""
    panels = [("energy_mae", "energy MAE, meV/atom", 1e3)]
    if all(point.force_mae for point in points):
        panels.append(("force_mae", "force MAE, eV/Å", 1.0))
    x = [point.structures for point in points]
    with drawing(dark) as theme:
        figure = Figure(figsize=(COLUMN * len(panels), 2.6), layout="constrained")
        axes = list(figure.subplots(1, len(panels), squeeze=False).ravel())
        for k, (panel, (name, label, factor)) in enumerate(zip(axes, panels, strict=True)):
            values = [[factor * v for v in getattr(point, name)] for point in points]
            colour = theme.colour(k)
            panel.plot(x, [sum(v) / len(v) for v in values], "o-", color=colour)
            low, high = [min(v) for v in values], [max(v) for v in values]
            panel.fill_between(x, low, high, alpha=0.2, color=colour, lw=0)
            panel.set(xscale="log", yscale="log", xlabel="training structures", ylabel=label)
            panel.set_xticks(x, [str(n) for n in x])
            panel.minorticks_off()
        return finish(figure, axes)
