"""Find the gold tetrahedron: an Au20 search with GFN1-xTB, from random atoms to the end.

The same as `nugget search Au20`, with three differences: it stops as soon as an evaluated structure
has the bonds of the tetrahedron, it may take 300 evaluations for that (some searches need more than
150, see docs/search.md), and afterwards it says whether the lowest structure is the tetrahedron.
Stop it with Ctrl-C and start it again: it goes on where it was.
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import write
from ase.optimize import BFGS

from nugget.cli._search import follow, report_of, summarise
from nugget.engines import make_calculator
from nugget.identity import degree_sequence, same_graph
from nugget.search import Search, make_config

OUT = Path("runs/demo")
REFERENCE = "tetrahedron.extxyz"
BUDGET = 300


def tetrahedron(edge: int = 4, bond: float = 2.85) -> Atoms:
    """A piece of the gold crystal with `edge` atoms along each edge: 20 for 4."""
    step = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]]) * bond / np.sqrt(2)
    spots = [(i, j, k) for i in range(edge) for j in range(edge - i) for k in range(edge - i - j)]
    return Atoms(f"Au{len(spots)}", np.array(spots) @ step)


def neighbours(atoms: Atoms) -> str:
    """How many atoms have how many bonds."""
    counts = np.bincount(degree_sequence(atoms))
    return ", ".join(f"{n} atoms with {k}" for k, n in enumerate(counts) if n) + " neighbours"


def relaxed(atoms: Atoms) -> Atoms:
    """The nearest minimum of GFN1-xTB."""
    atoms.calc = make_calculator("gfn1-xtb")
    BFGS(atoms, logfile=None).run(fmax=0.02, steps=200)
    return atoms


def main() -> int:
    if not (OUT / "config.toml").exists():
        OUT.mkdir(parents=True, exist_ok=True)
        # Only its bonds are compared, so the crystal's geometry will do. The search does not
        # learn from it: it is looked at after each evaluation, to know when to stop.
        write(OUT / REFERENCE, tetrahedron())
        Search.create(make_config({"search": {"reference": REFERENCE, "budget": BUDGET}}), OUT)
    search = Search.resume(OUT)
    result = follow(search, None, live=True)
    report = report_of(search, result)
    summarise(report)
    if result is None or result.interrupted:
        return 130
    if result.best is None:
        print("No evaluation succeeded.")
        return 1
    best, energy = result.best.atoms, result.best.energy
    is_it = same_graph(best, tetrahedron())
    print(f"\nThe lowest structure is in {report['best_file']}, E = {energy:.3f} eV.")
    print(f"Is it the tetrahedron? {'Yes' if is_it else 'No'}: {neighbours(best)}.")
    if result.found and not is_it:
        print("The tetrahedron was met too (its bonds, not quite relaxed), but is not the lowest.")
    ideal = relaxed(tetrahedron())
    known = ideal.get_potential_energy()
    print(
        f"The tetrahedron relaxed with the engine itself: E = {known:.3f} eV, {neighbours(ideal)}."
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
