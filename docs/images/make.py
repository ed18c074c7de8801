"""The pictures of the tutorials, from the directories in which their pages were run.

python tests/docs/doc_pages.py docs/tutorials/first_search.md PAGES/first_search
... (one directory per page, named like the page)
python docs/images/make.py PAGES
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from ase import Atoms
from ase.db import connect
from ase.io import read
from ase.visualize.plot import plot_atoms
from matplotlib.axes import Axes
from matplotlib.figure import Figure

HERE = Path(__file__).parent
GOLD, BLUE, GREY = "#c8920f", "#2a6fbb", "0.55"
COLOURS = {"Au": "#e3b341", "Cu": "#c4713b", "Si": "#7d93ad", "Mg": "#5aa05a", "O": "#c23b3b"}
COLOURS["Al"] = "#b5bcc6"


def canvas(*widths: float, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(
        1,
        len(widths),
        figsize=(sum(widths), height),
        layout="constrained",
        width_ratios=widths,
        squeeze=False,
    )
    return figure, list(axes[0])


def save(figure: Figure, name: str) -> None:
    figure.savefig(HERE / f"{name}.png", dpi=110)
    plt.close(figure)
    print(f"Written: {HERE / name}.png")


def atoms_on(axis: Axes, atoms: Atoms, rotation: str, title: str, size: float = 1.15) -> None:
    colours = [COLOURS.get(symbol, "0.7") for symbol in atoms.symbols]
    plot_atoms(atoms, axis, rotation=rotation, colors=colours, radii=size * covalent(atoms))
    axis.set_axis_off()
    axis.set_title(title, fontsize=9)


def covalent(atoms: Atoms) -> np.ndarray:
    from ase.data import covalent_radii

    return covalent_radii[atoms.numbers]


def evaluations(run: Path) -> list[Any]:
    """The evaluations of the budget that succeeded; those of the polish have no purpose."""
    return [row for row in connect(run / "search.db").select("purpose") if not row.get("failed")]


def energies_on(axis: Axes, run: Path, colour: str = GOLD, label: str = "", per: int = 1) -> None:
    """Energies of the evaluations above the lowest of them, and the best so far."""
    rows = evaluations(run)
    value = np.array([row.energy / (row.natoms if per else 1) for row in rows])
    number = np.arange(1, len(value) + 1)
    axis.plot(number, value, "o", color=colour, ms=4, alpha=0.55)
    axis.step(number, np.minimum.accumulate(value), where="post", color=colour, label=label or None)
    axis.set(xlabel="evaluation", ylabel="energy, eV/atom" if per else "energy, eV")


def search(pages: Path) -> None:
    run = pages / "first_search" / "au13"
    rows = evaluations(run)
    figure, (left, *structures) = canvas(3.6, 1.5, 1.5, 1.5, height=2.7)
    energies_on(left, run, per=0)
    known = [row for row in rows if row.get("std") is not None]
    left.errorbar(
        [row.iteration + 1 for row in known],
        [row.predicted for row in known],
        [2 * row.std * row.scale for row in known],
        fmt="_",
        color=BLUE,
        lw=1,
        label="prediction ± 2σ",
    )
    best = read(run / "best.extxyz")
    left.axhline(best.get_potential_energy(), color=GREY, lw=0.8, ls=":", label="best, relaxed")
    left.set_ylim(best.get_potential_energy() - 0.8, max(row.energy for row in rows) + 0.3)
    left.legend(frameon=False, fontsize=8)
    best_so_far = min(rows[: len(rows) // 2], key=lambda row: row.energy)
    shown = (
        (rows[0].toatoms(), f"first, {rows[0].energy:.2f} eV"),
        (best_so_far.toatoms(), f"evaluation {best_so_far.iteration + 1}"),
        (best, f"best, {best.get_potential_energy():.3f} eV"),
    )
    for axis, (atoms, title) in zip(structures, shown, strict=True):
        atoms_on(axis, atoms, "20x,30y,0z", title)
    save(figure, "search_au13")


def adsorbate(pages: Path) -> None:
    run = pages / "adsorbate" / "adsorbate"
    best = read(run / "best.extxyz")
    best.symbols[-3:] = "Au"  # another colour for the atoms that were placed
    figure, (left, right) = canvas(3.2, 3.2)
    energies_on(left, run, per=0)
    best = best.repeat((2, 2, 1))
    atoms_on(right, best, "0x,0y,0z", "from above, four cells; placed atoms yellow")
    save(figure, "adsorbate")


def alloy(pages: Path) -> None:
    run = pages / "alloy" / "alloy"
    best = read(run / "best.extxyz")
    figure, (left, right) = canvas(3.4, 2.4)
    energies_on(left, run, per=0)
    atoms_on(right, best, "20x,30y,0z", f"{best.get_potential_energy():.4f} eV")
    save(figure, "alloy")


def crystal(pages: Path) -> None:
    run = pages / "crystal" / "silicon"
    best = read(run / "best.extxyz")
    figure, (left, right) = canvas(3.4, 2.6)
    energies_on(left, run)
    title = f"{best.get_potential_energy() / len(best):.4f} eV/atom"
    atoms_on(right, best.repeat(2), "-85x,8y,0z", title, size=0.5)
    save(figure, "crystal")


def dynamics(pages: Path) -> None:
    frames = read(pages / "dynamics" / "md" / "md.extxyz", ":")
    step = 20 * np.arange(len(frames)) * 2 / 1000
    largest = [atoms.arrays["forces_uncertainty"].max() for atoms in frames]
    figure, (left, right) = canvas(3.0, 3.0, height=2.5)
    left.plot(step, [atoms.get_temperature() for atoms in frames], color=GOLD)
    left.set(xlabel="time, ps", ylabel="temperature, K")
    right.plot(step, largest, color=BLUE)
    right.axhline(0.1, color=GREY, ls=":", lw=1, label="--max-force-error")
    right.set(xlabel="time, ps", ylabel="largest σ of a force, eV/Å", ylim=(0, 0.12))
    right.legend(frameon=False, fontsize=8)
    save(figure, "dynamics")


def baseline(pages: Path) -> None:
    figure, (left,) = canvas(4.2)
    for name, colour in (("without", BLUE), ("with", GOLD)):
        energies_on(left, pages / "baseline" / name, colour, f"{name} the mean function", per=0)
    left.legend(frameon=False)
    save(figure, "baseline")


def copied(pages: Path) -> None:
    """Figures that the commands make themselves, smaller."""
    for source, name, width in (
        ("fit_a_model/figures/calibration.png", "calibration", 900),
        ("campaign/kappas/success.png", "campaign", 800),
        ("barrier/path/path.png", "barrier", 500),
    ):
        if (pages / source).exists():
            image = plt.imread(pages / source)
            figure = plt.figure(figsize=(width / 100, width / 100 * len(image) / image.shape[1]))
            figure.figimage(image, resize=False) if image.shape[1] <= width else _scaled(
                figure, image
            )
            figure.savefig(HERE / f"{name}.png", dpi=100)
            plt.close(figure)
            print(f"Written: {HERE / name}.png")


def _scaled(figure: Figure, image: np.ndarray) -> None:
    axis = figure.add_axes((0, 0, 1, 1))
    axis.imshow(image, interpolation="antialiased", aspect="auto")
    axis.set_axis_off()


def main() -> None:
    pages = Path(sys.argv[1])
    for draw, page in (
        (search, "first_search"),
        (adsorbate, "adsorbate"),
        (alloy, "alloy"),
        (crystal, "crystal"),
        (dynamics, "dynamics"),
        (baseline, "baseline"),
    ):
        if (pages / page).exists():
            draw(pages)
    copied(pages)


if __name__ == "__main__":
    main()
