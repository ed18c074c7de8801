"""Relaxation of atoms and cells: ours in lockstep against ASE's FrechetCellFilter with BFGS.

    python benchmarks/cell_relaxation.py --crystals 50 --out cells.json

Starts are known crystals, strained by 6 % and shaken by 0.1 Å, so that both should find the same
minima. First with an engine (EMT, Tersoff), evaluation by evaluation. Then on a model (the mean of
a Gaussian process that was fitted to 40 such crystals), where ours takes all of them at once.
Processor time, one thread.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator
from ase.filters import FrechetCellFilter
from ase.optimize import BFGS
from ase.spacegroup import crystal
from threadpoolctl import threadpool_limits

from nugget.engines.task import Task
from nugget.presets import balanced
from nugget.relax.cell_relaxation import CellSurface, cells_on_calculator, relax_cells
from nugget.structures.geometry import reduced
from nugget.structures.identity import same_crystal

FMAX, STEPS = 0.01, 300
L12 = crystal(
    ["Cu", "Au"], [(0, 0.5, 0.5), (0, 0, 0)], spacegroup=221, cellpar=[3.8] * 3 + [90] * 3
)
KNOWN = {
    "Cu3Au, 4 atoms": ("emt", L12),
    "Cu3Au, 8 atoms": ("emt", L12.repeat((2, 1, 1))),
    "SiC, 8 atoms": ("tersoff", bulk("SiC", "zincblende", a=4.36, cubic=True)),
}


def disturbed(atoms: Atoms, rng: np.random.Generator, strain: float = 0.06) -> Atoms:
    out = atoms.copy()
    bent = rng.normal(0.0, strain, (3, 3))
    out.set_cell(out.cell.array @ (np.eye(3) + 0.5 * (bent + bent.T)), scale_atoms=True)
    out.positions += rng.normal(0.0, 0.1, (len(out), 3))
    return reduced(out)


def with_ase(images: list[Atoms], calculator: Any) -> tuple[list[Atoms], int, float]:
    """Relaxed crystals, evaluations and seconds."""
    ends, evaluations, begun = [], 0, time.process_time()
    for atoms in images:
        work = atoms.copy()
        work.calc = calculator
        optimiser = BFGS(FrechetCellFilter(work), logfile=None)
        optimiser.run(fmax=FMAX, steps=STEPS)
        evaluations += optimiser.nsteps + 1
        energy = work.get_potential_energy()
        work.calc = SinglePointCalculator(work, energy=energy)
        ends.append(work)
    return ends, evaluations, time.process_time() - begun


def compare(name: str, images: list[Atoms], surface: CellSurface, calculator: Any,
            cutoff: float | None = None) -> dict[str, Any]:  # fmt: skip
    begun = time.process_time()
    ours = relax_cells(images, surface, FMAX, STEPS, cutoff=cutoff)
    seconds = time.process_time() - begun
    theirs, evaluations, their_seconds = with_ase(images, calculator)
    apart = np.array([
        (a.energy - b.get_potential_energy()) / len(b) for a, b in zip(ours, theirs, strict=True)
    ])  # fmt: skip
    same = [same_crystal(a.atoms, b) for a, b in zip(ours, theirs, strict=True)]
    row = {
        "name": name, "crystals": len(images), "converged": sum(one.converged for one in ours),
        "evaluations": sum(one.evaluations for one in ours), "evaluations_ase": evaluations,
        "seconds": seconds, "seconds_ase": their_seconds, "same_minimum": int(np.sum(same)),
        "lower": int(np.sum(apart < -1e-3)), "higher": int(np.sum(apart > 1e-3)),
        "largest_difference_where_same": float(np.abs(apart[np.array(same)]).max(initial=0.0)),
    }  # fmt: skip
    print(json.dumps(row), flush=True)
    return row


def labelled(images: list[Atoms], calculator: Any) -> list[Atoms]:
    for atoms in images:
        values = {p: calculator.get_property(p, atoms) for p in ("energy", "forces", "stress")}
        atoms.calc = SinglePointCalculator(atoms, **values)
    return images


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--crystals", type=int, default=50)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    rng, rows = np.random.default_rng(0), []
    with threadpool_limits(1):
        for name, (engine, atoms) in KNOWN.items():
            calculator = Task(name=engine).calculator()
            few = args.crystals if engine == "emt" else 10  # ASE's Tersoff is slow
            images = [disturbed(atoms, rng) for _ in range(few)]
            surface = cells_on_calculator(calculator)
            rows.append(compare(f"{name}, {engine}", images, surface, calculator))
        calculator = Task(name="emt").calculator()
        data = labelled([disturbed(KNOWN["Cu3Au, 8 atoms"][1], rng) for _ in range(40)], calculator)
        potential = balanced(["Cu", "Au"], data).fit(data, use_stress=True)
        images = [disturbed(KNOWN["Cu3Au, 8 atoms"][1], rng, 0.03) for _ in range(args.crystals)]
        for shown in (images[:1], images):  # the first time is for compiling
            mean = potential.lcb(0.0)
            row = compare("Cu3Au, 8 atoms, model", shown, mean.on_cells, potential.calculator(),
                          potential.descriptor.cutoff)  # fmt: skip
        rows.append(row)
    if args.out:
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
