"""Additional evaluations of a search, so that no false result of the engine is reported.

- Before the first evaluation: isolated atoms, which bound all energies.
- After the first one: a repetition and a finite difference (`nugget.engines.engine_check`).
- When the lowest energies are far below the majority: a repetition of the lowest.
- When a search is resumed: a repetition of a known structure.
- At the end: the lowest structure in a fresh process.

They do not count towards the budget, and no proposal depends on them unless an earlier result
turns out to be false. Such verdicts are recorded, and a replay applies them at the same moment.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass

from ase import Atoms

from nugget.engines.engine_check import (
    EngineReport,
    atomic_energies,
    first_check,
    isolated_atoms,
    misfit,
    settled_energy,
)
from nugget.engines.outcome import Outcome
from nugget.engines.plausibility import (
    agree,
    doubtful,
    implausibly_low,
    overbound,
    relaxed,
)
from nugget.engines.queue import EvaluationQueue
from nugget.errors import NuggetError
from nugget.search.learner import Learner
from nugget.search.record import Check, CheckKind, Record, energy_of
from nugget.search.search_settings import Config
from nugget.search.store import Store
from nugget.storage.database import changed_versions

#: An evaluation by its iteration, and a step of its final relaxation (0: the evaluation itself).
Key = tuple[int, int]

_VERDICTS = (
    CheckKind.CONFIRMED, CheckKind.UNCONFIRMED, CheckKind.CORRECTED, CheckKind.REJECTED,
)  # fmt: skip


def catch_up(
    learner: Learner, records: Sequence[Record], checks: Sequence[Check], count: int, proposal: int
) -> None:
    """Learn the first `count` evaluations, with the verdicts before this proposal."""

    def apply() -> None:
        done = len(learner.records)
        due = [c for c in checks if c.changes and c.after <= done and c.proposal <= proposal]
        if len(due) > learner.verdicts:
            learner.amend(due)

    apply()
    for record in records[len(learner.records) : count]:
        learner.learn(record)
        apply()


def engine_report(records: Sequence[Record], checks: Sequence[Check]) -> EngineReport | None:
    """The result of the first check of the engine; None if there was none.

    NuggetError if forces and energies disagree.
    """
    last = {check.kind: check for check in checks}
    if CheckKind.REPETITION not in last:
        return None

    def pair(kind: CheckKind) -> tuple[Atoms, Atoms] | None:
        check = last.get(kind)
        if check is None or check.atoms.calc is None or not records[check.iteration].ok:
            return None
        return records[check.iteration].atoms, check.atoms

    repeated, moved = pair(CheckKind.REPETITION), pair(CheckKind.DIFFERENCE)
    noise = None if repeated is None else abs(energy_of(repeated[1]) - energy_of(repeated[0]))
    return EngineReport(noise, None if moved is None else misfit(*moved, noise or 0.0))


@dataclass
class Checker:
    """The additional evaluations of one run of a search."""

    store: Store
    config: Config
    learner: Learner
    executor: Executor | None = None
    queue: EvaluationQueue | None = None  # that of the search, while it is open
    in_flight: int = 0  # proposals that are not evaluated yet

    def __post_init__(self) -> None:
        self.checks = self.store.checks()

    @property
    def enabled(self) -> bool:
        return self.config.engine.verify

    def isolated(self) -> Mapping[int, float]:
        """Energies of isolated atoms by atomic number; empty if one of them failed."""
        images = [c.atoms for c in self.checks if c.kind is CheckKind.ATOM]
        return {} if any(one.calc is None for one in images) else atomic_energies(images)

    def noise(self) -> float:
        """The difference of the repeated energy in the first check, eV."""
        report = engine_report(self.learner.records, self.checks)
        return 0.0 if report is None or report.noise is None else report.noise

    def evaluate(self, atoms: Atoms, fresh: bool = False) -> Outcome:
        """Evaluate a structure as it is."""
        bare, engine = atoms.copy(), self.config.engine
        if self.queue is not None and not engine.relax_steps:
            return self.queue.evaluate(bare, fresh)
        still = engine.model_copy(update={"relax_steps": 0})
        with EvaluationQueue(still, 1, self.executor, directory=self.store.directory) as queue:
            return queue.evaluate(bare, fresh=True)

    def _write(self, kind: CheckKind, atoms: Atoms, *outcomes: Outcome, key: Key = (-1, 0),
               reason: str = "") -> Check:  # fmt: skip
        done = len(self.learner.records)
        check = Check(
            kind, atoms, done, done + self.in_flight, *key,
            evaluations=sum(one.attempts for one in outcomes),
            engine_seconds=sum(one.seconds for one in outcomes), reason=reason,
        )  # fmt: skip
        self.store.append_check(check)
        self.checks.append(check)
        return check

    def _apply(self) -> None:
        """Let the search learn from the verdicts."""
        changes = [check for check in self.checks if check.changes]
        if len(changes) > self.learner.verdicts:
            self.learner.amend(changes)

    def before_the_first(self, atoms: Atoms) -> None:
        """Evaluate isolated atoms, before the first evaluation of a search."""
        if not self.enabled or self.learner.records or self.checks:
            return
        numbers = {*atoms.numbers.tolist(), *self.learner.problem.numbers.tolist()}
        outcomes, note = isolated_atoms(self.config.engine, numbers, self.evaluate)
        for outcome in outcomes:
            self._write(CheckKind.ATOM, outcome.atoms, outcome, reason=outcome.reason)
        if note:
            self.store.log(note)

    def after_an_evaluation(self) -> None:
        """Check the engine after the first success, and judge the lowest evaluations again."""
        good = self.learner.good
        if not self.enabled or not good:
            return
        if not any(check.kind is CheckKind.REPETITION for check in self.checks):
            self._first_check(good[0])
        while (lowest := self._doubtful()) is not None:
            check = self.judge_again(lowest.atoms, (lowest.iteration, 0))
            self.store.log(f"evaluation {lowest.iteration + 1} {check.kind}: {check.reason}")

    def _first_check(self, record: Record) -> None:
        """Check the engine with the first success, and correct that if it was false."""
        check = first_check(record.atoms, self.evaluate, self.config.search.seed)
        key, last, moved = (record.iteration, 0), check.repeated[-1], check.moved
        if check.settled is not record.atoms:
            energies = ", ".join(f"{one.energy:.6g}" for one in check.repeated if one.ok)
            reason = f"{record.energy:.6g} eV, but {energies} eV when repeated"
            self._write(CheckKind.CORRECTED, check.settled, key=key, reason=reason)
            self.store.log(f"evaluation {record.iteration + 1} corrected: {reason}")
            self._apply()
        if moved is not None:
            self._write(CheckKind.DIFFERENCE, moved.atoms, moved, key=key, reason=moved.reason)
        self._write(CheckKind.REPETITION, last.atoms, *check.repeated, key=key, reason=last.reason)
        self.store.log(f"engine check: {check.report()}")

    def _doubtful(self) -> Record | None:
        """The lowest evaluation, if it may be false and was not judged again yet."""
        good, goal = self.learner.good, self.learner.goal
        best = self.learner.best
        if best is None or (best.iteration, 0) in self.judged():
            return None
        others = [
            one.atoms for one in good if one is not best and goal.comparable(one.atoms, best.atoms)
        ]
        energies = [energy_of(one) / len(one) for one in [best.atoms, *relaxed(others)]]
        right = (CheckKind.CONFIRMED, CheckKind.CORRECTED)
        repeated = [c.atoms for c in self.checks if c.kind in right and not c.step]
        confirmed = [
            energy_of(one) / len(one) for one in repeated if goal.comparable(one, best.atoms)
        ]
        return best if doubtful(energies, confirmed) else None

    def judged(self) -> set[Key]:
        """Evaluations and steps of final relaxations that were judged again."""
        return {(c.iteration, c.step) for c in self.checks if c.kind in _VERDICTS}

    def judge_again(self, atoms: Atoms, key: Key) -> Check:
        """Repeat an evaluation in fresh processes, once or twice, and write the verdict."""
        answers, outcomes, noise = [atoms], list[Outcome](), self.noise()
        settled = None
        while settled is None and len(outcomes) < 2:
            outcomes.append(self.evaluate(atoms, fresh=True))
            answers += [outcomes[-1].atoms] * outcomes[-1].ok
            settled = settled_energy(answers, noise)
        energies = ", ".join(f"{energy_of(one):.6f}" for one in answers) + " eV"
        if len(answers) == 1:
            reason = f"it could not be repeated ({outcomes[-1].failure}: {outcomes[-1].reason})"
            kind, settled = CheckKind.UNCONFIRMED, atoms
        elif settled is None:
            kind, settled, reason = CheckKind.REJECTED, atoms, f"not repeatable: {energies}"
        else:
            kind = CheckKind.CONFIRMED if settled is atoms else CheckKind.CORRECTED
            reason = f"repeated in a fresh process: {energies}"
        if wrong := self._implausible(settled, key):
            kind, reason = CheckKind.REJECTED, f"{wrong}; {reason}"
        shown = settled
        if kind is CheckKind.REJECTED:
            shown = settled.copy()
        check = self._write(kind, shown, *outcomes, key=key, reason=reason[:500])
        self._apply()
        return check

    def _implausible(self, atoms: Atoms, key: Key) -> str | None:
        goal, records = self.learner.goal, self.learner.good
        others = [r.atoms for r in records if r.iteration != key[0]]
        others = [one for one in others if goal.comparable(atoms, one)]
        return overbound(atoms, self.isolated()) or implausibly_low(atoms, others)

    def at_a_resume(self) -> None:
        """Repeat the lowest evaluation; NuggetError if the engine gives other energies now.

        If only this one differs, its recorded result is corrected.
        """
        good = self.learner.good
        if not self.enabled or not good:
            return
        best = self.learner.best
        assert best is not None
        others = [record for record in good if record is not best][-1:]
        for record in [best, *others]:
            outcome = self.evaluate(record.atoms)
            if not outcome.ok:
                return  # the search itself deals with failures
            self._write(CheckKind.RESUMED, outcome.atoms, outcome, key=(record.iteration, 0))
            if agree(outcome.energy, record.energy, len(record.atoms), self.noise()):
                if record is not best:
                    self.judge_again(best.atoms, (best.iteration, 0))
                return
        raise NuggetError(
            f"The engine gives {outcome.energy:.6f} eV for evaluation {record.iteration + 1}, "
            f"which was recorded with {record.energy:.6f} eV, so that new results cannot be mixed "
            f"with the recorded ones ({changed_versions(self.store.versions())}). Use the engine "
            "that the search began with, or begin a new search."
        )
