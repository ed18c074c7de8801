"""One search with AGOX, in its own environment, through its public interface alone.

    python search_agox.py '{"algorithm": "gofee", "formula": "Au13", "engine": "emt", ...}'

Every call of the engine counts as one evaluation and is written, with its energy and the seconds
of wall and processor (Ray's processes included) since the search began, to evaluations.extxyz.
The search ends at `budget` evaluations or at `limit` processor seconds.
"""

from __future__ import annotations

import contextlib
import json
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from agox.algorithms import (
    GOFEEConfig,
    ProblemConfig,
    ReplicaExchangeConfig,
    RunConfig,
    create_search,
)
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from protocol import processor_seconds

ALGORITHMS = {"gofee": GOFEEConfig, "replica exchange": ReplicaExchangeConfig}


class Enough(BaseException):
    """The budget or the time is used up. No library catches it by accident."""


class Counted(Calculator):
    """An engine that writes down every call."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012 (ASE's way)

    def __init__(self, engine: Calculator, out: Path, budget: int, limit: float) -> None:
        super().__init__()
        self.engine, self.out, self.budget, self.limit = engine, out, budget, limit
        self.calls, self.wall, self.cpu = 0, time.perf_counter(), processor_seconds()

    def calculate(self, atoms: Any = None, wanted: Any = None, changes: Any = all_changes) -> None:
        super().calculate(atoms, wanted, changes)
        if self.calls >= self.budget:
            raise Enough
        plain = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
        plain.calc = self.engine
        energy, forces = plain.get_potential_energy(), plain.get_forces()
        self.results = {"energy": energy, "forces": forces}
        self.calls += 1
        cpu = processor_seconds() - self.cpu
        plain.calc = SinglePointCalculator(plain, energy=energy, forces=forces)
        plain.info.update(cpu=cpu, wall=time.perf_counter() - self.wall)
        write(self.out / "evaluations.extxyz", plain, append=True)
        if cpu > self.limit:
            raise Enough


def engine(name: str) -> Calculator:
    """EMT, or Lennard-Jones with every pair counted and bonds that suit gold's radii."""
    return EMT() if name == "emt" else LennardJones(sigma=2.5, epsilon=1.0, rc=2500.0)


def main(told: dict[str, Any]) -> None:
    out = Path(told["out"]).resolve()
    cell, periodic = np.array(told["cell"]), told["periodic"]
    box = {} if periodic else {"confinement_cell": cell / 2, "confinement_corner": cell.sum(0) / 4}
    calculator = Counted(engine(told["engine"]), out, told["budget"], told["limit"])
    search = create_search(
        algorithm=ALGORITHMS[told["algorithm"]](),
        problem=ProblemConfig(
            template=Atoms(cell=cell, pbc=periodic),
            symbols=told["formula"],
            calculator=calculator,
            **box,
        ),
        run=RunConfig(seed=told["seed"], path=out, cpu_count=1),
    )
    with contextlib.suppress(Enough):
        search.run(iterations=100_000)
    print(f"{calculator.calls} evaluations", flush=True)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
