"""Several evaluations at a time, returned in the order in which they end.

Without an executor they run in processes of this machine. Any other `concurrent.futures.Executor`
(a process pool, a Dask cluster) gets `evaluate_plain` with plain data, and need not know more.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from queue import SimpleQueue
from types import TracebackType
from typing import Any
from weakref import WeakSet

from ase import Atoms

from nugget.errors import NuggetError
from nugget.evaluation.config import EngineConfig
from nugget.evaluation.evaluator import Evaluator
from nugget.evaluation.outcome import Outcome, atoms_dict, atoms_from

_warm = threading.local()
_all: WeakSet[Evaluator] = WeakSet()


@atexit.register
def _close_all() -> None:
    """End the children while Python is still whole."""
    for evaluator in list(_all):
        evaluator.close()


def evaluate_plain(settings: dict[str, Any], structure: dict[str, Any], attempt: int = 1) -> str:
    """Evaluate on the machine where this is called, in a child process with a time limit.

    `settings` are the arguments of `Evaluator`, `structure` is `Atoms.todict()`, the answer is
    `Outcome.to_json()`. The child stays warm for the next structure; each thread has its own.
    `attempt` makes a repetition a call of its own: Dask remembers answers by their arguments.
    """
    key = repr(settings)
    if getattr(_warm, "key", None) != key:
        if hasattr(_warm, "evaluator"):
            _warm.evaluator.close()
        _warm.evaluator, _warm.key = Evaluator(**settings), key
        _all.add(_warm.evaluator)
    outcome: Outcome = _warm.evaluator.evaluate(atoms_from({"structure": structure, "results": {}}))
    return outcome.to_json()


class EvaluationQueue:
    """Evaluations under way, each under a key of the caller's (a number).

    Use `with`: leaving it breaks off what has not ended.
    """

    def __init__(self, engine: EngineConfig, width: int, executor: Executor | None = None) -> None:
        self.width, self.retries = width, engine.retries
        self._settings: dict[str, Any] = {
            "engine": engine.name,
            "options": engine.options,
            "time_limit": engine.time_limit,
            "retries": engine.retries,
            "relax_steps": engine.relax_steps,
        }
        self._executor = executor
        self._send: Callable[[Atoms, int], Future[Any]]
        if executor is None:
            self._evaluator = Evaluator(**self._settings, workers=width)
            self._pool = ThreadPoolExecutor(width)
            self._send = lambda atoms, _: self._pool.submit(self._evaluator.evaluate, atoms)
        else:
            self._send = lambda atoms, attempt: executor.submit(
                evaluate_plain, self._settings, atoms_dict(atoms)["structure"], attempt
            )
        self._atoms: dict[int, Atoms] = {}
        self._futures: dict[int, Future[Any]] = {}
        self._done: SimpleQueue[tuple[int, int, Future[Any]]] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._atoms)

    @property
    def keys(self) -> list[int]:
        """What has been submitted and has not ended, in ascending order."""
        return sorted(self._atoms)

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
                text = " ".join(f"{type(error).__name__}: {error}".split())
                reason = f"the worker was lost ({text})"[:500]
                outcome = Outcome(self._atoms[key].copy(), "died", reason, attempts=attempt)
            del self._atoms[key], self._futures[key]
            return key, outcome

    def _start(self, key: int, attempt: int) -> None:
        try:
            future = self._send(self._atoms[key], attempt)
        except Exception as error:
            raise NuggetError(
                f"The executor takes no more work ({type(error).__name__}: {error}). What is in "
                "flight has been written down: resume the search with a new executor."
            ) from error
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
