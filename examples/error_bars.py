"""Fit a potential to gold clusters made on the spot, and see that it knows what it does not know.

Thirty small clusters are labelled with GFN1-xTB (tight binding, a few seconds), the potential is
fitted to their energies and forces, and then asked about clusters like those, and unlike those.
"""

from __future__ import annotations

import time

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from rich.console import Console
from rich.progress import track
from rich.table import Table

from nugget import RBF, SOAP, Potential
from nugget.engines import make_calculator
from nugget.potential.priors import Repulsion, SpeciesEnergies

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
    train = [cluster(n, rng) for n in rng.integers(6, 10, 30)]
    train = [labelled(atoms) for atoms in track(train, "GFN1-xTB labels", console=console)]

    start = time.perf_counter()
    potential = Potential(SOAP(["Au"]), RBF(), prior=[SpeciesEnergies(), Repulsion()]).fit(train)
    fitted = potential.fitted
    console.print(
        f"Fitted {fitted.regression.y.size} labels with {len(fitted.inducing)} inducing points "
        f"in {time.perf_counter() - start:.1f} s.\n"
    )

    asked = [("alike", cluster(8, rng)) for _ in range(4)]
    asked += [("larger", cluster(13, rng)) for _ in range(2)]
    asked += [("squeezed", cluster(8, rng, stretch=0.85)) for _ in range(2)]
    asked += [("a pair", Atoms("Au2", positions=[[0, 0, 0], [0, 0, 2.4]]))]

    found = potential.predict([atoms for _, atoms in asked])
    table = Table(title="Predictions for clusters that were not trained on")
    for column in ("", "formula", "E / eV", "σ / meV/atom", "true E / eV", "error / meV/atom"):
        table.add_column(column, justify="left" if column in ("", "formula") else "right")
    for s, (kind, atoms) in enumerate(asked):
        truth, n = labelled(atoms).get_potential_energy(), len(atoms)
        table.add_row(
            kind,
            atoms.get_chemical_formula(),
            f"{found.energy[s]:.3f}",
            f"{1e3 * found.energy_uncertainty[s] / n:.1f}",
            f"{truth:.3f}",
            f"{1e3 * (found.energy[s] - truth) / n:+.1f}",
        )
    console.print(table)
    console.print(
        "σ is larger where structures are unlike those that were learnt. Its overall size follows "
        "from noise levels, which are to be calibrated on structures that were left out."
    )


if __name__ == "__main__":
    main()
