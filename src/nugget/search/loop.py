"""A search in a directory: create it, run it, stop it, continue it at any moment."""

from __future__ import annotations

from collections.abc import Iterable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from nugget._compiled.threads import one_blas_thread
from nugget.evaluation.trust import require_trust
from nugget.search.baseline import baseline_code
from nugget.search.config import Config
from nugget.search.knowledge import Knowledge, read_knowledge
from nugget.search.learner import Learner
from nugget.search.phases import Phase
from nugget.search.polish import Minimum
from nugget.search.prepare import (
    check,
    code_of,
    copied_names,
    copy_files,
    locate,
    make_problem,
    with_files,
)
from nugget.search.reference import read_references
from nugget.search.replay import Replay, replay
from nugget.search.run import Run, Watcher
from nugget.search.shown import result_contents, search_contents
from nugget.search.stop import Confidence
from nugget.search.store import End, Record, Store
from nugget.structures.shown import Contents, Shown


@dataclass(frozen=True, eq=False, repr=False)
class Result(Shown):
    """How a search ended."""

    best: Record | None
    failures: int
    end: End
    directory: Path
    minima: tuple[Minimum, ...] = ()  # polished, the lowest first
    polish_evaluations: int = 0
    confidence: Confidence | None = None  # that the lowest structure is found
    phases: tuple[Phase, ...] = ()  # of a search over compositions: the lowest of each

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

    def contents(self) -> Contents:
        return result_contents(self)


class Search(Shown):
    """A search in a directory. `Search.create` starts one, `Search.resume` continues one."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.config = store.config()
        self.problem = make_problem(self.config.system, store.directory)
        self.references = read_references(self.config, store.directory)
        self._stop = False

    def contents(self) -> Contents:
        return search_contents(self)

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
        copy_files(files, directory, config)
        return cls(Store.create(directory, with_files(config, copied_names(files))))

    @classmethod
    def resume(
        cls, directory: str | Path, trust: bool = False, trusted: Iterable[str] = ()
    ) -> Search:
        """The search in this directory, to be continued.

        A directory may be a stranger's. If its settings name code (`module:factory`, a command),
        it is refused unless `trust` says otherwise, or all of that code is among `trusted`.
        """
        store = Store.open(Path(directory))
        code = [c for c in code_of(store.config(), store.directory) if c not in set(trusted)]
        require_trust(code, str(directory), trust)
        return cls(store)

    @classmethod
    def replay(cls, directory: str | Path, trust: bool = False) -> Replay:
        """Make all proposals of a search again and compare them with its database, bit for bit.

        No engine is run, unless the model's baseline is one.
        """
        store = Store.open(Path(directory))
        require_trust(baseline_code(store.config(), store.directory), str(directory), trust)
        search = cls(store)
        with search.store.locked(), one_blas_thread():
            records, pending = search.store.records(), search.store.pending()
            learner = search.learner()
            return replay(learner, records, pending)

    def learner(self) -> Learner:
        """The learner before the first evaluation."""
        return Learner(self.config, self.problem, self.knowledge())

    def knowledge(self) -> Knowledge:
        """What was known before the search began."""
        return read_knowledge(self.config, self.problem, self.store.directory)

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
        """Go on until the budget is used, the reference is found or `stop` is called.

        Or until the lowest structure is found with the probability `stop_when`; see `stop.py`.

        Then `search.polish` structures are relaxed with the engine, outside the budget.

        `search.in_flight` evaluations are under way at a time, in processes of this machine or
        wherever `executor` takes them. When the reference has been found, those still in flight
        are broken off; they stay pending and count for nothing.
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
            len(run.polisher.steps), learner.meetings.confidence(), run.phases,
        )  # fmt: skip
