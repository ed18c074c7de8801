"""The lowest known structure of each landscape: published shapes, basin hopping, long searches.

    python benchmarks/landscapes/references.py [NAME ...] [--seeds 4] [--times 2] [--hops 2500]

Pair potentials are left to basin hopping, which knows nothing of nugget; the others get searches
with `--times` the budget, adatoms also flat islands, one by one. Seeds are 9000 and up, which no
benchmark uses. The lowest relaxed structure of all, and of the file that is there already, is kept
(adatoms: all within 0.05 eV of it); Lennard-Jones must reach the published energies.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from itertools import combinations
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])

import common  # noqa: E402
import numpy as np  # noqa: E402
from ase import Atoms  # noqa: E402
from ase.build import fcc111  # noqa: E402
from ase.calculators.singlepoint import SinglePointCalculator  # noqa: E402
from ase.io import read, write  # noqa: E402
from ase.optimize import BFGS  # noqa: E402
from hopping import hop, lennard_jones, morse  # noqa: E402
from systems import SYSTEMS, engine, known_shape, reference_file, settings, slab  # noqa: E402

from nugget.engines import make_calculator  # noqa: E402
from nugget.search import Search, make_config  # noqa: E402
from nugget.structures.memory import KnownStructures  # noqa: E402


def searched(name: str, seed: int, times: int, folder: Path) -> Atoms:
    tree = settings(name, folder)
    tree["search"].update(budget=times * SYSTEMS[name].budget, seed=seed)
    tree["model"]["use_forces"] = SYSTEMS[name].engine != "gfn1-xtb"
    search = Search.create(make_config(tree), folder / f"{name.replace(' ', '-')}-{seed}")
    search.run()
    return read(search.store.directory / "best.extxyz")


#: Of pair potentials: the potential, a smoother one that relaxes first, the bond length in Å.
PAIRS = {
    "lj": (lennard_jones, lennard_jones, 2.5 * 2 ** (1 / 6)),
    "morse": (morse(14.0), morse(6.0), 2.8),
}


def hopped(name: str, seed: int, hops: int) -> Atoms:
    pair, smooth, bond = PAIRS[SYSTEMS[name].engine]
    atoms = Atoms(SYSTEMS[name].formula)
    _, positions = hop(len(atoms), pair, smooth, hops, temperature=0.8, seed=seed)
    atoms.positions = bond * positions
    return relaxed(name, atoms)


def islands(name: str) -> list[Atoms]:
    """Flat islands on fcc or hcp sites, at most two bonds short of the best, relaxed."""
    width, below = SYSTEMS[name].width, slab(SYSTEMS[name].width)
    added = Atoms(SYSTEMS[name].formula)
    layers = fcc111("Pt", (width, width, 3), vacuum=8.0)
    step = layers.positions[-1, 2] - layers.positions[width**2, 2]
    top = below.positions[:, 2].max()
    # Stacked as A, B: the third layer of the longer slab shows C (fcc); hcp is above A.
    fcc = layers.positions[-(width**2) :] - layers.positions[0] + below.positions[0]
    found = []
    for sites in (fcc, below.positions[: width**2]):
        flat = np.column_stack([sites[:, :2], np.full(len(sites), top + step)])
        grid = Atoms("H" * len(flat), flat, cell=below.cell, pbc=below.pbc)
        near = grid.get_all_distances(mic=True) < 3.2
        chosen = np.array(list(combinations(range(len(flat)), len(added))))
        bonds = np.array([near[np.ix_(some, some)].sum() // 2 for some in chosen])
        known = KnownStructures(distance_tol=None)
        for some in chosen[bonds >= bonds.max() - 2]:
            atoms = below.copy()
            atoms += Atoms(added.numbers, flat[some])
            if atoms not in known:
                known.add(atoms)
                found.append(relaxed(name, atoms))
    return found


def relaxed(name: str, atoms: Atoms) -> Atoms:
    atoms.calc = make_calculator(engine(name))
    BFGS(atoms, logfile=None).run(fmax=0.001, steps=500)
    kept = atoms.copy()
    kept.calc = SinglePointCalculator(
        kept, energy=atoms.get_potential_energy(), forces=atoms.get_forces()
    )
    return kept


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", default=list(SYSTEMS))
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--times", type=int, default=2, help="of the budget")
    parser.add_argument("--hops", type=int, default=2500)
    options = parser.parse_args()
    for name in options.names:
        path = reference_file(name)
        shape = known_shape(name)
        found = [relaxed(name, shape)] if shape is not None else []
        found += read(path, ":") if path.exists() else []
        seeds = range(9000, 9000 + options.seeds)
        if shape is None and SYSTEMS[name].engine in PAIRS:
            found += [hopped(name, seed, options.hops) for seed in seeds]
        elif shape is None:
            if SYSTEMS[name].system.get("kind") == "surface":
                found += islands(name)
            with tempfile.TemporaryDirectory() as folder:
                found += [searched(name, seed, options.times, Path(folder)) for seed in seeds]
        found.sort(key=lambda atoms: atoms.get_potential_energy())
        energies = [round(atoms.get_potential_energy(), 4) for atoms in found]
        print(f"{name}: {energies}", flush=True)
        published = SYSTEMS[name].published
        if published is not None and abs(energies[0] - published) > 1e-3:
            print(f"  the published energy is {published}: not reached, nothing is written")
        elif SYSTEMS[name].system.get("kind") == "surface":
            write(path, lowest_distinct(found))
        elif found[0].get_potential_energy() < _energy(path) - 1e-3:
            write(path, found[0])
    print(f"peak memory {common.peak_memory_mb():.0f} MB")


def lowest_distinct(found: list[Atoms], within: float = 0.05) -> list[Atoms]:
    """One structure of each bond graph within so many eV of the lowest; energies ascend."""
    known, kept = KnownStructures(distance_tol=None), []
    for atoms in found:
        near = atoms.get_potential_energy() < found[0].get_potential_energy() + within
        if near and atoms not in known:
            known.add(atoms)
            kept.append(atoms)
    return kept


def _energy(path: Path) -> float:
    return min(a.get_potential_energy() for a in read(path, ":")) if path.exists() else 1e9


if __name__ == "__main__":
    main()
