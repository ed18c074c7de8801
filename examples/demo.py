"""Find the gold tetrahedron: an Au20 search with GFN1-xTB, from random atoms to the end.

The same as `nugget search Au20`, with two differences. It stops when a structure has the bonds and
the energy of the tetrahedron, or of its twin with the face atoms pushed out, which GFN1-xTB puts
16 meV lower. And it may take 300 evaluations for that. The search learns nothing from these
references; they only tell when to stop. Every demo is a search of its own. Ctrl-C stops it, and it
says how to go on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from ase import Atoms

from nugget.cli.search import follow, show
from nugget.engines import make_calculator
from nugget.relax.engine_relaxation import relax_with_engine
from nugget.report.digest import search_summary
from nugget.search import Search, make_config
from nugget.structures.identity import degree_sequence
from nugget.structures.io import write_images

BUDGET = 300


def tetrahedron(edge: int = 4, bond: float = 2.85) -> Atoms:
    """A piece of the gold crystal with `edge` atoms along each edge: 20 for 4."""
    step = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]]) * bond / np.sqrt(2)
    spots = [(i, j, k) for i in range(edge) for j in range(edge - i) for k in range(edge - i - j)]
    return Atoms(f"Au{len(spots)}", np.array(spots) @ step)


def twin(atoms: Atoms, push: float = 0.8) -> Atoms:
    """The tetrahedron with the four atoms in the middle of its faces pushed out."""
    other = atoms.copy()
    away = other.positions - other.positions.mean(axis=0)
    middle = np.argsort(np.linalg.norm(away, axis=1))[:4]
    other.positions[middle] += push * away[middle] / np.linalg.norm(away[middle], axis=1)[:, None]
    return other


def evaluated(atoms: Atoms) -> Atoms:
    """The structure with energy and forces of GFN1-xTB."""
    atoms.calc = make_calculator("gfn1-xtb")
    atoms.get_forces()
    return atoms


def neighbours(atoms: Atoms) -> str:
    """How many atoms have how many bonds."""
    counts = np.bincount(degree_sequence(atoms))
    return ", ".join(f"{n} atoms with {k}" for k, n in enumerate(counts) if n) + " neighbours"


def new_directory() -> Path:
    """runs/demo, or the first of runs/demo-2, runs/demo-3, … that is not there yet."""
    names = ["demo", *(f"demo-{k}" for k in range(2, 1000))]
    return next(path for name in names if not (path := Path("runs") / name).exists())


def main() -> int:
    out = new_directory()
    if out.name != "demo":
        print("Earlier demos stay as they are; to look at one: ase gui runs/demo/search.db")
    print(
        "Relaxing the tetrahedron and its twin with the engine, to know them when they are found."
    )
    goals = relax_with_engine([tetrahedron(), twin(tetrahedron())], evaluated)
    out.parent.mkdir(exist_ok=True)
    reference = out.with_suffix(".extxyz")
    write_images(reference, [goal.atoms for goal in goals])
    settings = {"search": {"reference": str(reference), "budget": BUDGET}}
    search = Search.create(make_config(settings | {"system": {"formula": "Au20"}}), out)
    result = follow(search, None, live=True)
    show(search_summary(search, result), broken_off=result is None)
    if result is None or result.interrupted:
        return 130
    if not result.minima:
        print("No evaluation succeeded.")
        return 1
    best = result.minima[0]
    print(f"\nThe lowest structure is in {out / 'best.extxyz'}, E = {best.energy:.3f} eV.")
    print(f"Is it the tetrahedron? {'Yes' if result.found else 'No'}: {neighbours(best.atoms)},")
    print(f"point group {best.point_group}, largest force {best.relaxed.fmax:.3f} eV/Å.")
    known = ", ".join(f"{goal.energy:.3f} eV ({neighbours(goal.atoms)})" for goal in goals)
    print(f"The references, relaxed with the engine: {known}.")
    return 0 if result.found else 1


if __name__ == "__main__":
    sys.exit(main())
