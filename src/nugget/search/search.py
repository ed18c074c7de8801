"""A search in a directory: create, run, stop, resume and replay it.

`Search` ties together the directory (`store`), the state of the search (`learner`) and one run
(`loop`). A replay makes every proposal again from the database alone and compares all bits. It
needs no engine, because the database holds all results and the order of their completion.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget.display import Contents, Shown, counted
from nugget.engines.engine_check import EngineReport
from nugget.engines.engine_settings import require_trust
from nugget.errors import NuggetError
from nugget.numerics.threads import one_blas_thread
from nugget.search.checks import catch_up, engine_report
from nugget.search.knowledge import Knowledge, read_knowledge, read_references
from nugget.search.learner import Learner
from nugget.search.loop import Run, Watcher
from nugget.search.phase_diagram import PhaseDiagram
from nugget.search.polish import Minimum, Phase, lowest_minimum
from nugget.search.prepare import (
    check,
    code_of,
    copied_names,
    copy_files,
    locate,
    with_files,
)
from nugget.search.record import UNFINISHED, Check, End, EndStatus, Proposal, Record
from nugget.search.reference_energies import require_references, with_reference_energies
from nugget.search.search_settings import FREE, Config, SearchConfig, with_width
from nugget.search.stop import Confidence
from nugget.search.store import Store
from nugget.search.surrogate import baseline_code
from nugget.storage.files import locked
from nugget.structures.picture import CHART, Line, chart, structure_picture
from nugget.systems.system_settings import make_goal, make_system


@dataclass(frozen=True, eq=False, repr=False)
class Result(Shown):
    """How a search ended."""

    best: Record | None
    failures: int
    end: End
    directory: Path
    minima: tuple[Minimum, ...] = ()  # after final relaxations, the lowest first
    polish_evaluations: int = 0
    confidence: Confidence | None = None  # that the lowest structure was found
    phases: tuple[Phase, ...] = ()  # of a search over compositions, the lowest of each
    quantity: str = "energy"  # what is minimised: energy, or enthalpy under pressure
    engine_check: EngineReport | None = None  # None if there was none
    check_evaluations: int = 0  # evaluations that checked the engine, beyond the budget
    diagram: PhaseDiagram | None = None  # of a search with varying numbers of atoms

    @property
    def lowest(self) -> Minimum | None:
        """The structure in best.extxyz, if there were final relaxations."""
        return lowest_minimum(self.minima)

    @property
    def evaluations(self) -> int:
        return self.end.evaluations

    @property
    def found(self) -> bool:
        """Was a reference structure found?"""
        return self.end.status is EndStatus.FOUND

    @property
    def interrupted(self) -> bool:
        """Was the search stopped before its end?"""
        return self.end.status is EndStatus.INTERRUPTED

    def contents(self) -> Contents:
        return result_contents(self)


class Search(Shown):
    """A search in a directory. `Search.create` starts one, `Search.resume` continues one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.config = store.config()
        require_references(self.config.system)
        self.problem = make_system(self.config.system, store.directory)
        self.references = read_references(self.config, store.directory)
        self._stop = False

    def contents(self) -> Contents:
        return search_contents(self)

    @classmethod
    def create(cls, config: Config, directory: str | Path, base: Path = Path()) -> Search:
        """A new search, with copies of the files that it needs; see `prepare.locate` for `base`.

        All settings are checked before anything is written. A directory that already holds a
        search is refused.
        """
        directory = Path(directory)
        Store.check_free(directory)
        files = locate(config, base)
        check(config, files)
        located = with_files(config, {role: str(file) for role, file in files.items()})
        numbers = make_system(located.system, Path()).numbers
        config = config.model_copy(update={"model": with_width(config.model, numbers)})
        config = with_reference_energies(config)
        directory.mkdir(parents=True, exist_ok=True)
        with locked(directory):
            Store.check_free(directory)  # another process may have created a search meanwhile
            copy_files(files, directory, config)
            names = copied_names(files)
            return cls(Store.create(directory, with_files(config, names), names.values()))

    @classmethod
    def resume(
        cls, directory: str | Path, trust: bool = False, trusted: Iterable[str] = ()
    ) -> Search:
        """The search in this directory; its results continue bit-identically.

        If the settings name code (`module:factory` or a command), the directory is refused unless
        `trust` is set or all of that code is among `trusted`.
        """
        store = Store.open(Path(directory))
        code = [c for c in code_of(store.config(), store.directory) if c not in set(trusted)]
        require_trust(code, str(directory), trust)
        return cls(store)

    @classmethod
    def replay(cls, directory: str | Path, trust: bool = False) -> Replay:
        """Repeat all proposals of a search and compare them with its database bit by bit.

        No engine is run, unless the mean function of the model is one, and nothing is written.
        """
        store = Store.open(Path(directory), read_only=True)
        require_trust(baseline_code(store.config(), store.directory), str(directory), trust)
        search = cls(store)
        with search.store.locked(), one_blas_thread():
            records, pending = search.store.history(), search.store.pending()
            return replay(search.learner(), records, pending, search.store.checks())

    def learner(self) -> Learner:
        """The state of the search before the first evaluation."""
        return Learner(self.config, self.problem, self.knowledge())

    def knowledge(self) -> Knowledge:
        """The data that the search had before its first evaluation."""
        return read_knowledge(self.config, self.problem, self.store.directory)

    def change(self, settings: Mapping[str, Any]) -> None:
        """Change settings of [search] on which no proposal depends, for this run."""
        if wrong := [name for name in settings if name not in FREE["search"]]:
            raise NuggetError(f"search.{wrong[0]} cannot be changed after a search has begun.")
        section = SearchConfig.model_validate({**self.config.search.model_dump(), **settings})
        self.config = self.config.model_copy(update={"search": section})

    def stop(self) -> None:
        """Finish the evaluations in flight, then return."""
        self._stop = True

    def run(
        self,
        watch: Watcher | None = None,
        budget: int | None = None,
        executor: Executor | None = None,
        stop_when: float | None = None,
    ) -> Result:
        """Run until a stopping rule applies: see `stop.stopping_rules`.

        The rules are the budget, a reference structure, the probability `stop_when` that the
        lowest structure is found, failures in a row, and a call of `stop`. Finally
        `search.polish` structures are relaxed with the engine (see `plan` for the calls).

        `search.in_flight` evaluations run at a time, in processes of this machine or in
        `executor`. When the reference is found, evaluations in flight are interrupted; they stay
        pending and are not counted.
        """
        budget = self.config.search.budget if budget is None else budget
        stop_when = self.config.search.stop_when if stop_when is None else stop_when
        with self.store.locked(), one_blas_thread():
            learner = self.learner()
            run = Run(
                self.store, learner, self.references, budget, watch, lambda: self._stop, stop_when
            )
            end = run(executor)
        failures = len(learner.records) - len(learner.good)
        return Result(
            learner.best, failures, end, self.store.directory, tuple(run.minima),
            len(run.polisher.steps), learner.rediscoveries.confidence(), run.phases,
            learner.goal.quantity, engine_report(learner.records, run.checker.checks),
            sum(check.evaluations for check in run.checker.checks), run.diagram,
        )  # fmt: skip


