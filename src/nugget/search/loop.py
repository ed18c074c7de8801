"""One run of a search: propose, evaluate, learn and repeat until a stopping rule applies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Sized
from concurrent.futures import Executor
from dataclasses import dataclass, fields, replace
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.io import write

from nugget.engines.outcome import Outcome
from nugget.engines.plausibility import PlausibilityCheck
from nugget.engines.queue import EvaluationQueue
from nugget.errors import NuggetError
from nugget.search.checkpoint import EVERY, restore_checkpoint, write_checkpoint
from nugget.search.checks import Checker, Key, catch_up
from nugget.search.knowledge import is_found
from nugget.search.learner import Learner, Stopwatch
from nugget.search.phase_diagram import (
    PhaseDiagram,
    below_relaxed_envelope,
    make_diagram,
    stable_starts,
    write_diagram,
)
from nugget.search.plan import CallPlan
from nugget.search.polish import (
    Minimum,
    Phase,
    Polisher,
    below_relaxed_hull,
    distinct_minima,
    lowest_distinct,
    lowest_minimum,
    make_phases,
    write_minima,
    write_phases,
)
from nugget.search.record import (
    UNFINISHED,
    Check,
    End,
    EndReason,
    EndStatus,
    PolishStep,
    Proposal,
    Purpose,
    Record,
    energy_of,
)
from nugget.search.stop import (
    NOTHING_NEW,
    REFERENCE_FOUND,
    STOPPED_ON_REQUEST,
    FailuresInARow,
    RunState,
    Stop,
    first_stop,
    stopping_rules,
)
from nugget.search.store import BEST, Store
from nugget.storage.files import replacing
from nugget.structures.geometry import largest_force


def make_pending(
    ordinal: int, n_observed: int, proposal: Proposal, kappa: float, seconds: float = 0.0
) -> Record:
    """The record of an evaluation that is about to start.

    `kappa` is that of the settings, for proposals without a model.
    """
    columns = {field.name: getattr(proposal, field.name) for field in fields(Proposal)}
    if proposal.kappa is None:
        columns["kappa"] = kappa
    return Record(
        iteration=UNFINISHED,
        surrogate_seconds=seconds,
        proposal=ordinal,
        n_observed=n_observed,
        **columns,
    )


def complete(pending: Record, iteration: int, outcome: Outcome, relaxed: bool = False) -> Record:
    """The record of a completed evaluation; `relaxed` if the engine may have moved the atoms."""
    return replace(
        pending,
        iteration=iteration,
        atoms=outcome.atoms,
        failure=str(outcome.failure or ""),  # plain text, for the digest of the row
        reason=outcome.reason,
        engine_seconds=outcome.seconds,
        proposed_positions=pending.atoms.positions.copy() if relaxed and outcome.ok else None,
    )


def plausibility_check(
    learner: Learner, isolated: Callable[[], Mapping[int, float]] = dict
) -> PlausibilityCheck:
    """Compares results with the evaluations of the search, its model and isolated atoms."""

    def earlier(atoms: Atoms) -> list[Atoms]:
        records = [*learner.learned, *learner.good]
        return [r.atoms for r in records if learner.goal.comparable(atoms, r.atoms)]

    def predict(atoms: Atoms) -> tuple[float, float] | None:
        if not learner.potential.is_fitted:
            return None
        energy, std = learner.predict([atoms])
        return float(energy[0]), learner.bars.acquisition_scale * float(std[0])

    return PlausibilityCheck(earlier, predict, isolated)


# One run of a search: propose, evaluate, learn, repeat, until there is a reason to stop.


@dataclass(frozen=True, eq=False)
class Status:
    """A running search as watchers get it, at the start and after each evaluation.

    `record` is the last evaluation; None at the start and during final relaxations.
    """

    learner: Learner
    record: Record | None
    budget: int
    found: bool
    engine_seconds: float
    surrogate_seconds: float
    flight: Sized = ()
    polish: Sequence[PolishStep] = ()  # evaluations of final relaxations
    polishing: bool = False  # the last evaluation was one of those

    @property
    def evaluations(self) -> int:
        return len(self.learner.records)

    @property
    def in_flight(self) -> int:
        """Evaluations under way right now."""
        return len(self.flight)


Watcher = Callable[[Status], None]


def polish_line(status: Status) -> str:
    """The last evaluation of a final relaxation in one line."""
    step = status.polish[-1]
    head = f"polish {len(status.polish):3d}  evaluation {step.start + 1}"
    if not step.ok:
        return f"{head}  {step.failure}: {' '.join(step.reason.split())}"
    goal = status.learner.goal
    value = goal.value(step.atoms, energy_of(step.atoms))
    fmax = largest_force(step.atoms)
    return f"{head}  {value:.4f} {goal.unit}  largest force {fmax:.3f} eV/Å"


def plain_line(status: Status) -> str:
    """The last evaluation in one line, as it is printed and logged."""
    record, best = status.record, status.learner.best
    assert record is not None
    head = f"{status.evaluations:4d}/{status.budget}"
    if not record.ok:
        return f"{head}  {record.failure}: {' '.join(record.reason.split())}  {record.generator}"
    assert best is not None
    learner, goal = status.learner, status.learner.goal
    mark = "*" if best is record else " "
    expected = ""
    if record.predicted is not None and record.std:
        bar = goal.stds([record.atoms], np.array([record.scale * record.std]))[0]
        expected = f"  expected {goal.value(record.atoms, record.predicted):.3f} ± {bar:.3f}"
    unit = goal.unit
    return (
        f"{head} {mark} {learner.value(record):.4f} {unit}  best {learner.value(best):.4f} {unit}"
        f"{expected}  "
        f"{record.generator}{', to explore' if record.purpose is Purpose.EXPLORE else ''}"
    )


class Run:
    """The state of a search while it runs."""

    def __init__(
        self, store: Store, learner: Learner, references: Sequence[Atoms], budget: int,
        watch: Watcher | None, stopping: Callable[[], bool], stop_when: float | None = None,
    ) -> None:  # fmt: skip
        self.store, self.learner, self.references = store, learner, references
        self.config = learner.config
        self.budget, self.watch, self.stopping = budget, watch, stopping
        engine = self.config.engine
        failures = FailuresInARow(engine.name, engine.max_failures, self._remedy)
        self.rules = stopping_rules(failures, stop_when, stopping)
        self.flight: dict[int, Record] = {}  # being evaluated, by number of the proposal
        self.held: list[Record] = []  # in flight when the last run ended; submitted again as is
        self.clock = Stopwatch()
        self.engine_seconds = self.surrogate_seconds = 0.0
        self.minima: list[Minimum] = []
        self.phases: tuple[Phase, ...] = ()  # of a search over compositions
        self.diagram: PhaseDiagram | None = None  # of a search with varying numbers of atoms
        self._near_reference = learner.goal.memory()  # relaxed to compare with the references
        self._relaxed: list[Record] = []  # the same, as evaluations

    def __call__(self, executor: Executor | None) -> End:
        """Run the search and return how it ended. The end is always written to the directory."""
        self.store.keep_end(None)
        self.checker = Checker(self.store, self.config, self.learner, executor)
        self.plan = CallPlan.of(self.config, self.learner.problem, self.budget)
        self.polisher = Polisher(
            self.store, self.config, executor, self.stopping, lambda _: self._show(None),
            self.checker.isolated, self.plan.polish or np.inf,
        )  # fmt: skip
        self.store.log(str(self.plan))
        try:
            stop = self._until_the_end(executor)
            if stop.status in (EndStatus.FINISHED, EndStatus.FOUND):
                stop = self._polish_and_confirm(stop)
                self.diagram = make_diagram(self.learner, self.minima)
                write_diagram(self.store.directory, self.diagram)
        except KeyboardInterrupt:
            self._end(Stop(EndReason.BROKEN_OFF, EndStatus.INTERRUPTED, "broken off"))
            raise
        except Exception as error:
            text = " ".join(str(error).split())
            sentence = text if isinstance(error, NuggetError) else f"{type(error).__name__}: {text}"
            self._end(Stop(EndReason.ERROR, EndStatus.FAILED, sentence))
            raise
        if stop.cause is EndReason.FAILURES:
            self._end(stop)
            raise NuggetError(stop.sentence)
        if (lowest := self.learner.lowest) is not None and not self.minima:
            # Once more: the last run may have been killed before it wrote this file.
            write_structure(self.store.directory / BEST, lowest.atoms)
        return self._end(stop)

    def _polish_and_confirm(self, stop: Stop) -> Stop:
        """Final relaxations; what is reported is evaluated once more in a fresh process.

        A false result is corrected or rejected, and the relaxations continue without it.
        """
        while True:
            end = self._polish(stop)
            if end is STOPPED_ON_REQUEST or not self.config.engine.verify:
                return end
            reported = self._reported()
            new = [key for key in reported if key not in self.checker.judged()]
            if not new:
                return end
            checks = [self._confirm(reported[key], key) for key in new]
            if not any(check.changes for check in checks):
                return end
            self.polisher.steps = self.store.polish_steps()

    def _confirm(self, atoms: Atoms, key: Key) -> Check:
        check = self.checker.judge_again(atoms, key)
        what = f"step {key[1]} of the final relaxation of " if key[1] else ""
        self.store.log(f"{what}evaluation {key[0] + 1} {check.kind}: {check.reason}")
        return check

    def _reported(self) -> dict[Key, Atoms]:
        """The structures that the search reports: the lowest one, or the stable phases."""
        stable = {phase.start for phase in self.phases if phase.stable}
        stable |= stable_starts(self.learner.goal, self.minima)
        if stable:
            minima = [one for one in self.minima if one.start in stable]
        else:
            minima = [one for one in (lowest_minimum(self.minima),) if one is not None]
        if not minima:
            lowest = self.learner.lowest
            if lowest is None or lowest.iteration < 0:
                return {}
            return {(lowest.iteration, 0): lowest.atoms}
        steps = {id(step.atoms): step.step for step in self.polisher.steps}
        reported = {(m.start, steps.get(id(m.relaxed.atoms), 0)): m.relaxed.atoms for m in minima}
        return {key: atoms for key, atoms in reported.items() if key[0] >= 0 or key[1]}

    def _polish(self, stop: Stop) -> Stop:
        """Relax the lowest distinct structures with the engine; how the search ends then."""
        goal, polish = self.learner.goal, self.config.search.polish
        records = [*self.learner.records, *self.learner.learned]
        count = polish + goal.least - 1 if polish else 0
        starts = lowest_distinct(records, count, goal)
        starts += [record for record in self._relaxed if record not in starts]
        relaxed = self.polisher.relax(starts)
        while polish and not self.polisher.interrupted:
            # A hull consists of relaxed phases, so evaluations below it are relaxed as well.
            below = below_relaxed_hull(goal, records, starts, relaxed)
            below += below_relaxed_envelope(goal, records, starts, relaxed)
            if not below:
                break
            starts += below
            relaxed += self.polisher.relax(below)
        for one in relaxed:
            if np.isfinite(one.energy):
                goal = goal.informed(one.atoms, one.energy)
        self.minima = distinct_minima(self.learner.records, starts, relaxed, goal)
        write_minima(self.store.directory, self.minima)
        self.phases = make_phases(goal, records, self.minima)
        write_phases(self.store.directory, self.phases, self.config.system.pressure)
        if self.stopping() and self.polisher.interrupted:
            return STOPPED_ON_REQUEST
        tolerance = self.config.search.reference_tolerance
        if any(is_found(one.atoms, self.references, tolerance, goal) for one in self.minima):
            return REFERENCE_FOUND
        return stop

    def _end(self, stop: Stop) -> End:
        done = len(self.learner.records)
        end = End(stop.status, " ".join(stop.sentence.split()), done, self.budget, stop.cause)
        self.store.keep_end(end)
        self.store.log(f"{end.status}: {end.reason}")
        return end

    def _until_the_end(self, executor: Executor | None) -> Stop:
        """Learn from the records so far, then evaluate until a rule applies."""
        learner, records = self.learner, self.store.history()
        self.held = self.store.pending()
        proposals = len(records) + len(self.held)
        catch_up(learner, records, self.checker.checks, len(records), proposals)
        self.engine_seconds = sum(record.engine_seconds for record in records)
        self.surrogate_seconds = sum(record.surrogate_seconds for record in records)
        if learner.records:
            self.store.log(f"continued after {len(learner.records)} evaluations")
        reached = any(map(self._is_reference, learner.all_known))
        with EvaluationQueue(
            self.config.engine,
            self.config.search.in_flight,
            executor,
            directory=self.store.directory,
            judge=plausibility_check(self.learner, self.checker.isolated),
        ) as queue:
            self.checker.queue = queue
            self._show(None, reached)
            stop = self._evaluate(queue, reached)
            self.checker.queue = None
            if self.flight:
                self.store.log(f"{len(self.flight)} in flight interrupted; they stay pending")
        return stop

    def _evaluate(self, queue: EvaluationQueue, reached: bool) -> Stop:
        """Submit and learn until a rule applies, or until nothing new can be proposed."""
        before = len(self.learner.records)
        if before and self._stop(before, reached) is None:
            if restored := restore_checkpoint(self.store.directory, self.learner):
                self.store.log(f"the model of {restored} evaluations was restored")
            self.checker.in_flight = len(self.held)
            self.checker.at_a_resume()
            self.checker.after_an_evaluation()
        while True:
            stop = self._stop(before, reached)
            if stop is not None and not (stop.drain and self.flight):
                return stop
            if stop is None:
                self._fill(queue)
            if not self.flight:  # a stop may have been requested meanwhile
                return self._stop(before, reached) or NOTHING_NEW
            record = self._next(queue)
            self._report(record)
            if record.iteration == 0:
                seconds = record.engine_seconds
                self.store.log(self.plan.expected_time(seconds, self.config.search.in_flight))
            reached = self._is_reference(record)
            self._show(record, reached)

    def _stop(self, before: int, reached: bool) -> Stop | None:
        records = self.learner.records
        confidence = self.learner.rediscoveries.confidence
        state = RunState(records, len(records) - before, self.budget, reached, confidence)
        return first_stop(self.rules, state)

    def _remedy(self) -> str:
        """What to do when the engine fails again and again."""
        directory = self.store.directory
        learn = f" with --learn {directory}" if self.learner.good else ""
        return (
            f"Repair the program or the machine, then `nugget search --resume {directory}`; if "
            f"engine.options must change, begin a new search{learn}."
        )

    def _fill(self, queue: EvaluationQueue) -> None:
        """Submit evaluations until the queue is full or the budget is used."""
        flight, done = self.flight, len(self.learner.records)
        width = min(queue.width, self.budget - done)
        while len(flight) < width and not self.stopping():
            record = self.held.pop(0) if self.held else self._propose()
            if record is None:
                self.store.log("nothing new to evaluate: every candidate is known")
                return  # results in flight may still change that
            self.checker.before_the_first(record.atoms)
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
        if done and done % EVERY == 0:
            write_checkpoint(self.store.directory, self.learner)
        kappa = self.config.search.kappa
        return make_pending(ordinal, done, proposal, kappa, self.clock.take())

    def _next(self, queue: EvaluationQueue) -> Record:
        """Wait for one evaluation, write it to the database and learn from it.

        Results are taken one at a time, even if more are complete, because the order of completion
        alone determines the next proposal.
        """
        proposal, outcome = queue.next()
        relaxed = self.config.engine.relax_steps > 0
        pending = self.flight.pop(proposal)
        record = complete(pending, len(self.learner.records), outcome, relaxed)
        self.store.append(record)
        self._keep_pending()
        self._learn(record)
        self.checker.in_flight = len(self.flight) + len(self.held)
        self.checker.after_an_evaluation()
        return self.learner.records[record.iteration]

    def _learn(self, record: Record) -> None:
        with self.clock:
            self.learner.learn(record)
        self.engine_seconds += record.engine_seconds
        self.surrogate_seconds += record.surrogate_seconds

    def _keep_pending(self) -> None:
        # With one evaluation at a time, the database alone determines the next proposal.
        if self.config.search.in_flight > 1 or self.store.has_pending:
            under_way = [self.flight[proposal] for proposal in sorted(self.flight)]
            self.store.keep_pending([*under_way, *self.held])

    def _is_reference(self, record: Record) -> bool:
        """Is it a reference structure, if necessary after relaxation with the engine?"""
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

    def _status(self, record: Record | None, reached: bool | None = None) -> Status:
        """The state for watchers; without `reached`, after an evaluation of a final relaxation."""
        return Status(
            self.learner, record, self.budget, bool(reached), self.engine_seconds,
            self.surrogate_seconds, self.flight, self.polisher.steps, reached is None,
        )  # fmt: skip

    def _show(self, record: Record | None, reached: bool | None = None) -> None:
        if self.watch is not None:
            self.watch(self._status(record, reached))

    def _report(self, record: Record) -> None:
        """Write the evaluation to the log, and the structure to a file if it is the lowest."""
        self.store.log(plain_line(self._status(record)))
        if self.learner.lowest is record:
            write_structure(self.store.directory / BEST, record.atoms)


def write_structure(path: Path, atoms: Atoms) -> None:
    """Replace an extxyz file."""
    with replacing(path) as partial:
        write(partial, atoms, format="extxyz")
