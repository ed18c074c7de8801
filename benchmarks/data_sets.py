"""Labelled structures made on the spot, for measuring accuracy and error bars.

    python benchmarks/data_sets.py --out DIR

Every set has structures of several kinds, named in `info["kind"]`; some kinds are meant for
training (`TRAINED`), the others for extrapolation (another phase, another size). Labels: silicon
with Tersoff's potential, Cu/Au with EMT, MgO with GFN1-xTB, water with GFN2-xTB.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path

import common  # noqa: F401  (first: it sets one thread)
import numpy as np
from ase import Atoms
from ase.build import bulk, molecule
from ase.calculators.calculator import Calculator
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.calculators.tersoff import Tersoff, TersoffParameters
from ase.io import read, write
from tblite.ase import TBLite

from nugget.engines import make_calculator

Rng = np.random.Generator
Maker = Callable[[Rng], Atoms]

# Tersoff, Phys. Rev. B 38, 9902 (1988).
_SILICON = TersoffParameters(
    m=3.0, gamma=1.0, lambda3=0.0, c=1.0039e5, d=16.217, h=-0.59825, n=0.78734, beta=1.1e-6,
    lambda2=1.73222, B=471.18, R=2.85, D=0.15, lambda1=2.4799, A=1830.8,
)  # fmt: skip


def strained(atoms: Atoms, rng: Rng, strain: float, rattle: float) -> Atoms:
    """With a random strain of every component and random displacements."""
    shape = np.eye(3) + rng.normal(0, strain, (3, 3))
    atoms.set_cell(atoms.cell @ (0.5 * (shape + shape.T)), scale_atoms=True)
    atoms.positions += rng.normal(0, rattle, atoms.positions.shape)
    return atoms


def diamond(rng: Rng) -> Atoms:
    return strained(bulk("Si", cubic=True), rng, 0.02, rng.choice([0.05, 0.1, 0.15]))


def vacancy(rng: Rng) -> Atoms:
    atoms = bulk("Si").repeat((2, 2, 4))
    del atoms[int(rng.integers(len(atoms)))]
    return strained(atoms, rng, 0.01, 0.1)


def liquid(rng: Rng) -> Atoms:
    """A crystal shaken out of shape, then a few steps downhill: disordered, no atoms too near."""
    atoms = bulk("Si").repeat(2)
    atoms.set_cell(atoms.cell * rng.uniform(0.95, 1.02), scale_atoms=True)
    atoms.positions += rng.normal(0, 0.5, atoms.positions.shape)
    atoms.calc = silicon()
    for _ in range(12):
        atoms.positions += np.clip(0.02 * atoms.get_forces(), -0.1, 0.1)
    return atoms


def beta_tin(rng: Rng) -> Atoms:
    a, c = 4.81, 2.65
    places = [[0, 0, 0], [0.5, 0, 0.25], [0.5, 0.5, 0.5], [0, 0.5, 0.75]]
    atoms = Atoms("Si4", scaled_positions=places, cell=[a, a, c], pbc=True).repeat((1, 1, 2))
    return strained(atoms, rng, 0.02, 0.08)


def silicon_slab(rng: Rng) -> Atoms:
    atoms = bulk("Si", cubic=True).repeat((1, 1, 2))
    atoms.center(vacuum=5.0, axis=2)
    return strained(atoms, rng, 0.01, 0.08)


def _alloy(cell: Atoms, rng: Rng) -> Atoms:
    share = rng.choice([0.0, 0.25, 0.5, 0.75, 1.0])
    gold = rng.random(len(cell)) < share
    cell.symbols[:] = np.where(gold, "Au", "Cu").tolist()
    # Vegard's law keeps the pressure small.
    wide = (1 - gold.mean()) * 3.61 / 3.84 + gold.mean() * 4.06 / 3.84
    cell.set_cell(cell.cell * wide, scale_atoms=True)
    return cell


def fcc_alloy(rng: Rng) -> Atoms:
    return strained(
        _alloy(bulk("Cu", a=3.84, cubic=True).repeat((2, 1, 1)), rng), rng, 0.02,
        rng.choice([0.05, 0.12]),
    )  # fmt: skip


def bcc_alloy(rng: Rng) -> Atoms:
    cell = bulk("Cu", "bcc", a=3.05, cubic=True).repeat((2, 2, 1))
    return strained(_alloy(cell, rng), rng, 0.02, 0.1)


def metal_cluster(sizes: tuple[int, ...]) -> Maker:
    def make(rng: Rng) -> Atoms:
        crystal = bulk("Cu", a=3.84, cubic=True).repeat(5)
        origin = crystal.positions.mean(axis=0) + rng.normal(0, 0.8, 3)
        away = np.linalg.norm(crystal.positions - origin, axis=1)
        atoms = _alloy(crystal[np.argsort(away)[: int(rng.choice(sizes))]], rng)
        atoms.positions += rng.normal(0, 0.15, atoms.positions.shape)
        atoms.pbc = False
        atoms.cell = np.zeros((3, 3))
        return atoms

    return make


def oxide_cluster(sizes: tuple[int, ...]) -> Maker:
    """Compact pieces of rock salt, as many Mg as O."""

    def make(rng: Rng) -> Atoms:
        n = int(rng.choice(sizes))
        crystal = bulk("MgO", "rocksalt", a=4.2, cubic=True).repeat(3)
        origin = crystal.positions.mean(axis=0) + rng.normal(0, 1.0, 3)
        order = np.argsort(np.linalg.norm(crystal.positions - origin, axis=1))
        chosen = [i for symbol in ("Mg", "O") for i in order[crystal.symbols[order] == symbol][:n]]
        atoms = crystal[chosen]
        atoms.positions *= rng.uniform(0.92, 1.0)
        atoms.positions += rng.normal(0, 0.1, atoms.positions.shape)
        atoms.pbc = False
        atoms.cell = np.zeros((3, 3))
        return atoms

    return make


def oxide_cell(rng: Rng) -> Atoms:
    return strained(bulk("MgO", "rocksalt", a=4.2, cubic=True), rng, 0.02, 0.08)


def caesium_chloride_cell(rng: Rng) -> Atoms:
    cell = bulk("MgO", "cesiumchloride", a=2.65).repeat((2, 2, 1))
    return strained(cell, rng, 0.02, 0.06)


def water(sizes: tuple[int, ...]) -> Maker:
    def make(rng: Rng) -> Atoms:
        n = int(rng.choice(sizes))
        total = Atoms()
        while len(total) < 3 * n:
            one = molecule("H2O")
            one.positions += rng.normal(0, 0.06, one.positions.shape)
            one.rotate(360 * rng.random(), rng.normal(size=3), center="COM")
            one.positions -= one.positions[0]
            direction = rng.normal(size=3)
            place = rng.uniform(2.6, 3.4) * direction / np.linalg.norm(direction)
            if len(total):
                one.positions += total.positions[3 * int(rng.integers(len(total) // 3))] + place
                gap = np.linalg.norm(total.positions[:, None] - one.positions, axis=2)
                if gap.min() < 1.6 or gap[::3, 0].min() < 2.5:
                    continue
            total += one
        return total

    return make


def silicon() -> Calculator:
    return Tersoff({("Si", "Si", "Si"): _SILICON})


# Set: calculator, kinds with their numbers of structures.
SETS: dict[str, tuple[Callable[[], Calculator], dict[str, tuple[Maker, int]]]] = {
    "silicon": (
        silicon,
        {
            "diamond": (diamond, 200),
            "vacancy": (vacancy, 100),
            "liquid": (liquid, 100),
            "beta-tin": (beta_tin, 60),
            "slab": (silicon_slab, 60),
        },
    ),
    "copper-gold": (
        EMT,
        {
            "fcc": (fcc_alloy, 200),
            "cluster": (metal_cluster((10, 11, 12, 13)), 200),
            "bcc": (bcc_alloy, 60),
            "larger": (metal_cluster((19, 24)), 60),
        },
    ),
    "magnesia": (
        lambda: make_calculator("gfn1-xtb"),
        {
            "cluster": (oxide_cluster((3, 4, 5)), 250),
            "rock-salt": (oxide_cell, 100),
            "larger": (oxide_cluster((7, 8)), 60),
            "cscl": (caesium_chloride_cell, 60),
        },
    ),
    "water": (
        lambda: TBLite(method="GFN2-xTB", verbosity=0),
        {
            "water": (water((1, 2, 3)), 350),
            "larger": (water((5, 6)), 100),
        },
    ),
}
TRAINED: dict[str, tuple[str, ...]] = {
    "silicon": ("diamond", "vacancy", "liquid"),
    "copper-gold": ("fcc", "cluster"),
    "magnesia": ("cluster", "rock-salt"),
    "water": ("water",),
}


def labelled(maker: Maker, rng: Rng, calculator: Calculator) -> Atoms | None:
    """A structure with energy, forces and, in a crystal, stress; None where a calculation fails."""
    try:
        work = maker(rng)
        work.calc = calculator
        names = ["energy", "forces", *(["stress"] if work.pbc.all() else [])]
        results = {name: work.calc.get_property(name, work) for name in names}
    except Exception:  # whatever a calculator raises
        return None
    if not all(np.all(np.isfinite(value)) for value in results.values()):
        return None
    clean = Atoms(work.numbers, work.positions, cell=work.cell, pbc=work.pbc)
    clean.calc = SinglePointCalculator(clean, **results)
    return clean


def make_set(name: str, seed: int = 0) -> list[Atoms]:
    """All structures of a set, shuffled; the same for the same seed."""
    rng = np.random.default_rng([seed, sorted(SETS).index(name)])
    factory, kinds = SETS[name]
    images = []
    for kind, (maker, number) in kinds.items():
        made = 0
        while made < number:
            atoms = labelled(maker, rng, factory())
            if atoms is not None:
                atoms.info["kind"] = kind
                images.append(atoms)
                made += 1
    return [images[i] for i in rng.permutation(len(images))]


def load_set(name: str, directory: Path) -> list[Atoms]:
    """A set from its file, which is made if it is not there."""
    path = directory / f"{name}.extxyz"
    if not path.exists():
        directory.mkdir(parents=True, exist_ok=True)
        write(path, make_set(name), format="extxyz")
    return list(read(path, ":"))


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="directory of the files")
    parser.add_argument("names", nargs="*", help=f"which sets; default: {', '.join(SETS)}")
    options = parser.parse_args()
    for name in options.names or SETS:
        print(name, len(load_set(name, options.out)))


if __name__ == "__main__":
    main()
