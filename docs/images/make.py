"""The pictures of the tutorials, from the directories in which their pages were run.

python tests/docs/doc_pages.py docs/tutorials/first_search.md PAGES/first_search
... (one directory per page, named like the page)
python docs/images/make.py PAGES

Every figure is drawn for light pages and, with `_dark` in its name, for dark ones.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
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

from nugget import Potential
from nugget.report.style import Theme, drawing

HERE = Path(__file__).parent
ENDING = {False: "", True: "_dark"}
COLOURS = {"Au": "#e3b341", "Cu": "#c4713b", "Si": "#7d93ad", "Mg": "#5aa05a", "O": "#c23b3b"}
COLOURS["Al"] = "#b5bcc6"


def canvas(*widths: float, height: float = 3.0) -> tuple[Figure, list[Axes]]:
    figure, axes = plt.subplots(
        1,
        len(widths),
        figsize=(sum(widths), height),
        layout="constrained",
        width_ratios=widths,
        squeeze=False,
    )
    return figure, list(axes[0])


def save(figure: Figure, name: str, dark: bool = False) -> None:
    target = HERE / f"{name}{ENDING[dark]}.png"
    figure.savefig(target, dpi=150)
    plt.close(figure)
    print(f"Written: {target}")


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


def energies_on(axis: Axes, run: Path, colour: str, label: str = "", per: int = 1) -> None:
    """Energies of the evaluations above the lowest of them, and the best so far."""
    rows = evaluations(run)
    value = np.array([row.energy / (row.natoms if per else 1) for row in rows])
    number = np.arange(1, len(value) + 1)
    axis.plot(number, value, "o", color=colour, ms=4, alpha=0.55)
    axis.step(number, np.minimum.accumulate(value), where="post", color=colour, label=label or None)
    axis.set(xlabel="evaluation", ylabel="energy, eV/atom" if per else "energy, eV")


def search(pages: Path, theme: Theme) -> Figure:
    run = pages / "first_search" / "au13"
    rows = evaluations(run)
    figure, (left, *structures) = canvas(3.6, 1.5, 1.5, 1.5, height=2.7)
    energies_on(left, run, theme.colour(1), "evaluated", per=0)
    predicted = [row for row in rows if row.get("std") is not None]
    left.errorbar(
        [row.iteration + 1 for row in predicted],
        [row.predicted for row in predicted],
        [2 * row.std * row.scale for row in predicted],
        fmt="_",
        color=theme.colour(0),
        lw=1,
        label="prediction ± 2σ",
    )
    best = read(run / "best.extxyz")
    left.axhline(best.get_potential_energy(), color=theme.soft, lw=0.8, ls=":")
    left.set_ylim(best.get_potential_energy() - 0.8, 8.5)
    left.legend()
    best_so_far = min(rows[: len(rows) // 2], key=lambda row: row.energy)
    shown = (
        (rows[0].toatoms(), f"first, {rows[0].energy:.2f} eV"),
        (best_so_far.toatoms(), f"evaluation {best_so_far.iteration + 1}"),
        (best, f"best, {best.get_potential_energy():.3f} eV"),
    )
    for axis, (atoms, title) in zip(structures, shown, strict=True):
        atoms_on(axis, atoms, "20x,30y,0z", title)
    return figure


def adsorbate(pages: Path, theme: Theme) -> Figure:
    run = pages / "adsorbate" / "adsorbate"
    best = read(run / "best.extxyz")
    best.symbols[-3:] = "Au"  # another colour for the atoms that were placed
    figure, (left, right) = canvas(3.2, 3.2)
    energies_on(left, run, theme.colour(1), per=0)
    best = best.repeat((2, 2, 1))
    atoms_on(right, best, "0x,0y,0z", "from above, four cells; placed atoms yellow")
    return figure


def alloy(pages: Path, theme: Theme) -> Figure:
    run = pages / "alloy" / "alloy"
    best = read(run / "best.extxyz")
    figure, (left, right) = canvas(3.4, 2.4)
    energies_on(left, run, theme.colour(1), per=0)
    atoms_on(right, best, "20x,30y,0z", f"{best.get_potential_energy():.4f} eV")
    return figure


def crystal(pages: Path, theme: Theme) -> Figure:
    run = pages / "crystal" / "silicon"
    best = read(run / "best.extxyz")
    figure, (left, right) = canvas(3.4, 2.6)
    energies_on(left, run, theme.colour(1))
    title = f"{best.get_potential_energy() / len(best):.4f} eV/atom"
    atoms_on(right, best.repeat(2), "-85x,8y,0z", title, size=0.5)
    return figure


def dynamics(pages: Path, theme: Theme) -> Figure:
    frames = read(pages / "dynamics" / "md" / "md.extxyz", ":")
    step = 20 * np.arange(len(frames)) * 2 / 1000
    largest = [atoms.arrays["forces_uncertainty"].max() for atoms in frames]
    figure, (left, right) = canvas(3.0, 3.0, height=2.5)
    left.plot(step, [atoms.get_temperature() for atoms in frames], color=theme.colour(1))
    left.set(xlabel="time, ps", ylabel="temperature, K")
    right.plot(step, largest, color=theme.colour(0))
    right.axhline(0.1, color=theme.soft, ls=":", lw=1, label="--max-force-error")
    right.set(xlabel="time, ps", ylabel="largest σ of a force, eV/Å", ylim=(0, 0.12))
    right.legend()
    return figure


def baseline(pages: Path, theme: Theme) -> Figure:
    figure, (left,) = canvas(4.2)
    for name, colour in (("without", 0), ("with", 1)):
        energies_on(
            left,
            pages / "baseline" / name,
            theme.colour(colour),
            f"{name} the mean function",
            per=0,
        )
    left.legend()
    return figure


def select(pages: Path, theme: Theme) -> Figure:
    """σ of the pool after each label, and test errors of the models from smallest to largest."""
    folder = pages / "select_label_fit"
    test = read(folder / "test-labelled.extxyz", ":")
    labels = np.array([atoms.get_potential_energy() for atoms in test])
    figure, (left, right) = canvas(3.0, 3.0, height=2.6)
    for number, (name, marker) in enumerate({"chosen": "o", "random": "x"}.items()):
        sigma = [
            atoms.info["expected_uncertainty"] for atoms in read(folder / f"{name}.extxyz", ":")
        ]
        left.semilogy(range(1, len(sigma) + 1), sigma, marker, color=theme.colour(number), ms=4)
        error = Potential.load(folder / f"{name}.model").predict(test).energy - labels
        error = np.sort(1000 * np.abs(error) / [len(atoms) for atoms in test])
        right.semilogy(error, marker, color=theme.colour(number), ms=4, label=name)
    left.set(xlabel="label", ylabel="expected σ of the pool, eV/atom")
    right.set(xlabel="test structure, sorted by error", ylabel="error, meV/atom")
    right.legend()
    return figure


def lammps(pages: Path, theme: Theme) -> Figure:
    """Temperature and distance from the training domain, from the tables of LAMMPS' log."""
    lines = (pages / "lammps" / "run" / "log.lammps").read_text().splitlines()
    starts = [k for k, line in enumerate(lines) if line.split()[:2] == ["Step", "Temp"]]
    figure, (left, right) = canvas(3.0, 3.0, height=2.5)
    for number, start in enumerate(starts):
        stop = next(k for k in range(start, len(lines)) if lines[k].startswith("Loop time"))
        rows = np.array([line.split() for line in lines[start + 1 : stop]], dtype=float)
        time = rows[:, 0] * 0.002
        left.plot(time, rows[:, 1], color=theme.colour(number))
        right.plot(time, rows[:, 8], "ox"[number], color=theme.colour(number), ms=3.5)
    right.axhline(0.2, color=theme.soft, ls=":", lw=1)
    left.set(xlabel="time, ps", ylabel="temperature, K")
    right.set(xlabel="time, ps", ylabel="distance from the training domain")
    return figure


