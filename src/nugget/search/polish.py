"""Final relaxations: the lowest distinct structures of a search are relaxed with the engine.

The evaluations of final relaxations are rows of their own kind in the database. The search does not
learn from them, and they have a limit of their own (`search.polish_calls`), which the lowest
structure may use first. An interrupted relaxation continues from them. For a search over
compositions, the convex hull is written as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.io import write

from nugget.engines.outcome import Outcome
from nugget.engines.plausibility import PlausibilityCheck
from nugget.engines.queue import EvaluationQueue
from nugget.relax.engine_relaxation import EngineRelaxation, relax_through
from nugget.relax.relaxation import Relaxed
from nugget.search.record import PolishStep, Record
from nugget.search.search_settings import Config
from nugget.search.store import BEST, CIF, MINIMA, Store
from nugget.storage.files import replacing, write_atomically
from nugget.structures.identity import conventional
from nugget.structures.symmetry import point_group, space_group_of
from nugget.systems.goal import SAME, Goal, Hull, LowestEnergy
from nugget.systems.system_settings import kind_of, make_goal

MAX_EVALUATIONS = 150  # of one structure


PROBES = 3  # soft modes that are probed before a structure counts as a minimum


@dataclass(frozen=True, eq=False)
class Minimum:
    """A structure after its final relaxation."""

    relaxed: Relaxed
    start: int  # iteration it was relaxed from; negative: from before the search
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
        """With energy and forces; further properties are in `info`."""
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
    """Relaxes evaluated structures with the engine, `search.in_flight` at a time."""

    def __init__(
        self,
        store: Store,
        config: Config,
        executor: Executor | None = None,
        stopping: Callable[[], bool] = lambda: False,
        watch: Callable[[PolishStep], None] = lambda step: None,
        isolated: Callable[[], Mapping[int, float]] = dict,
        calls: float = np.inf,
    ) -> None:
        self.store, self.executor, self.stopping, self.watch = store, executor, stopping, watch
        self.isolated = isolated  # energies of isolated atoms
        self.engine = config.engine.model_copy(update={"relax_steps": 0})
        self.system, self.goal = config.system, make_goal(config.system)
        self.width, self.fmax = config.search.in_flight, config.search.final_fmax
        self.calls = calls  # the most evaluations of all relaxations together
        self.steps = store.polish_steps()
        self.interrupted = False  # were relaxations of the last call left unfinished?

    def relax(self, records: Sequence[Record]) -> list[Relaxed]:
        """Relax evaluated structures; earlier steps of these relaxations are used."""
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
                judge=self._plausibility_check(records),
            ) as queue:
                relax_through(queue, runs, seen, lambda: self._is_full(len(queue)))
        self.interrupted = any(not run.done for run in runs.values())
        for start, run in runs.items():
            self.store.log(f"polish of evaluation {start}: {run.result().reason}")
        return [run.result() for run in runs.values()]

    def _is_full(self, in_flight: int) -> bool:
        """Are no further evaluations to be submitted?"""
        return self.stopping() or len(self.steps) + in_flight >= self.calls

    def _begun(self, record: Record) -> EngineRelaxation:
        """The relaxation of an evaluated structure, advanced by its earlier steps."""
        run = kind_of(self.system).engine_relaxation(
            self.system, record.atoms, self.fmax, MAX_EVALUATIONS, PROBES
        )
        if "forces" in record.atoms.calc.results:  # what was learned before may have none
            run.observe(record.atoms)
        for step in self.steps:
            if step.start == record.iteration and not run.done:
                run.observe(step.atoms if step.ok else None)
        return run

    def _write_down(self, start: int, number: int, outcome: Outcome) -> None:
        step = PolishStep(
            start,
            number,
            outcome.atoms,
            str(outcome.failure or ""),  # plain text, for the digest of the row
            outcome.reason,
            outcome.seconds,
        )
        self.store.append_polish(step)
        self.steps.append(step)
        self.watch(step)

    def _plausibility_check(self, records: Sequence[Record]) -> PlausibilityCheck:
        """Compares results with the relaxed evaluations and the steps of their relaxations."""

        def earlier(atoms: Atoms) -> list[Atoms]:
            known = [one.atoms for one in records] + [s.atoms for s in self.steps if s.ok]
            return [one for one in known if self.goal.comparable(atoms, one)]

        return PlausibilityCheck(earlier, isolated=self.isolated)


def lowest_distinct(
    records: Sequence[Record],
    count: int,
    goal: Goal = LowestEnergy(),  # noqa: B008 (frozen)
) -> list[Record]:
    """The lowest evaluations with different bond graphs."""
    memory = goal.memory(coarse=True)
    chosen: list[Record] = []
    good = [one for one in records if one.ok]
    for record in sorted(good, key=lambda one: goal.order(one.atoms, one.energy)):
        if len(chosen) == count:
            break
        if record.atoms not in memory:
            memory.add(record.atoms)
            chosen.append(record)
    return chosen


def distinct_minima(
    records: Sequence[Record],
    starts: Sequence[Record],
    relaxed: Sequence[Relaxed],
    goal: Goal = LowestEnergy(),  # noqa: B008 (frozen)
) -> list[Minimum]:
    """Distinct structures among the relaxed ones, the lowest first."""
    images = [record.atoms for record in records if record.ok]
    memory = goal.memory()
    minima: list[Minimum] = []
    pairs = [(a, b) for a, b in zip(starts, relaxed, strict=True) if np.isfinite(b.energy)]
    pairs.sort(key=lambda pair: goal.order(pair[1].atoms, pair[1].energy))
    for start, end in pairs:
        if memory.find(end.atoms, end.energy) is not None:
            continue
        memory.add(end.atoms, end.energy)
        met = goal.count([start.atoms, end.atoms], images)
        group = "" if end.atoms.pbc.any() else point_group(end.atoms)
        minima.append(Minimum(end, start.iteration, met, group, goal.value(end.atoms, end.energy)))
    return minima


def lowest_minimum(minima: Sequence[Minimum]) -> Minimum | None:
    """The minimum that a search reports: the lowest that has converged, else the lowest."""
    return next((one for one in minima if one.relaxed.converged), next(iter(minima), None))


def write_minima(directory: Path, minima: Sequence[Minimum]) -> None:
    """Write all to minima.extxyz, and the lowest converged one to best.extxyz.

    Crystals are written to minima.cif as well.
    """
    if not minima:
        return
    if all(one.space_group for one in minima):
        with replacing(directory / CIF) as partial:
            write(partial, [conventional(one.relaxed.atoms) for one in minima], format="cif")
    with replacing(directory / MINIMA) as partial:
        write(partial, [one.atoms for one in minima], format="extxyz")
    lowest = lowest_minimum(minima)
    assert lowest is not None
    with replacing(directory / BEST) as partial:
        write(partial, lowest.atoms, format="extxyz")


HULL, FIGURE = "hull.json", "hull.png"


@dataclass(frozen=True)
class Phase:
    """The lowest crystal of one composition. Enthalpies are in eV/atom."""

    formula: str
    composition: dict[str, float]  # shares of the elements, which add up to 1
    atoms: int  # in the cell
    enthalpy: float
    formation: float  # relative to the elements
    above_hull: float  # 0: stable against decomposition
    stable: bool
    space_group: str
    start: int  # the evaluation that it is or was relaxed from; negative: from before the search
    relaxed: bool  # with the engine, and converged

    def row(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)


def make_phases(
    goal: Goal, records: Sequence[Record], minima: Sequence[Minimum]
) -> tuple[Phase, ...]:
    """The lowest crystal of each evaluated composition; none before all elements are evaluated.

    The hull is decided by the minima, which were relaxed with the engine. If they do not span it,
    no phase counts as stable, and distances refer to the hull of all evaluations. If nothing was
    relaxed (search.polish = 0), the evaluations decide, and all phases are marked as unrelaxed.
    `goal` knows the records and the minima. What is relaxed comes first among equals.
    """
    if goal.hull is None:
        return ()
    relaxed_hull = _hull_of(goal, [(one.atoms, one.energy) for one in minima])
    hull = relaxed_hull if relaxed_hull.complete else goal.hull
    if not hull.complete:
        return ()
    known: Iterable[tuple[Atoms, float, int, bool]] = [
        *((one.atoms, one.energy, one.start, one.relaxed.converged) for one in minima),
        *((one.atoms, one.energy, one.iteration, False) for one in records if one.ok),
    ]
    lowest: dict[tuple[int, ...], tuple[float, Atoms, int, bool]] = {}
    for atoms, energy, start, relaxed in known:
        shares, value = hull.shares(atoms), goal.enthalpy(atoms, energy)
        if shares not in lowest or value < lowest[shares][0] - SAME:
            lowest[shares] = (value, atoms, start, relaxed)
    vertices = hull.vertices() if hull is relaxed_hull or not minima else []
    phases = []
    for shares in sorted(lowest, key=lambda s: [-n / sum(s) for n in s]):
        value, atoms, start, relaxed = lowest[shares]
        formation = hull.formation(shares, value)
        assert formation is not None
        symbols = hull.symbols
        phases.append(
            Phase(
                hull.name(shares),
                {s: n / sum(shares) for s, n in zip(symbols, shares, strict=True)},
                len(atoms),
                value,
                formation,
                max(value - hull.at(shares), 0.0),
                shares in vertices,
                space_group_of(atoms),
                start,
                relaxed,
            )
        )
    return tuple(phases)


def _hull_of(goal: Goal, evaluated: Iterable[tuple[Atoms, float]]) -> Hull:
    assert goal.hull is not None
    hull = Hull(goal.hull.elements)
    for atoms, energy in evaluated:
        hull = hull.including(hull.shares(atoms), goal.enthalpy(atoms, energy))
    return hull


def below_relaxed_hull(
    goal: Goal,
    records: Sequence[Record],
    starts: Sequence[Record],
    relaxed: Sequence[Relaxed],
) -> list[Record]:
    """The lowest evaluation of each composition that lies below the hull of the relaxed phases.

    Elements that were not relaxed yet are included; evaluations among `starts` are not.
    """
    if goal.hull is None or not goal.hull.complete:
        return []
    hull = _hull_of(goal, [(r.atoms, r.energy) for r in relaxed if np.isfinite(r.energy)])
    lowest: dict[tuple[int, ...], Record] = {}
    for record in sorted(
        (one for one in records if one.ok), key=lambda one: goal.enthalpy(one.atoms, one.energy)
    ):
        lowest.setdefault(hull.shares(record.atoms), record)
    if not hull.complete:
        needed = [shares for shares in hull.ends if shares not in hull.points]
    else:
        needed = [
            shares
            for shares, one in lowest.items()
            if goal.enthalpy(one.atoms, one.energy) < hull.at(shares) - SAME
        ]
    return [lowest[s] for s in needed if s in lowest and lowest[s] not in starts]


def write_phases(directory: Path, phases: Sequence[Phase], pressure: float) -> None:
    """Write hull.json with all compositions and their stability."""
    if phases:
        table = {
            "unit": "eV/atom",
            "pressure_GPa": pressure,
            "stable": [phase.formula for phase in phases if phase.stable],
            "phases": [phase.row() for phase in phases],
        }
        write_atomically(directory / HULL, json.dumps(table, indent=1) + "\n")
