"""A learning curve as a figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from matplotlib.figure import Figure

if TYPE_CHECKING:
    from nugget.calibration.learning import CurvePoint


def learning_figure(points: Sequence[CurvePoint]) -> Figure:
    """Errors of energies and forces against the number of structures, both logarithmic."""
    panels = [("energy_mae", "energy MAE, meV/atom", 1e3)]
    if all(point.force_mae for point in points):
        panels.append(("force_mae", "force MAE, eV/Å", 1.0))
    figure = Figure(figsize=(4.2 * len(panels), 3.4), layout="constrained")
    for k, (name, label, factor) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), k + 1)
        x = [point.structures for point in points]
        values = [[factor * v for v in getattr(point, name)] for point in points]
        axes.plot(x, [sum(v) / len(v) for v in values], "o-", color="#1f4e79")
        axes.fill_between(x, [min(v) for v in values], [max(v) for v in values], alpha=0.2)
        axes.set(xscale="log", yscale="log", xlabel="training structures", ylabel=label)
        axes.set_xticks(x, [str(n) for n in x])
        axes.minorticks_off()
    return figure
