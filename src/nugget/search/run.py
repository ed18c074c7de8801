"""One run of a search: propose, evaluate, learn, repeat, until there is a reason to stop."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Sized
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import write

from nugget.errors import NuggetError
from nugget.evaluation.queue import EvaluationQueue
from nugget.search.learner import Learner
from nugget.search.phases import Phase, make_phases, write_phases
from nugget.search.polish import (
    Minimum,
    Polisher,
    distinct_minima,
    lowest_distinct,
    write_minima,
)
from nugget.search.polish_step import PolishStep
from nugget.search.records import complete, make_judge, make_pending
from nugget.search.reference import is_found
from nugget.search.stopwatch import Stopwatch
from nugget.search.store import BEST, End, Ended, Record, Store
from nugget.structures.files import replacing


@dataclass(frozen=True, eq=False)
class Status:
    """A look at a running search, given to watchers at the start and after each evaluation.

    `record` is the last evaluation; None at the start, and while structures are polished.
    """

    learner: Learner
    record: Record | None
    budget: int
    found: bool
    engine_seconds: float
    surrogate_seconds: float
    flight: Sized = ()
    polish: Sequence[PolishStep] = ()  # evaluations of relaxations with the engine
    polishing: bool = False  # the last evaluation was one of them

    @property
    def evaluations(self) -> int:
        return len(self.learner.records)

    @property
    def in_flight(self) -> int:
        """Evaluations under way right now."""
        return len(self.flight)


Watcher = Callable[[Status], None]


class Run:
    """The state of a search while it runs."""

    def __init__(
        self, store: Store, learner: Learner, references: Sequence[Atoms], budget: int,
        watch: Watcher | None, stopping: Callable[[], bool], stop_when: float | None = None,
    ) -> None:  # fmt: skip
        self.store, self.learner, self.references = store, learner, references
        self.config = learner.config
        self.budget, self.watch, self.stopping = budget, watch, stopping
        self.stop_when = stop_when
        self.flight: dict[int, Record] = {}  # under way, by proposal
        self.held: list[Record] = []  # under way when the last run ended; submitted as they were
        self.clock = Stopwatch()
        self.engine_seconds = self.surrogate_seconds = 0.0
        self.minima: list[Minimum] = []
        self.phases: tuple[Phase, ...] = ()  # of a search over compositions
        self._near_reference = learner.goal.memory()  # relaxed to see whether they are a reference
        self._relaxed: list[Record] = []  # the same, as evaluations

    def __call__(self, executor: Executor | None) -> End:
        """Run the search; how it ended. That is written down, whatever happens."""
        self.store.keep_end(None)
        self.polisher = Polisher(
            self.store, self.config, executor, self.stopping, lambda _: self._show(None)
        )
        try:
            status, reason = self._until_the_end(executor)
            if status in ("finished", "found"):
                status, reason = self._polish(status, reason)
        except KeyboardInterrupt:
            self._end("interrupted", "broken off")
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            known = isinstance(error, NuggetError)
            self._end("failed", text if known else f"{type(error).__name__}: {text}")
            raise
        if (lowest := self.learner.lowest) is not None and not self.minima:
            # Once more: a kill may have come between the database and this file.
            write_structure(self.store.directory / BEST, lowest.atoms)
        return self._end(status, reason)

    def _polish(self, status: Ended, reason: str) -> tuple[Ended, str]:
        """Relax the lowest distinct structures with the engine; how the search ends then."""
        goal, polish = self.learner.goal, self.config.search.polish
        known = [*self.learner.records, *self.learner.learned]
        count = polish + goal.least - 1 if polish else 0
        starts = lowest_distinct(known, count, goal)
        starts += [record for record in self._relaxed if record not in starts]
        relaxed = self.polisher.relax(starts)
        for one in relaxed:
            if np.isfinite(one.energy):
                goal = goal.informed(one.atoms, one.energy)
        self.minima = distinct_minima(self.learner.records, starts, relaxed, goal)
        write_minima(self.store.directory, self.minima)
        self.phases = make_phases(goal, known, self.minima)
        write_phases(self.store.directory, self.phases, self.config.system.pressure)
        if self.stopping() and any(one.reason == "not finished" for one in relaxed):
            return "interrupted", "stopped on request"
        tolerance = self.config.search.reference_tolerance
        if any(is_found(one.atoms, self.references, tolerance, goal) for one in self.minima):
            return "found", "the reference was found"
        return status, reason

    def _end(self, status: Ended, reason: str) -> End:
        end = End(status, reason, len(self.learner.records), self.budget)
        self.store.keep_end(end)
        self.store.log(f"{status}: {reason}")
        return end

    def _until_the_end(self, executor: Executor | None) -> tuple[Ended, str]:
        learner = self.learner
        for record in self.store.records():
            self._learn(record)
        if learner.records:
            self.store.log(f"continued after {len(learner.records)} evaluations")
        self.held = self.store.pending()
        self.clock.take()  # learning again is no new work
        found = any(map(self._is_reference, [*learner.learned, *learner.good]))
        with EvaluationQueue(
            self.config.engine,
            self.config.search.in_flight,
            executor,
            directory=self.store.directory,
            judge=make_judge(self.learner),
        ) as queue:
            self._show(None, found)
            while not found and not self._sure():
                self._fill(queue)
                if not self.flight:
                    break
                record = self._next(queue)
                self._report(record)
                found = self._is_reference(record)
                self._show(record, found)
                self._give_up()
            if self.flight:
                self.store.log(f"{len(self.flight)} in flight broken off, they stay pending")
        if found:
            return "found", "the reference was found"
        if self._sure():
            return "finished", "the lowest structure is found by search.stop_when"
        if len(learner.records) >= self.budget and not learner.good:
            last = learner.records[-1]
            return "failed", f"no evaluation succeeded, the last with {last.failure}: {last.reason}"
        if len(learner.records) >= self.budget:
            return "finished", "the budget is used up"
        if self.stopping():
            return "interrupted", "stopped on request"
        return "finished", "nothing new is left to evaluate"

    def _sure(self) -> bool:
        """Is the lowest structure found with the probability of search.stop_when?"""
        limit, estimate = self.stop_when, self.learner.meetings.confidence().probability
        return limit is not None and estimate is not None and estimate >= limit

    def _fill(self, queue: EvaluationQueue) -> None:
        """Submit as many evaluations as there is room for."""
        flight, done = self.flight, len(self.learner.records)
        room = min(queue.width, self.budget - done)
        while len(flight) < room and not self.stopping():
            record = self.held.pop(0) if self.held else self._propose()
            if record is None:
                self.store.log("nothing new to evaluate: every candidate is known")
                return  # what is in flight may still teach something new
            flight[record.proposal] = record
            self._keep_pending()  # before it starts, so that no kill can lose it
            queue.submit(record.proposal, record.atoms)

    def _propose(self) -> Record | None:
        waiting = [self.flight[proposal] for proposal in sorted(self.flight)]
        done = len(self.learner.records)
        ordinal = done + len(waiting)
        with self.clock:
            proposal = self.learner.propose(ordinal, [other.atoms for other in waiting])
        if proposal is None:
            return None
        kappa = self.config.search.kappa
        return make_pending(ordinal, done, proposal, kappa, self.clock.take())

    def _next(self, queue: EvaluationQueue) -> Record:
        """Wait for one evaluation, write it down and learn from it.

        One at a time, in the order of completion, even if more are done: the order alone decides
        from what the next structure is proposed.
        """
        proposal, outcome = queue.next()
        relaxed = self.config.engine.relax_steps > 0
        pending = self.flight.pop(proposal)
        record = complete(pending, len(self.learner.records), outcome, relaxed)
        self.store.append(record)
        self._keep_pending()
        self._learn(record)
        return record

    def _learn(self, record: Record) -> None:
        with self.clock:
            self.learner.learn(record)
        self.engine_seconds += record.engine_seconds
        self.surrogate_seconds += record.surrogate_seconds

    def _keep_pending(self) -> None:
        # One at a time, the next proposal follows from the database; nothing else need be kept.
        if self.config.search.in_flight > 1 or self.store.has_pending:
            under_way = [self.flight[proposal] for proposal in sorted(self.flight)]
            self.store.keep_pending([*under_way, *self.held])

    def _is_reference(self, record: Record) -> bool:
        """Has it the bonds of a reference, and its energy, if need be after relaxing?"""
        references, tolerance = self.references, self.config.search.reference_tolerance
        goal = self.learner.goal
        if not record.ok or not is_found(record.atoms, references, None, goal):
            return False
        if is_found(record.atoms, references, tolerance, goal):
            return True
        if not self.config.search.polish or record.atoms in self._near_reference:
            return False
        self._near_reference.add(record.atoms)
        self._relaxed.append(record)
        return is_found(self.polisher.relax([record])[0].atoms, references, tolerance, goal)

    def _show(self, record: Record | None, found: bool | None = None) -> None:
        """Tell the watcher; without `found` of an evaluation of the polisher."""
        if self.watch is not None:
            self.watch(
                Status(
                    self.learner, record, self.budget, bool(found), self.engine_seconds,
                    self.surrogate_seconds, self.flight, self.polisher.steps, found is None,
                )
            )  # fmt: skip

    def _report(self, record: Record) -> None:
        if not record.ok:
            self.store.log(f"{record.iteration:4d}  {record.failure}: {record.reason}")
            return
        best = self.learner.best
        assert best is not None
        unit = self.learner.goal.unit
        self.store.log(
            f"{record.iteration:4d}  {self.learner.value(record):14.4f} {unit}  "
            f"best {self.learner.value(best):14.4f} {unit}  "
            f"{record.generator}"
        )
        if self.learner.lowest is record:
            write_structure(self.store.directory / BEST, record.atoms)

    def _give_up(self) -> None:
        limit = self.config.engine.max_failures
        last = self.learner.records[-limit:]
        if len(last) == limit and not any(record.ok for record in last):
            known = f" with --learn {self.store.directory}" if self.learner.good else ""
            raise NuggetError(
                f"The engine {self.config.engine.name!r} failed {limit} times in a row, last with "
                f"'{last[-1].failure}: {last[-1].reason}'. Repair the program or the machine, then "
                f"`nugget search --resume {self.store.directory}`; if engine.options must be "
                f"others, begin a new search{known}."
            )


def write_structure(path: Path, atoms: Atoms) -> None:
    with replacing(path) as partial:
        write(partial, atoms, format="extxyz")
