"""Evaluations that a relaxation with an expensive engine needs: ours and ASE's, same starts.

    python benchmarks/relax_engine.py [--starts 6] [--seed 2] [--systems Au13 slab] [--no-gpmin]

Half of a cluster's starts are minima with displaced atoms, as a good model leaves them; half are
random clusters after a few steps in a pair potential. Prints a table and writes
results/relax_engine.json. Counts do not depend on the machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk, fcc111, molecule
from ase.calculators.calculator import CalculationFailed, Calculator
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.optimize import BFGS, LBFGS, GPMin
from common import save, table

from nugget.engines import make_calculator
from nugget.generators.random_cluster import RandomCluster
from nugget.potential.mean_functions.pair_terms import PairWell
from nugget.relax import relax, relax_with_engine
from nugget.systems import PlacedAtoms

FMAX, STEPS = 0.05, 300
GPMIN_STEPS = 80  # its cost grows with the cube of these; more would take hours
Make = Callable[[], Calculator]
Starts = Callable[[np.random.Generator, int, Make], Atoms]


def cluster(formula: str) -> Starts:
    def start(rng: np.random.Generator, k: int, make: Make) -> Atoms:
        atoms = RandomCluster()(rng, PlacedAtoms.cluster(formula))
        atoms = relax([atoms], PairWell(), steps=6 if k % 2 else 60)[0].atoms
        if k % 2 == 0:
            atoms.calc = make()
            LBFGS(atoms, logfile=None).run(fmax=0.1, steps=150)
            atoms.calc = None
            atoms.positions += rng.normal(scale=0.08, size=atoms.positions.shape)
        return atoms

    return start


def water(rng: np.random.Generator, k: int, make: Make) -> Atoms:
    """Four molecules about a square or a tetrahedron, turned at random."""
    square = np.array([[1, 1, 0], [1, -1, 0], [-1, -1, 0], [-1, 1, 0]]) * 1.4
    corners = np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]) * 1.03
    molecules = np.arange(12) // 3
    while True:
        atoms = Atoms()
        for centre in (square if k % 2 else corners) + rng.normal(scale=0.2, size=(4, 3)):
            one = molecule("H2O")
            one.rotate(rng.uniform(0, 360), rng.normal(size=3))
            one.positions += centre - one.positions[0]
            atoms += one
        apart = atoms.get_all_distances()[molecules[:, None] != molecules]
        if apart.min() > 1.5:
            atoms.positions += rng.normal(scale=0.04, size=(12, 3))
            return atoms


def dimer(name: str, distance: float) -> Starts:
    """Two molecules at a distance (Å), one of them turned at random: soft modes."""

    def start(rng: np.random.Generator, k: int, make: Make) -> Atoms:
        one, other = molecule(name), molecule(name)
        other.rotate(rng.uniform(0, 360), rng.normal(size=3))
        other.positions += [distance, 0.3, 0.2]
        return one + other

    return start


def slab(rng: np.random.Generator, k: int, make: Make) -> Atoms:
    """One to three gold atoms on Cu(111); the lowest layer is fixed."""
    atoms = fcc111("Cu", (3, 3, 3), vacuum=8.0)
    fixed = atoms.get_tags() == 3
    height = atoms.positions[:, 2].max() + 2.2
    for _ in range(1 + k % 3):
        while True:
            place = rng.uniform(size=3) @ atoms.cell.array
            trial = atoms + Atoms("Au", [[place[0], place[1], height]])
            if trial.get_distances(-1, range(len(atoms)), mic=True).min() > 2.2:
                atoms = trial
                break
    atoms.info = {}
    atoms.positions[9:] += rng.normal(scale=0.08, size=(len(atoms) - 9, 3))
    atoms.set_constraint(FixAtoms(np.flatnonzero(fixed)))
    return atoms


def alloy(rng: np.random.Generator, k: int, make: Make) -> Atoms:
    """Cu25Au6 with a vacancy, all atoms displaced."""
    atoms = bulk("Cu", cubic=True) * (2, 2, 2)
    atoms.numbers[rng.choice(32, 6, replace=False)] = 79
    atoms.set_cell(1.03 * atoms.cell, scale_atoms=True)
    del atoms[int(rng.integers(32))]
    atoms.positions += rng.normal(scale=0.12, size=atoms.positions.shape)
    return atoms


def stiff_ethanol(rng: np.random.Generator, k: int, make: Make) -> Atoms:
    """Displaced only: BFGS begins with the stiffness of such bonds, and is at its best."""
    atoms = molecule("CH3CH2OH")
    atoms.positions += rng.normal(scale=0.1, size=atoms.positions.shape)
    return atoms


def ethanol(rng: np.random.Generator, k: int, make: Make) -> Atoms:
    """Turned about its C–C and C–O bonds, as conformers are searched, and displaced."""
    atoms = molecule("CH3CH2OH")  # C C O H H H H H H
    for axis, moving in (((0, 1), [6, 7, 8]), ((0, 2), [3])):
        part = atoms[moving]
        direction = atoms.positions[axis[1]] - atoms.positions[axis[0]]
        part.rotate(rng.uniform(0, 360), direction, center=atoms.positions[axis[1]])
        atoms.positions[moving] = part.positions
    atoms.positions += rng.normal(scale=0.05, size=atoms.positions.shape)
    return atoms


SYSTEMS: dict[str, tuple[str, Starts]] = {
    "Au13": ("emt", cluster("Au13")),
    "Cu5Au8": ("emt", cluster("Cu5Au8")),
    "Si10": ("gfn1-xtb", cluster("Si10")),
    "Au20": ("gfn1-xtb", cluster("Au20")),
    "Na8Cl8": ("gfn1-xtb", cluster("Na8Cl8")),
    "Mg6O6": ("gfn1-xtb", cluster("Mg6O6")),
    "4 H2O": ("gfn1-xtb", water),
    "2 H2O": ("gfn2-xtb", dimer("H2O", 3.0)),
    "2 NH3": ("gfn2-xtb", dimer("NH3", 3.3)),
    "2 CH3OH": ("gfn2-xtb", dimer("CH3OH", 4.0)),
    "2 HCOOH": ("gfn2-xtb", dimer("HCOOH", 4.0)),
    "ethanol": ("gfn2-xtb", ethanol),
    "ethanol, displaced": ("gfn2-xtb", stiff_ethanol),
    "Au on Cu(111)": ("emt", slab),
    "Cu25Au6 bulk": ("emt", alloy),
}


def ours(image: Atoms, make: Make, probes: int) -> tuple[int, float, bool]:
    calculator = make()

    def evaluate(atoms: Atoms) -> Atoms | None:
        try:
            energy = calculator.get_potential_energy(atoms)
            forces = calculator.get_forces(atoms)
        except CalculationFailed:
            return None
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
        return atoms

    done = relax_with_engine([image], evaluate, FMAX, STEPS, probes)[0]
    return done.evaluations, done.energy, done.converged


def ase(optimiser: Any, image: Atoms, make: Make) -> tuple[int, float, bool]:
    atoms = image.copy()
    atoms.calc = make()
    run = optimiser(atoms, logfile=None)
    try:
        converged = run.run(fmax=FMAX, steps=GPMIN_STEPS if optimiser is GPMin else STEPS)
    except CalculationFailed:
        return run.nsteps + 1, float("nan"), False
    return run.nsteps + 1, float(atoms.get_potential_energy()), bool(converged)


METHODS: dict[str, Callable[[Atoms, Make], tuple[int, float, bool]]] = {
    "nugget": lambda *a: ours(*a, 0),
    "nugget, minima verified": lambda *a: ours(*a, 3),
    "ASE BFGS": lambda *a: ase(BFGS, *a),
    "ASE LBFGS": lambda *a: ase(LBFGS, *a),
    "ASE GPMin": lambda *a: ase(GPMin, *a),
}


def measure(name: str, starts: int, seed: int, methods: list[str]) -> dict[str, Any]:
    engine, build = SYSTEMS[name]

    def make() -> Calculator:
        return make_calculator(engine)

    rng = np.random.default_rng([seed, list(SYSTEMS).index(name)])
    images: list[Atoms] = []
    forces: list[float] = []
    while len(images) < starts:
        try:
            image = build(rng, len(images), make)
            atoms = image.copy()
            atoms.calc = make()
            forces.append(float(np.linalg.norm(atoms.get_forces(), axis=1).max()))
        except CalculationFailed:  # a start that the engine cannot compute is drawn anew
            continue
        images.append(image)
    rows: dict[str, Any] = {}
    for method in methods:
        counts, energies, converged = zip(
            *(METHODS[method](image, make) for image in images), strict=True
        )
        rows[method] = {
            "evaluations": counts, "energies": energies, "converged": sum(converged),
        }  # fmt: skip
        print(f"{name:18s} {method:24s} {sum(counts) / starts:6.1f}  {list(counts)}", flush=True)
    return {"system": name, "engine": engine, "start_fmax": forces, "methods": rows}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--starts", type=int, default=6)
    parser.add_argument("--seed", type=int, default=2)
    parser.add_argument("--systems", nargs="+", default=list(SYSTEMS), choices=list(SYSTEMS))
    parser.add_argument("--no-gpmin", action="store_true", help="GPMin takes most of the time")
    args = parser.parse_args()
    methods = [m for m in METHODS if not (args.no_gpmin and m == "ASE GPMin")]
    results = [measure(name, args.starts, args.seed, methods) for name in args.systems]
    rows = []
    for found in results:
        means = {m: np.mean(found["methods"][m]["evaluations"]) for m in methods}
        ratio = means["nugget"] / means["ASE BFGS"]
        cells = []
        for method in methods:
            missing = args.starts - found["methods"][method]["converged"]
            cells.append(
                f"{means[method]:.1f}" + (f" ({missing} not converged)" if missing else "")
            )
        rows.append([f"{found['system']} ({found['engine']})", *cells, f"{ratio:.2f}"])
    header = ["system", *methods, "nugget / BFGS"]
    table(f"Mean evaluations of {args.starts} relaxations to {FMAX} eV/Å", header, rows)
    save("relax_engine", {"starts": args.starts, "seed": args.seed, "systems": results})


if __name__ == "__main__":
    main()
