"""The end of a search: its lowest distinct structures are relaxed with the engine.

The evaluations of these relaxations stand in the database as records of their own kind. The search
never learns from them, and they do not count for its budget. A relaxation that was broken off goes
on from them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import write
from ase.units import GPa

from nugget.evaluation.outcome import Outcome
from nugget.evaluation.plausibility import Judge, doubt
from nugget.evaluation.queue import EvaluationQueue
from nugget.identity.crystal import conventional
from nugget.identity.point_group import point_group
from nugget.relax.cell_engine import CellRelaxation
from nugget.relax.learning import EngineRelaxed, LearningRelaxation
from nugget.relax.queued import EngineRelaxation, relax_through
from nugget.search.config import Config
from nugget.search.goal import Goal, LowestEnergy, make_goal
from nugget.search.polish_step import PolishStep, energy_of
from nugget.search.store import BEST, CIF, MINIMA, Record, Store
from nugget.structures.files import replacing
from nugget.structures.symmetry import space_group_of

FMAX = 0.05  # eV/Å
MAX_EVALUATIONS = 150  # of one structure
PROBES = 3  # soft modes that are tried before a structure counts as a minimum


@dataclass(frozen=True, eq=False)
class Minimum:
    """A relaxed structure of a search."""

    relaxed: EngineRelaxed
    start: int  # iteration of the evaluation that it was relaxed from; negative: learned before
    met: int  # evaluations of the search with its bonds, or with those of its start
    point_group: str  # empty for periodic structures
    value: float  # what the search minimises: the energy, or a crystal's enthalpy per atom

    @property
    def energy(self) -> float:
        return self.relaxed.energy

    @cached_property
    def space_group(self) -> str:
        """Of crystals, as Fd-3m (227), with a tolerance of 0.1 Å; empty for others."""
        return space_group_of(self.relaxed.atoms) if self.relaxed.atoms.pbc.all() else ""

    @property
    def atoms(self) -> Atoms:
        """With energy and forces, and what is known of it in `info`."""
        atoms = self.relaxed.atoms.copy()
        atoms.calc = self.relaxed.atoms.calc
        atoms.info = {
            "fmax": self.relaxed.fmax,
            "converged": self.relaxed.converged,
            "start": self.start,
            "met": self.met,
        }
        if self.point_group:
            atoms.info["point_group"] = self.point_group
        if self.space_group:
            atoms.info["space_group"] = self.space_group
        return atoms


class Polisher:
    """Relaxes evaluations of a search with the engine, as many at a time as the settings allow."""

    def __init__(
        self,
        store: Store,
        config: Config,
        executor: Executor | None = None,
        stopping: Callable[[], bool] = lambda: False,
        watch: Callable[[PolishStep], None] = lambda step: None,
    ) -> None:
        self.store, self.executor, self.stopping, self.watch = store, executor, stopping, watch
        self.engine = config.engine.model_copy(update={"relax_steps": 0})
        self.system, self.goal = config.system, make_goal(config.system)
        self.width = config.search.in_flight
        self.steps = store.polish_steps()

    def relax(self, records: Sequence[Record]) -> list[EngineRelaxed]:
        """Relax evaluations, going on from what was done before."""
        runs = {record.iteration: self._begun(record) for record in records}
        active = sum(not run.done for run in runs.values())
        if active and not self.stopping():

            def seen(start: int, outcome: Outcome) -> None:
                self._write_down(start, runs[start].evaluations, outcome)

            with EvaluationQueue(
                self.engine,
                min(self.width, active),
                self.executor,
                directory=self.store.directory,
                judge=self._judge(records),
            ) as queue:
                relax_through(queue, runs, seen, self.stopping)
        for start, run in runs.items():
            self.store.log(f"polish of evaluation {start}: {run.result().reason}")
        return [run.result() for run in runs.values()]

    def _begun(self, record: Record) -> EngineRelaxation:
        """The relaxation of an evaluation, with all that is known of it."""
        run: EngineRelaxation
        if self.system.kind == "crystal":
            pressure = self.system.pressure * GPa
            run = CellRelaxation(record.atoms, FMAX, MAX_EVALUATIONS, pressure)
        else:
            run = LearningRelaxation(record.atoms, FMAX, MAX_EVALUATIONS, PROBES)
        if "forces" in record.atoms.calc.results:  # what was learned before may have none
            run.observe(record.atoms)
        for step in self.steps:
            if step.start == record.iteration and not run.done:
                run.observe(step.atoms if step.ok else None)
        return run

    def _write_down(self, start: int, number: int, outcome: Outcome) -> None:
        step = PolishStep(
            start, number, outcome.atoms, outcome.failure or "", outcome.reason, outcome.seconds
        )
        self.store.append_polish(step)
        self.steps.append(step)
        self.watch(step)

    def _judge(self, records: Sequence[Record]) -> Judge:
        """Judges results by the evaluations that are relaxed and by those of their relaxations."""

        def judge(atoms: Atoms) -> str | None:
            known = [one.atoms for one in records] + [s.atoms for s in self.steps if s.ok]
            known = [one for one in known if "forces" in one.calc.results]
            known = [one for one in known if self.goal.comparable(atoms, one)]
            energies = [energy_of(one) / len(one) for one in known]
            forces = [_largest(one) for one in known]
            return doubt(atoms, energies, forces)

        return judge


def _largest(atoms: Atoms) -> float:
    return float(np.max(np.linalg.norm(atoms.calc.results["forces"], axis=1)))


def lowest_distinct(
    records: Sequence[Record],
    count: int,
    goal: Goal = LowestEnergy(),  # noqa: B008 (frozen)
) -> list[Record]:
    """The lowest evaluations that differ in their bonds."""
    known = goal.memory(coarse=True)
    chosen: list[Record] = []
    good = [one for one in records if one.ok]
    for record in sorted(good, key=lambda one: goal.order(one.atoms, one.energy)):
        if len(chosen) == count:
            break
        if record.atoms not in known:
            known.add(record.atoms)
            chosen.append(record)
    return chosen


def distinct_minima(
    records: Sequence[Record],
    starts: Sequence[Record],
    relaxed: Sequence[EngineRelaxed],
    goal: Goal = LowestEnergy(),  # noqa: B008 (frozen)
) -> list[Minimum]:
    """The different ones among relaxed structures, the lowest first."""
    images = [record.atoms for record in records if record.ok]
    known = goal.memory()
    minima: list[Minimum] = []
    pairs = [(a, b) for a, b in zip(starts, relaxed, strict=True) if np.isfinite(b.energy)]
    pairs.sort(key=lambda pair: goal.order(pair[1].atoms, pair[1].energy))
    for start, end in pairs:
        if known.find(end.atoms, end.energy) is not None:
            continue
        known.add(end.atoms, end.energy)
        met = goal.count([start.atoms, end.atoms], images)
        group = "" if end.atoms.pbc.any() else point_group(end.atoms)
        minima.append(Minimum(end, start.iteration, met, group, goal.value(end.atoms, end.energy)))
    return minima


def write_minima(directory: Path, minima: Sequence[Minimum]) -> None:
    """minima.extxyz with all of them, and best.extxyz with the lowest that is converged.

    Crystals are written to minima.cif too.
    """
    if not minima:
        return
    if all(one.space_group for one in minima):
        with replacing(directory / CIF) as partial:
            write(partial, [conventional(one.relaxed.atoms) for one in minima], format="cif")
    with replacing(directory / MINIMA) as partial:
        write(partial, [one.atoms for one in minima], format="extxyz")
    converged = [one for one in minima if one.relaxed.converged]
    with replacing(directory / BEST) as partial:
        write(partial, (converged or minima)[0].atoms, format="extxyz")
