"""Several evaluations at a time, returned in the order in which they end.

Without an executor they run in processes of this machine. Any other `concurrent.futures.Executor`
(a process pool, a Dask cluster) runs `evaluate_plain` with plain data.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor, wait
from pathlib import Path
from queue import Empty, SimpleQueue
from types import TracebackType
from typing import Any
from weakref import WeakSet

from ase import Atoms

from nugget.engines.engine_settings import EngineConfig
from nugget.engines.execution import executor_lost, require_alive
from nugget.engines.outcome import (
    EngineMissingError,
    Failure,
    Outcome,
    WalltimeError,
    atoms_dict,
    atoms_from,
)
from nugget.engines.plausibility import Judge, settle
from nugget.engines.runner import Evaluator
from nugget.engines.task import SCRATCH, Task
from nugget.errors import NuggetError
from nugget.storage.files import refuse_link

_warm = threading.local()

_MISSING = "missing"  # instead of an outcome: why the engine cannot run

_ASK = 1.0  # seconds between two questions whether the executor is lost

_all: WeakSet[Evaluator] = WeakSet()


@atexit.register
def _close_all() -> None:
    """End the child processes before the interpreter shuts down."""
    for evaluator in list(_all):
        evaluator.close()


def evaluate_plain(
    task: str, structure: dict[str, Any], attempt: int = 1, fresh: bool = False
) -> str:
    """Evaluate on the machine where this is called, in a child process with a time limit.

    `task` is `Task.to_json()`, `structure` is `Atoms.todict()`, the result is `Outcome.to_json()`.
    The child is reused for the next structure; each thread has its own. `attempt` distinguishes a
    repetition from the first call, because Dask caches results by their arguments. If the engine
    cannot run on this machine, the result only says why.
    """
    if getattr(_warm, "task", None) != task:
        if hasattr(_warm, "evaluator"):
            _warm.evaluator.close()
        _warm.task = None
        try:
            _warm.evaluator, _warm.task = Evaluator(Task.from_json(task)), task
        except NuggetError as error:
            return json.dumps({_MISSING: str(error)})
        _all.add(_warm.evaluator)
    atoms = atoms_from({"structure": structure, "results": {}})
    outcome: Outcome = _warm.evaluator.evaluate(atoms, fresh=fresh)
    return outcome.to_json()


class EvaluationQueue:
    """Evaluations in flight, each with a number as its key.

    `directory` is that of the results, see `Task.of`. An evaluation that `judge` rejects as
    implausible is repeated once in a fresh process, see `nugget.engines.plausibility.settle`.
    Leaving the context cancels all evaluations in flight.
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
        if directory is not None:
            refuse_link(directory / SCRATCH)
        task = Task.of(engine, directory)
        self._executor, self._directory, self._judge = executor, directory, judge
        self._send: Callable[[Atoms, int, bool], Future[Any]]
        if executor is None:
            self._evaluator = Evaluator(task, width)
            self._pool = ThreadPoolExecutor(width)
            self._send = lambda atoms, _, fresh: self._pool.submit(
                self._evaluator.evaluate, atoms, fresh=fresh
            )
        else:
            text = task.to_json()
            self._send = lambda atoms, attempt, fresh: executor.submit(
                evaluate_plain, text, atoms_dict(atoms)["structure"], attempt, fresh
            )
        self._atoms: dict[int, Atoms] = {}
        self._futures: dict[int, Future[Any]] = {}
        self._rejected: dict[int, Outcome] = {}  # first outcomes of evaluations being repeated
        self._done: SimpleQueue[tuple[int, int, Future[Any]]] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._atoms)

    def submit(self, key: int, atoms: Atoms) -> None:
        """Start an evaluation; its key must not be in flight already."""
        if key in self._atoms:
            raise NuggetError(f"evaluation {key} is in flight already.")
        self._atoms[key] = atoms
        self._start(key, 1)

    def evaluate(self, atoms: Atoms, fresh: bool = False) -> Outcome:
        """Evaluate one structure and wait for it, without a judge; others stay in flight."""
        for attempt in range(1, self.retries + 2):
            try:
                return self._outcome(self._waited(self._send(atoms, -attempt, fresh)), atoms)
            except WalltimeError as error:
                return Outcome(atoms.copy(), Failure.TIMEOUT, str(error), attempts=attempt)
            except NuggetError:
                raise
            except (Exception, CancelledError) as error:
                lost = error
        if self._executor is not None and isinstance(lost, CancelledError):
            raise executor_lost(_in_words(lost)) from lost
        reason = f"the worker was lost ({type(lost).__name__}: {lost})"[:500]
        return Outcome(atoms.copy(), Failure.DIED, reason, attempts=self.retries + 1)

    def _waited(self, future: Future[Any]) -> Any:
        """The result of a future; NuggetError if the executor is lost meanwhile."""
        while not wait([future], timeout=None if self._executor is None else _ASK).done:
            require_alive(self._executor)
        return future.result()

    def next(self) -> tuple[int, Outcome]:
        """Wait until an evaluation ends. A lost worker is a failure after `retries` attempts."""
        if not self._atoms:
            raise NuggetError("no evaluation is in flight.")
        while True:
            key, attempt, future = self._ended()
            try:
                outcome = self._outcome(future.result(), self._atoms[key])
            except WalltimeError as error:
                outcome = Outcome(self._atoms[key].copy(), Failure.TIMEOUT, str(error))
            except EngineMissingError:
                if attempt > self.retries:  # another worker may be on a machine that has it
                    raise
                self._start(key, attempt + 1)
                continue
            except (Exception, CancelledError) as error:
                if attempt <= self.retries:
                    self._start(key, attempt + 1)
                    continue
                if self._executor is not None and isinstance(error, CancelledError):
                    # Only a scheduler that was lost cancels futures, and it cancels all of them.
                    raise executor_lost(_in_words(error)) from error
                text = " ".join(f"{type(error).__name__}: {error}".split())
                reason = f"the worker was lost ({text})"[:500]
                outcome = Outcome(self._atoms[key].copy(), Failure.DIED, reason, attempts=attempt)
            if self._judge is not None:
                first = self._rejected.pop(key, None)
                if first is not None:
                    outcome = settle(first, outcome, self._judge)
                elif outcome.ok and self._judge(outcome.atoms) is not None:
                    self._rejected[key] = outcome
                    self._start(key, attempt + 1)
                    continue
            del self._atoms[key], self._futures[key]
            return key, outcome

    def _ended(self) -> tuple[int, int, Future[Any]]:
        """The next evaluation that has ended; NuggetError if the executor is lost meanwhile."""
        while True:
            try:
                return self._done.get(timeout=None if self._executor is None else _ASK)
            except Empty:
                require_alive(self._executor)

    def _start(self, key: int, attempt: int) -> None:
        try:
            future = self._send(self._atoms[key], attempt, key in self._rejected)
        except Exception as error:
            raise executor_lost(_in_words(error)) from error
        self._futures[key] = future
        future.add_done_callback(lambda done: self._done.put((key, attempt, done)))

    def _outcome(self, result: Any, submitted: Atoms) -> Outcome:
        if self._executor is None:
            local: Outcome = result
            return local
        if result.startswith(f'{{"{_MISSING}"'):
            raise EngineMissingError(f"On the machine of a worker: {json.loads(result)[_MISSING]}")
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
        if self._executor is None:  # an executor of the caller stays open
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._evaluator.close()
            self._pool.shutdown()
        if self._directory is not None:  # removed if empty, also if another process created it
            with contextlib.suppress(OSError):
                (self._directory / SCRATCH).rmdir()


def _in_words(error: BaseException) -> str:
    return " ".join(f"{type(error).__name__}: {error}".split()).rstrip(".: ")
