"""The figure of a path: energies of the model with their σ, and the engine's at the saddle."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from nugget.onthefly.neb import NEBResult
from nugget.report.style import COLUMN, drawing, finish
from nugget.structures.files import replacing


def draw_path(result: NEBResult, path: Path) -> None:
    """Energy along the path, from the start's, as a PNG."""
    band = result.band
    zero = result.start.get_potential_energy()
    steps = [
        float(np.linalg.norm(b.positions - a.positions))
        for a, b in zip(band.images[:-1], band.images[1:], strict=True)
    ]
    length = np.concatenate([[0.0], np.cumsum(steps)])
    with drawing() as theme:
        figure = Figure(figsize=(COLUMN, 2.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        energy, blue = band.energy - zero, theme.colour(0)
        axes.plot(length, energy, "o-", color=blue, label="model, ± σ")
        low, high = energy - band.energy_std, energy + band.energy_std
        axes.fill_between(length, low, high, alpha=0.2, color=blue, lw=0)
        ends = [0.0, result.reaction_energy]
        axes.plot(length[[0, -1]], ends, "s", color=theme.ink, label="engine")
        if result.saddle is not None:
            axes.plot(length[result.saddle.image], result.barrier, "s", color=theme.ink)
            axes.set_title(
                f"barrier {result.barrier:.3f} ± {result.error:.3f} eV, {result.calls} calls"
            )
        axes.set(xlabel="length of the path, Å", ylabel="energy, eV")
        axes.legend()
        finish(figure)
        with replacing(path) as partial:
            figure.savefig(partial, dpi=200, format="png")