def search_contents(search: Search) -> Contents:
    """A search in terminals and notebooks: system, engine, progress and best energy."""
    config, goal = search.config, make_goal(search.config.system)
    words = [f"{config.system.formula} with {config.engine.name}"]
    place = str(search.store.directory)
    try:
        records = search.store.records()
    except NuggetError as error:  # displaying an object never fails
        return Contents("Search", [*words, f"in {place}", str(error)])
    good = [record for record in records if record.ok]
    end = search.store.end()
    progress = f"{len(records)} of {counted(config.search.budget, 'evaluation')}"
    facts = {
        "directory": place,
        "system": f"{config.system.formula}, {config.system.kind}",
        "engine": config.engine.name,
        "evaluations": progress,
        "failures": str(len(records) - len(good)),
        "state": str(end) if end else "not finished",
    }
    words.append(progress)
    if good:
        lowest = min(goal.value(record.atoms, record.energy) for record in good)
        facts["lowest evaluated"] = f"{lowest:.4f} {goal.unit}"
        words.append(f"lowest evaluated {facts['lowest evaluated']}")
    pictures = partial(_search_pictures, search, good)
    return Contents("Search", [*words, f"in {place}"], facts, pictures=pictures)


def _search_pictures(search: Search, records: Sequence[Record]) -> list[str]:
    """The lowest structure, and the lowest value after each evaluation."""
    if not records:
        return []
    goal = make_goal(search.config.system)
    for record in records:
        goal = goal.informed(record.atoms, record.energy)
    values = [goal.value(record.atoms, record.energy) for record in records]
    numbers = [record.iteration + 1 for record in records]
    best = records[int(np.argmin(values))].atoms
    so_far = Line(numbers, list(np.minimum.accumulate(values)), steps=True, name="lowest so far")
    return [
        structure_picture(best),
        chart([so_far], "evaluation", f"{goal.quantity}, {goal.unit}", CHART),
    ]


