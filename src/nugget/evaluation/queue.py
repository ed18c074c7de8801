"""Evaluations under way: several at a time, answered in the order in which they are done.

Without an executor they run in processes of this machine. Any other `concurrent.futures.Executor`
(a process pool, a Dask cluster) gets `evaluate_plain` with plain data, and need not know more.
"""

from __future__ import annotations

import atexit
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Executor, Future, ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType
from typing import Any
from weakref import WeakSet

from ase import Atoms

from nugget.errors import NuggetError
from nugget.evaluation.evaluator import Evaluator, Outcome, _atoms_dict, _atoms_from
from nugget.search.config import EngineConfig
from nugget.search.learner import Proposal
from nugget.search.store import UNFINISHED, Record

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
    outcome: Outcome = _warm.evaluator.evaluate(
        _atoms_from({"structure": structure, "results": {}})
    )
    return outcome.to_json()


class Flight:
    """The evaluations in flight. Use `with`: leaving it breaks off what has not been answered."""

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
                evaluate_plain, self._settings, _atoms_dict(atoms)["structure"], attempt
            )
        self._records: dict[int, Record] = {}
        self._futures: dict[int, Future[Any]] = {}
        self._done: SimpleQueue[tuple[int, int, Future[Any]]] = SimpleQueue()

    def __len__(self) -> int:
        return len(self._records)

    @property
    def pending(self) -> list[Record]:
        """What has been submitted and not been answered, in order of proposal."""
        return [self._records[proposal] for proposal in sorted(self._records)]

    def submit(self, record: Record) -> None:
        """Have a structure evaluated."""
        self._records[record.proposal] = record
        self._start(record, 1)

    def next(self) -> tuple[Record, Outcome]:
        """Wait for the next answer. A worker that is lost is an answer too, after `retries`."""
        while True:
            proposal, attempt, future = self._done.get()
            record = self._records[proposal]
            try:
                outcome = self._outcome(future.result(), record.atoms)
            except (Exception, CancelledError) as error:
                if attempt <= self.retries:
                    self._start(record, attempt + 1)
                    continue
                text = " ".join(f"{type(error).__name__}: {error}".split())
                reason = f"the worker was lost ({text})"[:500]
                outcome = Outcome(record.atoms.copy(), "died", reason, attempts=attempt)
            del self._records[proposal], self._futures[proposal]
            return record, outcome

    def _start(self, record: Record, attempt: int) -> None:
        try:
            future = self._send(record.atoms, attempt)
        except Exception as error:
            raise NuggetError(
                f"The executor takes no more work ({type(error).__name__}: {error}). What is in "
                "flight has been written down: resume the search with a new executor."
            ) from error
        self._futures[record.proposal] = future
        future.add_done_callback(lambda done: self._done.put((record.proposal, attempt, done)))

    def _outcome(self, answer: Any, asked: Atoms) -> Outcome:
        if self._executor is None:
            found: Outcome = answer
            return found
        outcome = Outcome.from_json(answer)
        outcome.atoms.info = dict(asked.info)
        return outcome

    def __enter__(self) -> Flight:
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


def make_pending(
    ordinal: int, learnt: int, proposal: Proposal, kappa: float, seconds: float = 0.0
) -> Record:
    """What is written down of an evaluation before it is done."""
    return Record(
        iteration=UNFINISHED,
        atoms=proposal.atoms,
        generator=proposal.generator,
        predicted=proposal.predicted,
        sigma=proposal.sigma,
        scale=proposal.scale,
        kappa=kappa,
        acquisition=proposal.acquisition,
        surrogate_seconds=seconds,
        proposal=ordinal,
        learnt=learnt,
    )


def complete(pending: Record, iteration: int, outcome: Outcome, relaxed: bool = False) -> Record:
    """What is written down afterwards; `relaxed` if the engine may have moved the atoms."""
    return replace(
        pending,
        iteration=iteration,
        atoms=outcome.atoms,
        failure=outcome.failure or "",
        reason=outcome.reason,
        engine_seconds=outcome.seconds,
        asked=pending.atoms.positions.copy() if relaxed and outcome.ok else None,
    )
