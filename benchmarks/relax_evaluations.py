"""Evaluations that a relaxation needs: ours and ASE's optimisers, from the same random starts.

    python benchmarks/relax_evaluations.py [--structures 30] [--fmax 0.05 0.001]

Prints a table and writes results/relax_evaluations.json. Counts do not depend on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from ase.calculators.emt import EMT
from ase.optimize import BFGS, FIRE, LBFGS
from common import save

from nugget.generators.random_cluster import RandomCluster
from nugget.relax import on_calculator, relax
from nugget.systems import PlacedAtoms

STEPS = 1000


class FastLennardJones(Calculator):
    """All pairs at once; ASE's own builds a neighbour list at every step."""

    implemented_properties = ("energy", "forces")

    def calculate(
        self, atoms: Any = None, properties: Any = None, system_changes: Any = all_changes
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        x = self.atoms.positions
        d = x[:, None] - x[None]
        r2 = (d**2).sum(-1) + np.eye(len(x))
        q = (2.5**2 / r2) ** 3
        np.fill_diagonal(q, 0.0)
        forces = 24 * 0.4 * (((2 * q * q - q) / r2)[:, :, None] * d).sum(axis=1)
        self.results = {"energy": 2 * 0.4 * (q * q - q).sum(), "forces": forces}


SYSTEMS: dict[str, tuple[str, Callable[[], Calculator]]] = {
    "Au13 EMT": ("Au13", EMT),
    "Au20 EMT": ("Au20", EMT),
    "LJ19": ("Au19", FastLennardJones),
}


def ours(images: list[Atoms], make: Callable[[], Calculator], fmax: float, up_to: int) -> Any:
    results = relax(images, on_calculator(make()), fmax=fmax, steps=STEPS, precondition_up_to=up_to)
    return [(r.evaluations, r.energy, r.converged) for r in results]


def ase(optimiser: Any, images: list[Atoms], make: Callable[[], Calculator], fmax: float) -> Any:
    rows = []
    for image in images:
        atoms = image.copy()
        atoms.calc = make()
        opt = optimiser(atoms, logfile=None)
        converged = opt.run(fmax=fmax, steps=STEPS)
        rows.append((opt.nsteps + 1, atoms.get_potential_energy(), bool(converged)))
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--structures", type=int, default=30)
    parser.add_argument("--fmax", type=float, nargs="+", default=[0.05, 0.001])
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    methods: dict[str, Callable[..., Any]] = {
        "nugget": lambda *a: ours(*a, 64),
        "nugget, no springs": lambda *a: ours(*a, 0),
        "ASE LBFGS": lambda *a: ase(LBFGS, *a),
        "ASE BFGS": lambda *a: ase(BFGS, *a),
        "ASE FIRE": lambda *a: ase(FIRE, *a),
    }
    table = []
    print(f"{'system':10s} {'fmax':>6s} {'method':20s} {'mean':>7s} {'median':>7s} {'max':>5s} "
          f"{'converged':>9s} {'mean energy':>12s}")  # fmt: skip
    for name, (formula, make) in SYSTEMS.items():
        rng = np.random.default_rng(args.seed)
        problem = PlacedAtoms.cluster(formula)
        images = [RandomCluster()(rng, problem) for _ in range(args.structures)]
        for fmax in args.fmax:
            for method, run in methods.items():
                counts, energies, converged = map(
                    np.array, zip(*run(images, make, fmax), strict=True)
                )
                row = {
                    "system": name, "fmax": fmax, "method": method,
                    "mean": float(counts.mean()), "median": float(np.median(counts)),
                    "max": int(counts.max()), "converged": int(converged.sum()),
                    "structures": len(images), "mean_energy": float(energies.mean()),
                }  # fmt: skip
                table.append(row)
                print(f"{name:10s} {fmax:6g} {method:20s} {row['mean']:7.1f} {row['median']:7.1f} "
                      f"{row['max']:5d} {row['converged']:6d}/{len(images)} "
                      f"{row['mean_energy']:12.3f}", flush=True)  # fmt: skip
    save("relax_evaluations", table)


if __name__ == "__main__":
    main()
