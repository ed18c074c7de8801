"""Barriers that are learned on the fly, against ASE's climbing NEB.

    python benchmarks/on_the_fly/paths.py [--systems "Au on Al(100)" ...] [--images 9]

Barrier and engine calls of both. Prints a table and writes results/on_the_fly_neb.json.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import add_adsorbate, bulk, fcc100, fcc111
from ase.constraints import FixAtoms
from ase.mep import NEB
from ase.optimize import BFGS, FIRE
from scipy.optimize import linear_sum_assignment
from scipy.spatial.distance import cdist
from scipy.spatial.transform import Rotation

from nugget.engines import make_calculator
from nugget.onthefly.learning_calculator import labeller
from nugget.onthefly.reaction_path import find_path
from nugget.onthefly.run_settings import NEBConfig

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from common import save, table  # noqa: E402
from dynamics import relaxed  # noqa: E402


def adatom_on_aluminium() -> tuple[Atoms, Atoms, str]:
    """ASE's tutorial: a gold atom hops on Al(100)."""
    slab = fcc100("Al", size=(2, 2, 3))
    add_adsorbate(slab, "Au", 1.7, "hollow")
    slab.center(axis=2, vacuum=4.0)
    slab.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in slab]))
    slab.info = {}
    end = slab.copy()
    end[-1].x += end.cell[0, 0] / 2
    return slab, end, "emt"


def adatom_on_copper() -> tuple[Atoms, Atoms, str]:
    """A copper atom goes from an fcc to an hcp hollow of Cu(111), 3×3×3."""
    slab = fcc111("Cu", size=(3, 3, 3), vacuum=6.0)
    end = slab.copy()
    add_adsorbate(slab, "Cu", 1.9, "fcc")
    add_adsorbate(end, "Cu", 1.9, "hcp")
    for one in (slab, end):
        one.set_constraint(FixAtoms(mask=[atom.tag > 2 for atom in one]))
        one.info = {}
    return slab, end, "emt"


def vacancy_in_aluminium() -> tuple[Atoms, Atoms, str]:
    """A neighbour hops into a vacancy of aluminium, 31 atoms."""
    start = bulk("Al", cubic=True) * (2, 2, 2)
    hole = start.positions[0].copy()
    neighbour = int(np.argsort(start.get_distances(0, range(1, 32), mic=True))[0]) + 1
    del start[0]
    end = start.copy()
    end.positions[neighbour - 1] = hole
    return start, end, "emt"


def gold_on_gold() -> tuple[Atoms, Atoms, str]:
    """A gold atom moves from one face of the tetrahedron of gold, Au10, to the next."""
    places = [(i, j, k) for i in range(3) for j in range(3 - i) for k in range(3 - i - j)]
    cell = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]) * 2.04
    core = np.array(places) @ cell
    return hop_on(core, "gfn1-xtb")


def hop_on(core: np.ndarray, engine: str) -> tuple[Atoms, Atoms, str]:
    middle = core.mean(axis=0)
    outward = -(core - middle)[np.argsort(-np.linalg.norm(core - middle, axis=1))[:2]]
    ends = []
    for direction in outward:  # opposite a corner is a face
        unit = direction / np.linalg.norm(direction)
        height = max((core - middle) @ unit) + 2.3
        ends.append(Atoms(f"Au{len(core) + 1}", np.vstack([core, middle + height * unit])))
    return ends[0], ends[1], engine


def gold_on_a_patch() -> tuple[Atoms, Atoms, str]:
    """A gold atom hops between hollows of a fixed patch of Au(100), 3×3×2, without a cell."""
    patch = fcc100("Au", size=(3, 3, 2), vacuum=6.0)
    top = patch.positions[patch.get_tags() == 1]
    side = patch.get_distance(0, 1)
    ends = []
    for hop in (0, 1):
        place = top.min(axis=0) + side * np.array([0.5, 0.5 + hop, 0.0]) + (0.0, 0.0, 1.9)
        atoms = Atoms("Au19", np.vstack([patch.positions, place]))
        atoms.set_constraint(FixAtoms(range(18)))
        ends.append(atoms)
    return ends[0], ends[1], "gfn1-xtb"


def isomers_of_copper() -> tuple[Atoms, Atoms, str]:
    """Cu7: the octahedron with a cap becomes the pentagonal bipyramid, its lowest structure."""
    cap = 1.8 * np.array(
        [[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1], [0.95, 0.95, 0.95]]
    )
    turn = 2 * np.pi * np.arange(5) / 5
    ring = 2.15 * np.stack([np.cos(turn), np.sin(turn), 0 * turn], axis=1)
    pyramid = np.vstack([ring, [[0, 0, 1.25], [0, 0, -1.25]]])
    start, end = (relaxed(Atoms("Cu7", x), "emt", 0.01) for x in (cap, pyramid))
    end.positions = nearest_copy(start.positions, end.positions)
    return start, end, "emt"


