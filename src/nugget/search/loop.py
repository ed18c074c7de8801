"""The search itself: propose, evaluate, learn, repeat; stop and continue at any moment."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from ase import Atoms
from ase.cell import Cell
from ase.io import write
from threadpoolctl import threadpool_limits

from nugget.datafiles import read_images
from nugget.errors import NuggetError
from nugget.identity import is_reference
from nugget.identity.graph import stored_energy
from nugget.search.config import Config, SystemConfig
from nugget.search.evaluate import Evaluator, Outcome
from nugget.search.generators import Problem
from nugget.search.learner import Learner, Proposal
from nugget.search.store import Record, Store

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

    @property
    def evaluations(self) -> int:
        return len(self.learner.records)


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
        name = self.config.search.reference
        self.reference: Atoms | None = None
        if name is not None:
            self.reference = read_images(_beside(name, store.directory), -1)[0]
            if self.config.search.reference_tolerance is not None:
                stored_energy(self.reference)  # a reference without energy is found now, not later
        self._stop = False

    @classmethod
    def create(cls, config: Config, directory: str | Path) -> Search:
        """A new search; its directory must not hold one already."""
        directory = Path(directory)
        make_problem(config.system, Path())  # mistakes are found before anything is written
        return cls(Store.create(directory, config))

    @classmethod
    def resume(cls, directory: str | Path) -> Search:
        """The search in this directory, to be continued."""
        return cls(Store.open(Path(directory)))

    def stop(self) -> None:
        """Finish the evaluation in flight, then return."""
        self._stop = True

    def run(self, watch: Watcher | None = None, budget: int | None = None) -> Result:
        """Go on until the budget is used, the reference is found or `stop` is called."""
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
                    watch(Status(learner, record, budget, found, engine_seconds, surrogate_seconds))

            show(None)
            learning = 0.0  # seconds that the last record took to learn from
            with self._evaluator() as evaluator:
                while len(learner.records) < budget and not (found or self._stop):
                    begun = time.perf_counter() - learning
                    proposal = learner.propose(len(learner.records))
                    if proposal is None:
                        self.store.log("nothing new to evaluate: every candidate is known")
                        break
                    proposed = time.perf_counter()
                    outcome = evaluator.evaluate(proposal.atoms)
                    seconds = (outcome.seconds, proposed - begun)
                    record = make_record(
                        len(learner.records), proposal, outcome, self.config.search.kappa, seconds
                    )
                    self.store.append(record)
                    evaluated = time.perf_counter()
                    learner.learn(record)
                    learning = time.perf_counter() - evaluated
                    self._report(record, learner)
                    found = self._is_reference(record)
                    engine_seconds += record.engine_seconds
                    surrogate_seconds += record.surrogate_seconds
                    show(record)
                    self._give_up(learner)
            return self._end(learner, found, budget)

    def _evaluator(self) -> Evaluator:
        engine = self.config.engine
        return Evaluator(
            engine.name,
            engine.options,
            time_limit=engine.time_limit,
            retries=engine.retries,
            relax_steps=engine.relax_steps,
        )

    def _is_reference(self, record: Record) -> bool:
        if self.reference is None or not record.ok:
            return False
        return is_reference(record.atoms, self.reference, self.config.search.reference_tolerance)

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


def make_record(
    iteration: int, proposal: Proposal, outcome: Outcome, kappa: float, seconds: tuple[float, float]
) -> Record:
    """What is written down of one evaluation."""
    return Record(
        iteration=iteration,
        atoms=outcome.atoms,
        generator=proposal.generator,
        failure=outcome.failure or "",
        reason=outcome.reason,
        predicted=proposal.predicted,
        sigma=proposal.sigma,
        scale=proposal.scale,
        kappa=kappa,
        acquisition=proposal.acquisition,
        engine_seconds=seconds[0],
        surrogate_seconds=seconds[1],
    )


def make_problem(system: SystemConfig, directory: Path) -> Problem:
    """What is searched for; file names count from the search's directory, then from here."""
    if system.kind == "surface":
        template = read_images(_beside(str(system.template), directory), -1)[0]
        return Problem.on_template(system.formula, template, system.height)
    if system.kind == "bulk":
        assert system.cell is not None
        return Problem.bulk(system.formula, Cell.new(list(system.cell)).array)
    return Problem.cluster(system.formula, system.radius)


def _beside(name: str, directory: Path) -> Path:
    inside = directory / name
    return inside if inside.exists() else Path(name)


def _write_structure(path: Path, atoms: Atoms) -> None:
    partial = path.with_name(f".{path.name}")
    write(partial, atoms, format="extxyz")
    os.replace(partial, path)