def result_contents(result: Result) -> Contents:
    """A result in terminals and notebooks: how it ended, the best energy, the relaxed minima."""
    end = result.end
    facts = {
        "end": str(end),
        "evaluations": f"{end.evaluations} of {end.budget}",
        "failures": str(result.failures),
        "directory": str(result.directory),
    }
    words = [f"{end.status} after {counted(end.evaluations, 'evaluation')}"]
    if (lowest := result.lowest) is not None:
        words.append(f"lowest minimum {lowest.energy:.4f} eV")
        facts["final relaxations"] = counted(result.polish_evaluations, "further evaluation")
    elif result.best is not None:
        words.append(f"best {result.best.energy:.4f} eV")
    if result.confidence is not None and (p := result.confidence.probability) is not None:
        facts["lowest found"] = f"with a probability of {p:.0%}"
    crystal = any(minimum.space_group for minimum in result.minima)
    columns = [
        "minimum", "energy, eV", f"above the lowest, {'eV/atom' if crystal else 'eV'}",
        "fmax, eV/Å", "symmetry", "evaluations",
    ]  # fmt: skip
    rows = [
        [
            str(k), f"{minimum.energy:.4f}", f"{minimum.value - result.minima[0].value:.4f}",
            f"{minimum.relaxed.fmax:.3f}{'' if minimum.relaxed.converged else ' (not converged)'}",
            minimum.space_group or minimum.point_group, str(minimum.met),
        ]
        for k, minimum in enumerate(result.minima)
    ]  # fmt: skip
    pictures = partial(_result_pictures, result)
    return Contents("Result", [*words, f"in {result.directory}"], facts, columns, rows, pictures)


def _result_pictures(result: Result) -> list[str]:
    """The lowest structure, and the minima in the order of their energies."""
    minima, best = result.minima, result.lowest
    if best is None:
        return [] if result.best is None else [structure_picture(result.best.atoms)]
    above = [1e3 * (one.value - best.value) for one in minima]
    unit = "meV/atom" if best.space_group else "meV"
    dots = Line([k + 1.0 for k in range(len(minima))], above, dots=True)
    return [
        structure_picture(best.relaxed.atoms),
        chart([dots], "minimum", f"above the lowest, {unit}", CHART),
    ]


@dataclass(frozen=True)
class Replay:
    """The result of a replay."""

    proposals: int  # repeated
    differences: tuple[str, ...]  # one sentence each

    @property
    def same(self) -> bool:
        """Are all proposals identical?"""
        return not self.differences


def replay(
    learner: Learner,
    records: Sequence[Record],
    pending: Sequence[Record],
    checks: Sequence[Check] = (),
) -> Replay:
    """Repeat all proposals with the records and the structures in flight at the time; compare.

    `learner` is the state of the search before its first evaluation; `checks` contain verdicts
    about evaluations.
    """
    log = sorted([*records, *pending], key=lambda record: record.proposal)
    if broken := tuple(_gaps(log, records)):
        return Replay(0, broken)
    differences = []
    for record in log:
        catch_up(learner, records, checks, record.n_observed, record.proposal)
        waiting = [
            before.proposed
            for before in log[: record.proposal]
            if before.iteration == UNFINISHED or before.iteration >= record.n_observed
        ]
        again = learner.propose(record.proposal, waiting)
        if parts := _differing(record, again, relaxed=learner.config.engine.relax_steps > 0):
            differences.append(f"proposal {record.proposal}: {', '.join(parts)} differ")
    return Replay(len(log), tuple(differences))


def _gaps(log: Sequence[Record], records: Sequence[Record]) -> Iterator[str]:
    """Contradictions in the records that no search can have written."""
    if [record.proposal for record in log] != list(range(len(log))):
        yield "proposals are missing or there twice"
    before = 0
    for record in log:
        done = len(records) if record.iteration == UNFINISHED else record.iteration
        if not before <= record.n_observed <= done:
            yield (
                f"proposal {record.proposal} cannot have observed {record.n_observed} evaluations"
            )
        before = record.n_observed


def _differing(record: Record, again: Proposal | None, relaxed: bool) -> list[str]:
    """The parts that differ in any bit."""
    if again is None:
        return ["all parts (nothing is proposed now)"]
    names = ("generator", "predicted", "std", "scale", "acquisition", "purpose")
    odd = [name for name in names if getattr(record, name) != getattr(again, name)]
    if record.draws and record.draws != again.draws:  # databases before 0.2 hold none
        odd.append("draws")
    then, now = record.walkers, again.walkers
    if then is not None and (now is None or not np.array_equal(then, now)):
        odd.append("walkers")
    # Where the engine relaxed a structure, databases before 0.2 hold only the result.
    unknown = relaxed and record.proposed_positions is None and record.ok
    if not unknown and not _same_structure(record.proposed, again.atoms):
        odd.insert(0, "structures")
    return odd


def _same_structure(a: Atoms, b: Atoms) -> bool:
    pairs = ((a.numbers, b.numbers), (a.positions, b.positions), (a.cell.array, b.cell.array),
             (a.pbc, b.pbc))  # fmt: skip
    return all(np.array_equal(x, y) for x, y in pairs)
