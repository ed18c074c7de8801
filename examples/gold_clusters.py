"""Write train.extxyz and test.extxyz: small gold clusters with energies and forces of EMT.

Effective-medium theory is quick and not accurate: good for trying things out.
"""

from __future__ import annotations

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write


def cluster(n: int, rng: np.random.Generator) -> Atoms:
    """n atoms cut from the crystal around a random point, shaken, with EMT's labels."""
    crystal = bulk("Au", cubic=True).repeat(5).positions
    origin = crystal.mean(axis=0) + rng.normal(0, 0.7, 3)
    nearest = np.argsort(np.linalg.norm(crystal - origin, axis=1))[:n]
    atoms = Atoms(f"Au{n}", positions=crystal[nearest] + rng.normal(0, 0.15, (n, 3)))
    atoms.calc = EMT()
    results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


if __name__ == "__main__":
    rng = np.random.default_rng(0)
    write("train.extxyz", [cluster(n, rng) for n in rng.integers(8, 13, 60)])
    write("test.extxyz", [cluster(n, rng) for n in rng.integers(8, 15, 20)])
    print("Written: train.extxyz (60 structures), test.extxyz (20 structures)")
