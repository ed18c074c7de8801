"""Predictions against labels: energies per atom, and force and stress components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from nugget.report.style import COLUMN, PAGE, drawing, finish

if TYPE_CHECKING:
    from nugget._compiled.arrays import Floats
    from nugget.calibration import Components, Residuals

_POINTS = 5000  # more dots than this are only larger files


def parity_figure(
    energies: Residuals, parts: Mapping[str, Components], dark: bool = False
) -> Figure:
    """One panel per kind of label, with the diagonal and the mean absolute error."""
    panels: list[tuple[Floats, Floats, str, str]] = [
        (energies.y_true, energies.y_pred, "energy, eV/atom", "eV/atom")
    ]
    units = {"force": "eV/Å", "stress": "eV/Å³"}
    for kind, part in parts.items():
        panels.append((part.y_true, part.y_pred, f"{kind}, {units[kind]}", units[kind]))
    with drawing(dark) as theme:
        width = COLUMN if len(panels) == 1 else PAGE
        figure = Figure(figsize=(width, width / max(len(panels), 1.1)), layout="constrained")
        axes = list(figure.subplots(1, len(panels), squeeze=False).ravel())
        for k, (panel, (true, predicted, name, unit)) in enumerate(zip(axes, panels, strict=True)):
            step = -(-len(true) // _POINTS)
            panel.plot(
                true[::step], predicted[::step], ".", ms=3, alpha=0.5, mew=0, color=theme.colour(k)
            )
            ends = [min(true.min(), predicted.min()), max(true.max(), predicted.max())]
            panel.plot(ends, ends, color=theme.soft, lw=0.8, ls="--")
            mae = float(np.mean(np.abs(true - predicted)))
            panel.set(xlabel=f"label: {name}", title=f"MAE {mae:.3g} {unit}")
        axes[0].set_ylabel("prediction")
        return finish(figure, axes)
