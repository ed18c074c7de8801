"""Several evaluations at a time, returned in the order in which they end.

Without an executor they run in processes of this machine. Any other `concurrent.futures.Executor`
(a process pool, a Dask cluster) gets `evaluate_plain` with plain data, and need not know more.
"""

from __future__ import annotations

import atexit
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import fields
from pathlib import Path
from queue import SimpleQueue
from types import TracebackType
from typing import Any
from weakref import WeakSet

from ase import Atoms

from nugget.errors import NuggetError
from nugget.evaluation.config import EngineConfig
from nugget.evaluation.engines import start_directory
from nugget.evaluation.evaluator import Evaluator, check_task
from nugget.evaluation.outcome import Outcome, atoms_dict, atoms_from
from nugget.evaluation.plausibility import Judge, settle
from nugget.evaluation.run import Task

SCRATCH = "scratch"  # inside the directory of the results

_warm = threading.local()
_all: WeakSet[Evaluator] = WeakSet()


@atexit.register
def _close_all() -> None:
    """End the children while Python is still whole."""
    for evaluator in list(_all):
        evaluator.close()


def evaluate_plain(
    settings: dict[str, Any], structure: dict[str, Any], attempt: int = 1, fresh: bool = False
) -> str:
    """Evaluate on the machine where this is called, in a child process with a time limit.

    `settings` are the arguments of `Evaluator`, `structure` is `Atoms.todict()`, the result is
    `Outcome.to_json()`. The child stays warm for the next structure; each thread has its own.
    `attempt` makes a repetition a call of its own: Dask remembers results by their arguments.
    """
    key = repr(settings)
    if getattr(_warm, "key", None) != key:
        if hasattr(_warm, "evaluator"):
            _warm.evaluator.close()
        _warm.evaluator, _warm.key = Evaluator(**settings), key
        _all.add(_warm.evaluator)
    atoms = atoms_from({"structure": structure, "results": {}})
    outcome: Outcome = _warm.evaluator.evaluate(atoms, fresh=fresh)
    return outcome.to_json()


def evaluator_settings(engine: EngineConfig, directory: Path | None = None) -> dict[str, Any]:
    """The arguments of `Evaluator` for these settings; plain data.

    `directory` is where the results go: the engine's files go to scratch/ inside it, unless the
    settings name another place.
    """
    scratch = engine.scratch
    if scratch is None and directory is not None:
        scratch = str(directory.absolute() / SCRATCH)
    return {
        "engine": engine.name,
        **engine.model_dump(exclude={"name", "scratch", "max_failures"}),
        "scratch": scratch,
        "start": start_directory(),
    }


def check_engine(engine: EngineConfig) -> None:
    """Raise NuggetError if evaluations with these settings cannot work here.

    May import the module of `module:factory`: ask for trust first.
    """
    names = {field.name for field in fields(Task)}
    settings = evaluator_settings(engine)
    check_task(Task(**{key: value for key, value in settings.items() if key in names}))


class EvaluationQueue:
    """Evaluations under way, each under a key of the caller's (a number).

    `directory` is that of the results, see `evaluator_settings`. `judge` says of a structure with
    results why they cannot be true, or None: such an evaluation is repeated once in a fresh
    process, see `nugget.evaluation.plausibility.settle`. Use `with`: leaving it breaks off what
    has not ended.
    """

    def __init__(
        self,
        engine: EngineConfig,
        width: int,
        executor: Executor | None = None,
        *,
        directory: Path | None = None,
        judge: Judge | None = None,
    ) -> None:
        self.width, self.retries = width, engine.retries
        self._settings = evaluator_settings(engine, directory)
        self._executor, self._directory, self._judge = executor, directory, judge
        self._send: Callable[[Atoms, int, bool], Future[Any]]
        if executor is None:
            self._evaluator = Evaluator(**self._settings, workers=width)
            self._pool = ThreadPoolExecutor(width)
            self._send = lambda atoms, _, fresh: self._pool.submit(
                self._evaluator.evaluate, atoms, fresh=fresh
            )
        else:
            self._send = lambda atoms, attempt, fresh: executor.submit(
                evaluate_plain, self._settings, atoms_dict(atoms)["structure"], attempt, fresh
            )
        self._atoms: dict[int, Atoms] = {}
        self._futures: dict[int, Future[Any]] = {}
        self._doubtful: dict[int, Outcome] = {}  # first outcomes of what is being repeated
        self._done: SimpleQueue[tuple[int, int, Future[Any]]] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._atoms)

    def submit(self, key: int, atoms: Atoms) -> None:
        """Have a structure evaluated; its key must not be under way already."""
        if key in self._atoms:
            raise NuggetError(f"evaluation {key} is under way already.")
        self._atoms[key] = atoms
        self._start(key, 1)

    def next(self) -> tuple[int, Outcome]:
        """Wait for the next one to end. A lost worker is an outcome too, after `retries`."""
        if not self._atoms:
            raise NuggetError("no evaluation is under way.")
        while True:
            key, attempt, future = self._done.get()
            try:
                outcome = self._outcome(future.result(), self._atoms[key])
            except (Exception, CancelledError) as error:
                if attempt <= self.retries:
                    self._start(key, attempt + 1)
                    continue
                if self._executor is not None and isinstance(error, CancelledError):
                    # Nobody here cancels: the scheduler is gone, and with it every other future.
                    raise _no_more_work(error) from error
                text = " ".join(f"{type(error).__name__}: {error}".split())
                reason = f"the worker was lost ({text})"[:500]
                outcome = Outcome(self._atoms[key].copy(), "died", reason, attempts=attempt)
            if self._judge is not None:
                first = self._doubtful.pop(key, None)
                if first is not None:
                    outcome = settle(first, outcome, self._judge)
                elif outcome.ok and self._judge(outcome.atoms) is not None:
                    self._doubtful[key] = outcome
                    self._start(key, attempt + 1)
                    continue
            del self._atoms[key], self._futures[key]
            return key, outcome

    def _start(self, key: int, attempt: int) -> None:
        try:
            future = self._send(self._atoms[key], attempt, key in self._doubtful)
        except Exception as error:
            raise _no_more_work(error) from error
        self._futures[key] = future
        future.add_done_callback(lambda done: self._done.put((key, attempt, done)))

    def _outcome(self, result: Any, submitted: Atoms) -> Outcome:
        if self._executor is None:
            found: Outcome = result
            return found
        outcome = Outcome.from_json(result)
        for frame in (outcome.atoms, *outcome.path):
            frame.info = dict(submitted.info)
        return outcome

    def __enter__(self) -> EvaluationQueue:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for future in list(self._futures.values()):
            future.cancel()
        if self._executor is None:  # somebody else's executor goes on living
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._evaluator.close()
            self._pool.shutdown()
        if self._directory is not None:  # empty, but perhaps not made by this process
            with contextlib.suppress(OSError):
                (self._directory / SCRATCH).rmdir()


def _no_more_work(error: BaseException) -> NuggetError:
    text = " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")
    return NuggetError(
        f"The executor takes no more work ({text}). What is in flight has been written down: "
        "resume the search with a new executor."
    )
