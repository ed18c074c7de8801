"""Structures that many tests share: clusters, molecules, a small cell, a slab."""

from __future__ import annotations

import numpy as np
from ase import Atoms
from ase.build import bulk, fcc111, molecule
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator


def gold_cluster(n: int, seed: int, rattle: float = 0.2) -> Atoms:
    """n atoms cut from the gold crystal around a random point, shaken."""
    rng = np.random.default_rng(seed)
    crystal = bulk("Au", cubic=True).repeat(6).positions
    origin = crystal.mean(axis=0) + rng.normal(0, 0.7, 3)
    nearest = np.argsort(np.linalg.norm(crystal - origin, axis=1))[:n]
    return Atoms(f"Au{n}", positions=crystal[nearest] + rng.normal(0, rattle, (n, 3)))


def alloy_slab(seed: int = 2) -> Atoms:
    slab = fcc111("Cu", (2, 2, 3), vacuum=6.0)
    slab.symbols[[3, 8]] = "Au"
    slab.pbc = (True, True, False)
    slab.rattle(0.1, seed=seed)
    return slab


def salt_cell(seed: int = 1) -> Atoms:
    """Two atoms in a cell whose edges are shorter than the cutoff."""
    cell = bulk("NaCl", "rocksalt", a=5.6)
    cell.rattle(0.1, seed=seed)
    return cell


SYSTEMS: dict[str, list[Atoms]] = {
    "Au20": [gold_cluster(20, seed=0)],
    "molecules": [molecule("CH3OH"), molecule("C2H6"), molecule("H2O")],
    "NaCl": [salt_cell()],
    "slab": [alloy_slab()],
}


def species_of(images: list[Atoms]) -> list[str]:
    return sorted({symbol for atoms in images for symbol in atoms.symbols})


def emt_labelled(atoms: Atoms, *properties: str) -> Atoms:
    """The structure with stored results of EMT: energy, forces, and other properties."""
    work = atoms.copy()
    work.calc = EMT()
    names = ("energy", "forces", *properties)
    results = {name: work.calc.get_property(name, work) for name in names}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms
