"""Fit a potential to gold clusters made on the spot, and see that it knows what it does not know.

Sixty small clusters are labelled with GFN1-xTB (tight binding, some seconds), the potential is
fitted to their energies and forces with all settings left to the data, and its error bars are
compared with the true errors: for clusters like those, and for clusters unlike those.
"""

from __future__ import annotations

import time

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from rich.console import Console
from rich.progress import track
from rich.table import Table

from nugget import presets
from nugget.engines import make_calculator

SPACING = 2.75  # Å, about a bond of gold
console = Console()


def cluster(n: int, rng: np.random.Generator, stretch: float = 1.0) -> Atoms:
    """A compact cluster: every new atom touches one that is there, and comes too near to none."""
    places = [np.zeros(3)]
    while len(places) < n:
        direction = rng.normal(size=3)
        direction /= np.linalg.norm(direction)
        trial = places[rng.integers(len(places))] + SPACING * direction
        if min(np.linalg.norm(trial - place) for place in places) > 0.95 * SPACING:
            places.append(trial)
    positions = stretch * (np.array(places) + rng.normal(0, 0.08, (n, 3)))
    return Atoms(f"Au{n}", positions=positions)


def labelled(atoms: Atoms) -> Atoms:
    """With energy and forces of GFN1-xTB."""
    work = atoms.copy()
    work.calc = make_calculator("gfn1-xtb")
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def main() -> None:
    rng = np.random.default_rng(1)
    train = [cluster(n, rng) for n in rng.integers(6, 10, 60)]
    kinds = {
        "alike": [cluster(n, rng) for n in rng.integers(6, 10, 20)],
        "larger": [cluster(13, rng) for _ in range(10)],
        "squeezed": [cluster(8, rng, stretch=0.92) for _ in range(10)],
        "stretched": [cluster(8, rng, stretch=1.1) for _ in range(10)],
    }
    everything = [*train, *(atoms for images in kinds.values() for atoms in images)]
    for atoms in track(everything, "GFN1-xTB labels", console=console):
        labelled(atoms)

    start = time.perf_counter()
    potential = presets.auto(["Au"], train).fit(train, calibrate="loo", choose_noise=True)
    fitted = potential.fitted
    console.print(
        f"Fitted {fitted.regression.y.size} labels with {len(fitted.inducing)} inducing points "
        f"in {time.perf_counter() - start:.1f} s; range chosen: {potential.choices['range']}.\n"
    )

    table = Table(title="Clusters that were not trained on, energies in meV/atom")
    for column in ("", "clusters", "rms σ", "rms error", "within 1 σ", "within 2 σ"):
        table.add_column(column, justify="right" if column else "left")
    for kind, images in kinds.items():
        found = potential.predict(images)
        sizes = np.array([len(atoms) for atoms in images])
        truth = np.array([atoms.get_potential_energy() for atoms in images])
        sigma = 1e3 * found.energy_uncertainty / sizes
        error = 1e3 * np.abs(found.energy - truth) / sizes
        table.add_row(
            kind,
            str(len(images)),
            f"{np.sqrt(np.mean(sigma**2)):.1f}",
            f"{np.sqrt(np.mean(error**2)):.1f}",
            f"{np.mean(error <= sigma):.0%}",
            f"{np.mean(error <= 2 * sigma):.0%}",
        )
    console.print(table)
    console.print(
        "σ was never shown any of these clusters: it was calibrated on training structures, each "
        "predicted by a model that had not seen it. It grows where structures are unlike those."
    )


if __name__ == "__main__":
    main()
