"""The figure of a path: energies of the model with their σ, and the engine's at the saddle."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from nugget.onthefly.neb import NEBResult
from nugget.structures.files import replacing


def draw_path(result: NEBResult, path: Path) -> None:
    """Energy along the path, from the start's, as a PNG."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    band = result.band
    zero = result.start.get_potential_energy()
    steps = [
        float(np.linalg.norm(b.positions - a.positions))
        for a, b in zip(band.images[:-1], band.images[1:], strict=True)
    ]
    length = np.concatenate([[0.0], np.cumsum(steps)])
    figure = Figure(figsize=(5.0, 3.5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    energy = band.energy - zero
    axes.plot(length, energy, "o-", color="C0", label="model")
    axes.fill_between(length, energy - band.energy_std, energy + band.energy_std, alpha=0.2)
    ends = [0.0, result.reaction_energy]
    axes.plot(length[[0, -1]], ends, "ks", label="engine")
    if result.saddle is not None:
        axes.plot(length[result.saddle.image], result.barrier, "ks")
        axes.set_title(
            f"barrier {result.barrier:.3f} ± {result.error:.3f} eV, {result.calls} calls"
        )
    axes.set_xlabel("length of the path, Å")
    axes.set_ylabel("energy, eV")
    axes.legend()
    with replacing(path) as partial:
        figure.savefig(partial, dpi=150, format="png")