def nearest_copy(still: np.ndarray, moved: np.ndarray) -> np.ndarray:
    """`moved`, turned, mirrored and with its atoms renumbered to lie as near as possible."""
    a, b = still - still.mean(axis=0), moved - moved.mean(axis=0)
    best, found = np.inf, b
    for turn in Rotation.random(500, random_state=0):
        for sign in (1.0, -1.0):
            x = turn.apply(sign * b)
            for _ in range(10):  # numbers and rotation in turns
                x = x[linear_sum_assignment(cdist(a, x))[1]]
                x = Rotation.align_vectors(a, x)[0].apply(x)
            if (distance := float(np.sum((a - x) ** 2))) < best:
                best, found = distance, x
    return found + still.mean(axis=0)


PATHS = {
    "Au on Al(100)": adatom_on_aluminium,
    "Cu on Cu(111)": adatom_on_copper,
    "vacancy in Al": vacancy_in_aluminium,
    "Au on Au(100) patch": gold_on_a_patch,
    "Au on Au10": gold_on_gold,
    "Cu7 isomers": isomers_of_copper,
}


class Counter:
    """Counts the calls of an engine."""

    def __init__(self, engine: str) -> None:
        self.calculators: list[Any] = []
        self.engine, self.calls = engine, 0

    def make(self) -> Any:
        made = make_calculator(self.engine)
        inner = made.calculate

        def calculate(*args: Any, **kwargs: Any) -> None:
            self.calls += 1
            inner(*args, **kwargs)

        made.calculate = calculate
        return made


def ase_path(start: Atoms, end: Atoms, engine: str, images: int) -> dict[str, Any]:
    """ASE's own climbing NEB, ends relaxed by BFGS."""
    counter = Counter(engine)
    ends = [start.copy(), end.copy()]
    for atoms in ends:
        atoms.calc = counter.make()
        BFGS(atoms, logfile=None).run(fmax=0.05, steps=300)
    end_calls = counter.calls
    band = [ends[0], *(ends[0].copy() for _ in range(images - 2)), ends[1]]
    for atoms in band[1:-1]:
        atoms.calc = counter.make()
    neb = NEB(band, climb=True, method="improvedtangent")
    neb.interpolate(method="idpp", mic=True)
    converged = FIRE(neb, logfile=None).run(fmax=0.05, steps=300)
    energies = [atoms.get_potential_energy() for atoms in band]
    return {
        "barrier": max(energies) - energies[0], "calls": counter.calls, "end_calls": end_calls,
        "converged": bool(converged),
    }  # fmt: skip


def measure_neb(name: str, images: int) -> dict[str, Any]:
    start, end, engine = PATHS[name]()
    config = NEBConfig(images=images)
    result, _ = find_path(start, end, labeller(make_calculator(engine)), config)
    mine = {
        "barrier": result.barrier, "error": result.error, "calls": result.calls,
        "end_calls": result.end_calls, "reason": result.reason,
    }  # fmt: skip
    print(name, mine, flush=True)
    theirs = ase_path(start, end, engine, images)
    print(name, theirs, flush=True)
    return {"path": name, "engine": engine, "images": images, "nugget": mine, "ase": theirs}


def show(results: list[dict[str, Any]]) -> None:
    rows = []
    for r in results:
        mine, theirs = r["nugget"], r["ase"]
        rows.append([
            f"{r['path']} ({r['engine']})", f"{mine['barrier']:.4f} ± {mine['error']:.4f}",
            f"{theirs['barrier']:.4f}", f"{mine['calls']} ({mine['end_calls']})",
            f"{theirs['calls']} ({theirs['end_calls']})", f"{mine['calls'] / theirs['calls']:.2f}",
        ])  # fmt: skip
    header = ["path", "barrier, eV", "ASE's", "calls (ends)", "ASE's (ends)", "ratio"]
    table("Barriers: learned, and ASE's climbing NEB", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--systems", nargs="+", default=list(PATHS), help="some of the names")
    parser.add_argument("--images", type=int, default=9, help="with both ends")
    parser.add_argument("--name", default="on_the_fly_neb", help="of the file of results")
    args = parser.parse_args()
    results = [measure_neb(name, args.images) for name in args.systems]
    show(results)
    save(args.name, {"results": results})


if __name__ == "__main__":
    main()
