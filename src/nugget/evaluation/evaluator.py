"""Evaluate structures in processes of their own, with a time limit for each."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from queue import SimpleQueue
from types import TracebackType
from typing import Any

from ase import Atoms

from nugget.errors import NuggetError
from nugget.evaluation.engines import get_engine, start_directory
from nugget.evaluation.outcome import FAILURES, Failure, Outcome
from nugget.evaluation.run import Task
from nugget.evaluation.scratch import Scratch
from nugget.evaluation.worker import Worker

#: What is tried again: deterministic failures would only repeat, but a process may die because
#: somebody else emptied the memory.
RETRY_ON: tuple[Failure, ...] = ("died",)


def check_task(task: Task) -> None:
    """Raise NuggetError if the engine is missing here, or knows no charge or spin as given."""
    engine = get_engine(task.engine, task.start or None)
    engine.require(task.options)
    engine.full_options(task.options, task.electrons)


class Evaluator:
    """Evaluates structures in processes of their own, with a time limit for each.

    A process stays warm between structures (start-up costs more than a small calculation), runs one
    thread, and is killed and replaced when it hangs or dies. Each evaluation has a scratch
    directory of its own (`nugget.evaluation.scratch`). Close it after use, or use `with`.

    `task` takes what `nugget.evaluation.run.Task` takes: charge, spin, magmoms, vacuum,
    relax_steps, relax_fmax, keep_path, and start, the directory where nugget was started.
    """

    def __init__(
        self,
        engine: str,
        options: Mapping[str, Any] | None = None,
        *,
        time_limit: float = 600.0,
        retries: int = 1,
        retry_on: Iterable[Failure] = RETRY_ON,
        workers: int = 1,
        scratch: str | None = None,
        keep_scratch: bool = False,
        **task: Any,
    ) -> None:
        task.setdefault("start", start_directory())
        self.task = Task(engine, dict(options or {}), **task)
        if not 0 < time_limit < math.inf:
            raise NuggetError(f"time_limit is {time_limit}; give a finite number of seconds.")
        if retries < 0 or self.task.relax_steps < 0 or workers < 1:
            raise NuggetError(
                f"retries ({retries}) and relax_steps ({self.task.relax_steps}) must not be "
                f"negative, workers ({workers}) must be at least one."
            )
        self.retry_on = tuple(retry_on)
        if unknown := set(self.retry_on) - set(FAILURES):
            raise NuggetError(f"retry_on has {sorted(unknown)}; choose from {', '.join(FAILURES)}.")
        check_task(self.task)
        self.time_limit = time_limit
        self.retries = retries
        self._closed = False
        self._scratch = Scratch(scratch, keep_scratch, self.task.start)
        self._scratch.sweep()
        self._workers = [Worker(self.task, self._scratch) for _ in range(workers)]
        self._free: SimpleQueue[Worker] = SimpleQueue()
        for worker in self._workers:
            self._free.put(worker)

    def __enter__(self) -> Evaluator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """End all processes; evaluations under way in other threads come back as "died"."""
        self._closed = True
        for worker in self._workers:
            worker.close()
        self._scratch.close()

    def evaluate(self, atoms: Atoms, *, fresh: bool = False) -> Outcome:
        """One structure, in a new process if it must be `fresh`.

        Never raises for what an engine does; safe to call from many threads.
        """
        if self._closed:
            raise NuggetError("the evaluator is closed; make a new one.")
        begun = time.perf_counter()
        worker = self._free.get()
        try:
            attempts = 1
            outcome = worker.evaluate(atoms, self.time_limit, fresh)
            while outcome.failure in self.retry_on and attempts <= self.retries:
                attempts += 1
                outcome = worker.evaluate(atoms, self.time_limit)
        finally:
            self._free.put(worker)
        for frame in (outcome.atoms, *outcome.path):
            frame.info = dict(atoms.info)  # stayed here, see atoms_dict
        return replace(outcome, seconds=time.perf_counter() - begun, attempts=attempts)

    def evaluate_many(self, images: Iterable[Atoms]) -> list[Outcome]:
        """Many structures, side by side if there are several workers; in the order given."""
        if len(self._workers) == 1:
            return [self.evaluate(atoms) for atoms in images]
        pool = ThreadPoolExecutor(len(self._workers))
        try:
            return list(pool.map(self.evaluate, images))
        except BaseException:
            # Ctrl-C: without this the threads would wait for their engines to the end.
            pool.shutdown(wait=False, cancel_futures=True)
            self.close()
            raise
        finally:
            pool.shutdown()
