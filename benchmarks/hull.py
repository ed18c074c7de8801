"""The Cu-Au hull of EMT: a search over all compositions against brute force on fcc sites.

    python benchmarks/hull.py --brute-force fcc.json --most 8
    python benchmarks/hull.py --compare fcc.json --seeds 200 203 --budget 200 --out hull.json

Brute force: all supercells of fcc with up to `most` atoms (Hermite normal forms), all decorations
with two elements, those that are the same left out, each relaxed with its cell. Searches are those
of `nugget search --compositions Cu-Au --crystal` with the default settings, in a directory that is
removed. They may leave the fcc lattice, so a hull below that of brute force is not an error.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.data import atomic_numbers
from threadpoolctl import threadpool_limits

from nugget.engines.task import Task
from nugget.relax.cell_relaxation import cells_on_calculator, relax_cells
from nugget.search.search import Search
from nugget.search.search_settings import make_config
from nugget.structures.geometry import reduced, repeated
from nugget.structures.symmetry import space_group_of
from nugget.systems.goal import AboveHull, Hull

ELEMENTS = tuple(atomic_numbers[symbol] for symbol in ("Cu", "Au"))


def hermite(n: int) -> Iterator[np.ndarray]:
    """All integer matrices in Hermite's normal form of determinant n."""
    for a in range(1, n + 1):
        for c in range(1, n // a + 1):
            if n % (a * c) == 0:
                f = n // (a * c)
                for b, d, e in np.ndindex(a, a, c):
                    yield np.array([[a, 0, 0], [b, c, 0], [d, e, f]])


def supercells(n: int, a: float) -> list[Atoms]:
    """Distinct fcc supercells with n atoms: other rows of the same lattice up to symmetry."""
    fcc, kept, seen = bulk("Cu", "fcc", a=a), [], set()
    ops = _operations(np.asarray(fcc.cell.array))
    for matrix in hermite(n):
        images = [_normal_form(matrix @ op) for op in ops]
        if not seen & set(images):
            kept.append(repeated(fcc, matrix))
        seen.update(images)
    return kept


def _operations(cell: np.ndarray) -> list[np.ndarray]:
    """The 48 rotations of fcc as integer matrices on its primitive vectors (rows)."""
    found = []
    for entries in np.ndindex(*[3] * 9):
        op = np.array(entries).reshape(3, 3) - 1
        turned = op @ cell
        if np.allclose(turned @ turned.T, cell @ cell.T):
            found.append(op)
    return found


def _normal_form(matrix: np.ndarray) -> tuple[int, ...]:
    """Hermite's normal form (lower triangular, by row operations) of an integer matrix."""
    m = [[int(x) for x in row] for row in matrix]
    for k in (2, 1, 0):  # columns from the right; rows 0..k hold what is not done yet
        while True:
            rows = [i for i in range(k + 1) if m[i][k]]
            pivot = min(rows, key=lambda i: abs(m[i][k]))
            m[k], m[pivot] = m[pivot], m[k]
            others = [i for i in range(k) if m[i][k]]
            if not others:
                break
            for i in others:
                q = m[i][k] // m[k][k]
                m[i] = [x - q * y for x, y in zip(m[i], m[k], strict=True)]
        if m[k][k] < 0:
            m[k] = [-x for x in m[k]]
    for k in (1, 0):
        for i in range(k + 1, 3):
            q = m[i][k] // m[k][k]
            m[i] = [x - q * y for x, y in zip(m[i], m[k], strict=True)]
    return tuple(x for row in m for x in row)


def decorations(n: int, calculator: Any) -> Iterator[Atoms]:
    """Decorated supercells with n atoms, those of equal energy (unrelaxed, 1e-7 eV/atom) once."""
    seen: set[tuple[int, int]] = set()
    for cell in supercells(n, 3.9):
        for bits in np.ndindex(*[2] * n):
            atoms = cell.copy()
            atoms.numbers = np.array(ELEMENTS)[list(bits)]
            key = (sum(bits), round(calculator.get_potential_energy(atoms) / n * 1e7))
            near = {(key[0], key[1] + shift) for shift in (-1, 0, 1)}
            if not near & seen:
                seen.add(key)
                yield atoms


def brute_force(most: int) -> dict[str, Any]:
    """The relaxed decorations: energies per atom, and the hull."""
    calculator = Task(name="emt").calculator()
    surface, begun, rows = cells_on_calculator(calculator), time.process_time(), []
    hull, evaluations = Hull(ELEMENTS), 0
    for n in range(1, most + 1):
        images = [reduced(atoms) for atoms in decorations(n, calculator)]
        relaxed = relax_cells(images, surface, 0.005, 300)
        evaluations += sum(one.evaluations for one in relaxed)
        for one in relaxed:
            shares = hull.shares(one.atoms)
            hull = hull.including(shares, one.energy / n)
            rows.append([*shares, n, one.energy / n, bool(one.converged), one.atoms])
        print(n, len(images), f"{time.process_time() - begun:.0f} s", flush=True)
    lowest: dict[str, Any] = {}
    for *shares, n, energy, converged, atoms in rows:
        name = hull.name(tuple(shares))
        if name not in lowest or energy < lowest[name]["energy"] - 1e-6:
            lowest[name] = {
                "shares": shares, "atoms": n, "energy": energy, "converged": converged,
                "formation": hull.formation(tuple(shares), energy),
                "above": energy - hull.at(tuple(shares)),
                "space_group": space_group_of(atoms),
            }  # fmt: skip
    return {
        "decorations": len(rows), "evaluations": evaluations,
        "seconds": time.process_time() - begun, "lowest": lowest,
        "members": [hull.name(s) for s in hull.vertices()],
    }  # fmt: skip


def search(seed: int, budget: int, most: int, changes: dict[str, Any]) -> dict[str, Any]:
    """One search: its hull at the end."""
    settings: dict[str, Any] = {
        "system": {"kind": "crystal", "compositions": "Cu-Au", "max_atoms": most},
        "engine": {"name": "emt"},
        "search": {"seed": seed, "budget": budget},
    }
    for key, value in changes.items():
        section, option = key.split(".", 1)
        settings.setdefault(section, {})[option] = value
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        run = Search.create(make_config(settings), Path(folder) / "run")
        result = run.run()
    return {
        "seed": seed, "evaluations": result.evaluations, "polish": result.polish_evaluations,
        "seconds": time.process_time() - begun,
        "phases": [phase.row() for phase in result.phases],
    }  # fmt: skip


def compare(exact: dict[str, Any], found: dict[str, Any]) -> dict[str, Any]:
    """Members of both hulls, and how far apart the hulls are at every composition."""
    hulls = []
    ours = {phase["formula"]: phase for phase in found["phases"]}
    for rows in (exact["lowest"], ours):
        hull = Hull(ELEMENTS)
        for name in sorted(rows):
            energy = rows[name].get("energy", rows[name].get("enthalpy"))
            hull = hull.including(_shares(name), energy)
        hulls.append(hull)
    apart = [hulls[1].at(_shares(name)) - hulls[0].at(_shares(name)) for name in exact["lowest"]]
    return {
        "members": [hulls[1].name(s) for s in hulls[1].vertices()],
        "highest_above": max(apart), "deepest_below": min(apart),
        "lowest_of_composition": sum(
            name in ours and ours[name]["enthalpy"] <= row["energy"] + 1e-3
            for name, row in exact["lowest"].items()
        ),
        "compositions": len(exact["lowest"]),
    }  # fmt: skip


def _shares(name: str) -> tuple[int, ...]:
    return AboveHull(hull=Hull(ELEMENTS)).hull.shares(Atoms(name))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brute-force", type=Path, metavar="FILE", help="write FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE", help="searches against FILE")
    parser.add_argument("--most", type=int, default=8, help="atoms in a cell")
    parser.add_argument("--seeds", nargs=2, type=int, default=(0, 1), metavar=("FIRST", "END"))
    parser.add_argument("--budget", type=int, default=150)
    parser.add_argument("--set", nargs="*", default=[], metavar="KEY=VALUE")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    changes = {key: json.loads(value) for key, _, value in (t.partition("=") for t in args.set)}
    with threadpool_limits(1):
        if args.brute_force:
            args.brute_force.write_text(json.dumps(brute_force(args.most), indent=1) + "\n")
        if args.compare:
            exact, rows = json.loads(args.compare.read_text()), []
            for seed in range(*args.seeds):
                row = search(seed, args.budget, args.most, changes)
                rows.append({**row, **compare(exact, row)})
                shown = {key: value for key, value in rows[-1].items() if key != "phases"}
                print(json.dumps(shown), flush=True)
            if args.out:
                args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
