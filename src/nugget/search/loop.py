"""The search itself: propose, evaluate, learn, repeat; stop and continue at any moment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sized
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from ase import Atoms
from ase.cell import Cell
from ase.io import write
from threadpoolctl import threadpool_limits

from nugget.errors import NuggetError
from nugget.evaluation.queue import EvaluationQueue
from nugget.generators import Problem
from nugget.search.config import Config, SystemConfig
from nugget.search.learner import Learner
from nugget.search.records import complete, make_judge, make_pending
from nugget.search.reference import beside, is_found, read_references
from nugget.search.replay import Replay, replay
from nugget.search.store import Record, Store
from nugget.structures.io import read_images

BEST = "best.extxyz"


@dataclass(frozen=True, eq=False)
class Status:
    """A look at a running search: what a watcher is given at the start and after each evaluation.

    `record` is the last evaluation, None at the start.
    """

    learner: Learner
    record: Record | None
    budget: int
    found: bool
    engine_seconds: float
    surrogate_seconds: float
    flight: Sized = ()

    @property
    def evaluations(self) -> int:
        return len(self.learner.records)

    @property
    def in_flight(self) -> int:
        """Evaluations under way right now."""
        return len(self.flight)


Watcher = Callable[[Status], None]


@dataclass(frozen=True, eq=False)
class Result:
    """How a search ended."""

    best: Record | None
    evaluations: int
    failures: int
    found: bool  # the reference structure, if there was one
    interrupted: bool
    directory: Path


class Search:
    """A search in a directory. `Search.create` starts one, `Search.resume` continues one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.config = store.config()
        self.problem = make_problem(self.config.system, store.directory)
        self.references = read_references(self.config, store.directory)
        self._stop = False

    @classmethod
    def create(cls, config: Config, directory: str | Path) -> Search:
        """A new search; its directory must not hold one already."""
        directory = Path(directory)
        make_problem(config.system, Path())  # mistakes are found before anything is written
        read_references(config, directory)
        return cls(Store.create(directory, config))

    @classmethod
    def resume(cls, directory: str | Path) -> Search:
        """The search in this directory, to be continued."""
        return cls(Store.open(Path(directory)))

    @classmethod
    def replay(cls, directory: str | Path) -> Replay:
        """Make all proposals of a search again and compare them with its database, bit for bit."""
        search = cls.resume(directory)
        with search.store.locked(), threadpool_limits(1):
            records, pending = search.store.records(), search.store.pending()
            return replay(search.config, search.problem, records, pending)

    def stop(self) -> None:
        """Finish the evaluations in flight, then return."""
        self._stop = True

    def run(
        self,
        watch: Watcher | None = None,
        budget: int | None = None,
        executor: Executor | None = None,
    ) -> Result:
        """Go on until the budget is used, the reference is found or `stop` is called.

        `search.in_flight` evaluations are under way at a time, in processes of this machine or
        wherever `executor` takes them. When the reference has been found, those still in flight
        are broken off; they stay pending and count for nothing.
        """
        budget = self.config.search.budget if budget is None else budget
        with self.store.locked(), threadpool_limits(1):
            learner = Learner(self.config, self.problem)
            engine_seconds = surrogate_seconds = 0.0
            for record in self.store.records():
                learner.learn(record)
                engine_seconds += record.engine_seconds
                surrogate_seconds += record.surrogate_seconds
            if learner.records:
                self.store.log(f"continued after {len(learner.records)} evaluations")
            found = any(self._is_reference(record) for record in learner.good)

            def show(record: Record | None) -> None:
                if watch is not None:
                    times = (engine_seconds, surrogate_seconds)
                    watch(Status(learner, record, budget, found, *times, flight))

            held = self.store.pending()  # in flight when the search ended: submitted as they were
            clock = _Stopwatch()
            relaxed = self.config.engine.relax_steps > 0
            width = self.config.search.in_flight
            flight: dict[int, Record] = {}  # under way, by proposal
            with EvaluationQueue(
                self.config.engine,
                width,
                executor,
                directory=self.store.directory,
                judge=make_judge(learner),
            ) as queue:
                show(None)
                while not found:
                    self._fill(queue, flight, held, learner, budget, clock)
                    if not flight:
                        break
                    # One answer at a time, in the order in which they came, even if there are
                    # more: so the order alone decides who is proposed from what.
                    proposal, outcome = queue.next()
                    record = complete(flight.pop(proposal), len(learner.records), outcome, relaxed)
                    self.store.append(record)
                    self._keep(flight.values(), held)
                    with clock:
                        learner.learn(record)
                    self._report(record, learner)
                    found = self._is_reference(record)
                    engine_seconds += record.engine_seconds
                    surrogate_seconds += record.surrogate_seconds
                    show(record)
                    self._give_up(learner)
                if flight:
                    self.store.log(f"{len(flight)} in flight broken off, they stay pending")
            return self._end(learner, found, budget)

    def _fill(
        self,
        queue: EvaluationQueue,
        flight: dict[int, Record],
        held: list[Record],
        learner: Learner,
        budget: int,
        clock: _Stopwatch,
    ) -> None:
        """Submit as many evaluations as there is room for."""
        while (
            len(flight) < queue.width
            and len(learner.records) + len(flight) < budget
            and not self._stop
        ):
            if held:
                record = held.pop(0)
            else:
                waiting = [flight[proposal] for proposal in sorted(flight)]
                ordinal = len(learner.records) + len(waiting)
                with clock:
                    proposal = learner.propose(ordinal, [other.atoms for other in waiting])
                if proposal is None:
                    self.store.log("nothing new to evaluate: every candidate is known")
                    return  # what is in flight may still teach something new
                kappa = self.config.search.kappa
                record = make_pending(ordinal, len(learner.records), proposal, kappa, clock.take())
            flight[record.proposal] = record
            self._keep(flight.values(), held)  # before it starts, so that no kill can lose it
            queue.submit(record.proposal, record.atoms)

    def _keep(self, flight: Iterable[Record], held: list[Record]) -> None:
        # One at a time the next proposal follows from the database; nothing else need be kept.
        if self.config.search.in_flight > 1 or self.store.has_pending:
            under_way = sorted(flight, key=lambda record: record.proposal)
            self.store.keep_pending([*under_way, *held])

    def _is_reference(self, record: Record) -> bool:
        return is_found(record, self.references, self.config.search.reference_tolerance)

    def _report(self, record: Record, learner: Learner) -> None:
        if record.ok:
            best = learner.best
            assert best is not None
            self.store.log(
                f"{record.iteration:4d}  {record.energy:14.4f} eV  best {best.energy:14.4f} eV  "
                f"{record.generator}"
            )
            if best is record:
                _write_structure(self.store.directory / BEST, record.atoms)
        else:
            self.store.log(f"{record.iteration:4d}  {record.failure}: {record.reason}")

    def _give_up(self, learner: Learner) -> None:
        limit = self.config.engine.max_failures
        last = learner.records[-limit:]
        if len(last) == limit and not any(record.ok for record in last):
            reason = f"{last[-1].failure}: {last[-1].reason}"
            self.store.log(f"stopped after {limit} failures in a row")
            raise NuggetError(
                f"The engine {self.config.engine.name!r} failed {limit} times in a row, last with "
                f"{reason!r}. Repair it, then `nugget search --resume {self.store.directory}`."
            )

    def _end(self, learner: Learner, found: bool, budget: int) -> Result:
        if learner.best is not None:
            # Once more: a kill may have come between the database and this file.
            _write_structure(self.store.directory / BEST, learner.best.atoms)
        interrupted = self._stop and not found and len(learner.records) < budget
        self.store.log("interrupted" if interrupted else "finished")
        return Result(
            best=learner.best,
            evaluations=len(learner.records),
            failures=len(learner.records) - len(learner.good),
            found=found,
            interrupted=interrupted,
            directory=self.store.directory,
        )


class _Stopwatch:
    """Adds up the seconds spent inside `with`, until they are taken."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def take(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def __enter__(self) -> None:
        self._begun = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - self._begun


def make_problem(system: SystemConfig, directory: Path) -> Problem:
    """What is searched for; file names count from the search's directory, then from here."""
    if system.kind == "surface":
        template = read_images(beside(str(system.template), directory), -1)[0]
        return Problem.on_template(system.formula, template, system.height)
    if system.kind == "bulk":
        assert system.cell is not None
        return Problem.bulk(system.formula, Cell.new(list(system.cell)).array)
    return Problem.cluster(system.formula, system.radius)


def _write_structure(path: Path, atoms: Atoms) -> None:
    partial = path.with_name(f".{path.name}")
    write(partial, atoms, format="extxyz")
    os.replace(partial, path)
