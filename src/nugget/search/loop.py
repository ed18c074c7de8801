"""The search itself: propose, evaluate, learn, repeat; stop and continue at any moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Sized
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from ase import Atoms
from ase.io import write
from threadpoolctl import threadpool_limits

from nugget.errors import NuggetError
from nugget.evaluation.queue import Flight, complete, make_pending
from nugget.search.config import Config
from nugget.search.learner import Learner
from nugget.search.prepare import check, copied_names, copy_files, locate, make_problem, with_files
from nugget.search.reference import is_found, read_references
from nugget.search.replay import Replay, replay
from nugget.search.store import End, Ended, Record, Store
from nugget.structures.files import replacing

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
    failures: int
    end: End
    directory: Path

    @property
    def evaluations(self) -> int:
        return self.end.evaluations

    @property
    def found(self) -> bool:
        """Was a reference structure found?"""
        return self.end.status == "found"

    @property
    def interrupted(self) -> bool:
        """Was the search stopped before its end?"""
        return self.end.status == "interrupted"


class Search:
    """A search in a directory. `Search.create` starts one, `Search.resume` continues one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.config = store.config()
        self.problem = make_problem(self.config.system, store.directory)
        self.references = read_references(self.config, store.directory)
        self._stop = False

    @classmethod
    def create(cls, config: Config, directory: str | Path, base: Path = Path()) -> Search:
        """A new search, with copies of the files that it needs; see `prepare.locate` for `base`.

        All mistakes are found before anything is written. A directory that holds a search is
        refused.
        """
        directory = Path(directory)
        Store.check_free(directory)
        files = locate(config, base)
        check(config, files)
        copy_files(files, directory)
        return cls(Store.create(directory, with_files(config, copied_names(files))))

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
            self.store.keep_end(None)
            learner = Learner(self.config, self.problem)
            try:
                status, reason = self._run(learner, watch, budget, executor)
            except BaseException as error:
                broken = isinstance(error, KeyboardInterrupt)
                self._end(learner, budget, "interrupted" if broken else "failed", _words(error))
                raise
            end = self._end(learner, budget, status, reason)
            if learner.best is not None:
                # Once more: a kill may have come between the database and this file.
                _write_structure(self.store.directory / BEST, learner.best.atoms)
            failures = len(learner.records) - len(learner.good)
            return Result(learner.best, failures, end, self.store.directory)

    def _run(
        self, learner: Learner, watch: Watcher | None, budget: int, executor: Executor | None
    ) -> tuple[Ended, str]:
        """Run; how it ended, and why."""
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
        with Flight(self.config.engine, width, executor) as flight:
            show(None)
            while not found:
                self._fill(flight, held, learner, budget, clock)
                if not len(flight):
                    break
                # One answer at a time, in the order in which they came, even if there are
                # more: so the order alone decides who is proposed from what.
                pending, outcome = flight.next()
                record = complete(pending, len(learner.records), outcome, relaxed)
                self.store.append(record)
                self._keep(flight, held)
                with clock:
                    learner.learn(record)
                self._report(record, learner)
                found = self._is_reference(record)
                engine_seconds += record.engine_seconds
                surrogate_seconds += record.surrogate_seconds
                show(record)
                self._give_up(learner)
            if len(flight):
                self.store.log(f"{len(flight)} in flight broken off, they stay pending")
        if found:
            return "found", "the reference was found"
        if len(learner.records) >= budget:
            return "finished", "the budget is used up"
        if self._stop:
            return "interrupted", "stopped on request"
        return "finished", "nothing new is left to evaluate"

    def _fill(
        self, flight: Flight, held: list[Record], learner: Learner, budget: int, clock: _Stopwatch
    ) -> None:
        """Submit as many evaluations as there is room for."""
        while (
            len(flight) < flight.width
            and len(learner.records) + len(flight) < budget
            and not self._stop
        ):
            if held:
                record = held.pop(0)
            else:
                waiting = flight.pending
                ordinal = len(learner.records) + len(waiting)
                with clock:
                    proposal = learner.propose(ordinal, [other.atoms for other in waiting])
                if proposal is None:
                    self.store.log("nothing new to evaluate: every candidate is known")
                    return  # what is in flight may still teach something new
                kappa = self.config.search.kappa
                record = make_pending(ordinal, len(learner.records), proposal, kappa, clock.take())
            self._keep(flight, [record, *held])  # before it starts, so that no kill can lose it
            flight.submit(record)

    def _keep(self, flight: Flight, others: list[Record]) -> None:
        # One at a time the next proposal follows from the database; nothing else need be kept.
        if flight.width > 1 or self.store.has_pending:
            self.store.keep_pending([*flight.pending, *others])

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

    def _end(self, learner: Learner, budget: int, status: Ended, reason: str) -> End:
        end = End(status, reason, len(learner.records), budget)
        self.store.keep_end(end)
        self.store.log(f"{status}: {reason}")
        return end


def _words(error: BaseException) -> str:
    if isinstance(error, KeyboardInterrupt):
        return "broken off"
    text = " ".join(str(error).split())
    return text if isinstance(error, NuggetError) else f"{type(error).__name__}: {text}"


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


def _write_structure(path: Path, atoms: Atoms) -> None:
    with replacing(path) as partial:
        write(partial, atoms, format="extxyz")
