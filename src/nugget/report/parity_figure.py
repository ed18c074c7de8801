"""Predictions against labels: energies per atom, and force and stress components."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

if TYPE_CHECKING:
    from nugget._compiled.arrays import Floats
    from nugget.calibration import Components, Residuals

_POINTS = 5000  # more dots than this are only larger files


def parity_figure(energies: Residuals, parts: Mapping[str, Components]) -> Figure:
    """One panel per kind of label, with the diagonal and the mean absolute error."""
    panels: list[tuple[Floats, Floats, str, str]] = [
        (energies.y_true, energies.y_pred, "energy, eV/atom", "eV/atom")
    ]
    units = {"force": "eV/Å", "stress": "eV/Å³"}
    for kind, part in parts.items():
        panels.append((part.y_true, part.y_pred, f"{kind}, {units[kind]}", units[kind]))
    figure = Figure(figsize=(3.8 * len(panels), 3.6), layout="constrained")
    for k, (true, predicted, name, unit) in enumerate(panels):
        axes = figure.add_subplot(1, len(panels), k + 1)
        step = -(-len(true) // _POINTS)
        axes.plot(true[::step], predicted[::step], ".", ms=3, alpha=0.5, color="#1f4e79")
        ends = [min(true.min(), predicted.min()), max(true.max(), predicted.max())]
        axes.plot(ends, ends, color="#999999", lw=0.8)
        mae = float(np.mean(np.abs(true - predicted)))
        axes.set(xlabel=f"label: {name}", ylabel="prediction", title=f"MAE {mae:.3g} {unit}")
    return figure