def foundation(pages: Path, theme: Theme) -> Figure:
    """Errors of the table on the page, which needs PyTorch."""
    del pages
    errors = {
        "SevenNet alone": (88.5, 91.1),
        "without SevenNet": (8.5, 57.9),
        "corrected SevenNet": (14.4, 28.4),
    }
    figure, (axis,) = canvas(4.6, height=2.6)
    for number, (name, values) in enumerate(errors.items()):
        place = np.arange(2) + 0.27 * (number - 1)
        bars = axis.bar(place, values, 0.25, color=theme.colour(number), label=name)
        axis.bar_label(bars, fmt="%.1f", fontsize=7)
    axis.set_xticks([0, 1], ["blocks like the training set", "larger blocks"])
    axis.set(ylabel="error, meV/atom", ylim=(0, 125))
    axis.legend(ncols=3, fontsize=7)
    return figure


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


#: The figure of each page: its name, and the function that draws it.
FIGURES: dict[str, tuple[str, Callable[[Path, Theme], Figure]]] = {
    "first_search": ("search_au13", search),
    "adsorbate": ("adsorbate", adsorbate),
    "alloy": ("alloy", alloy),
    "crystal": ("crystal", crystal),
    "dynamics": ("dynamics", dynamics),
    "baseline": ("baseline", baseline),
    "select_label_fit": ("select", select),
    "lammps": ("lammps", lammps),
    "foundation_models": ("foundation", foundation),
}


def main() -> None:
    pages = Path(sys.argv[1])
    for page, (name, draw) in FIGURES.items():
        if (pages / page).exists():
            for dark in (False, True):
                with drawing(dark) as theme:
                    save(draw(pages, theme), name, dark)
    copied(pages)


if __name__ == "__main__":
    main()
