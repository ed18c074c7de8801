"""Processes of this machine that may die or hang: their work is begun again in new ones."""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any

from nugget.errors import NuggetError

_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ONE_THREAD = dict.fromkeys(_LIBRARIES, "1")
_BEAT = 0.5  # seconds between two signs of life


class _Worker:
    """A pool of one process, and the counter that the process raises while it is alive."""

    def __init__(self) -> None:
        # Not fork: locks of BLAS and Numba's threads would be copied in whatever state they are.
        context = multiprocessing.get_context("spawn")
        self.beats: ctypes.c_long = context.RawValue(ctypes.c_long, 0)
        self.pool = ProcessPoolExecutor(1, context, _begin_worker, (os.getpid(), self.beats))

    def kill(self) -> None:
        for process in list((self.pool._processes or {}).values()):
            process.kill()

    def pids(self) -> list[int]:
        return list(self.pool._processes or {})

    def result(self, future: Future[Any], heartbeat: float) -> Any:
        """Wait for a result; without a sign of life for `heartbeat` seconds the process is killed.

        Seconds in which this process was suspended itself do not count: it counts its own waits.
        """
        silent, last = 0.0, self.beats.value
        while True:
            try:
                return future.result(timeout=_BEAT)
            except TimeoutError:
                if future.done():
                    raise  # the work's own
            silent, last = (silent + _BEAT if self.beats.value == last else 0.0), self.beats.value
            if silent > heartbeat:
                self.kill()
                silent = 0.0


class ProcessExecutor(Executor):
    """Processes that may be lost: the work of a lost one is begun again in a new one.

    Each worker is a pool of one process, fed by a thread: when a process is lost (killed, out of
    memory, silent for `heartbeat` seconds) it is known whose work it had, and the others go on. A
    job that has lost more than `max_losses` processes is at fault itself, and its future raises
    NuggetError.
    """

    def __init__(self, workers: int, max_losses: int = 3, heartbeat: float = 120.0) -> None:
        self.max_losses, self.heartbeat = max_losses, heartbeat
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="nugget-worker")
        self._own = threading.local()
        self._workers: set[_Worker] = set()
        self._changing = threading.Lock()
        self._killed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._threads.submit(self._do, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        with self._changing:
            for worker in self._workers:
                worker.pool.shutdown(wait)

    def kill(self) -> None:
        """End all processes now; what they were doing is lost."""
        self._killed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._changing:
            for worker in self._workers:
                worker.kill()

    def pids(self) -> list[int]:
        """The processes that there are now."""
        with self._changing:
            return [pid for worker in self._workers for pid in worker.pids()]

    def _do(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for _ in range(self.max_losses + 1):
            worker = self._worker()
            try:
                with self._changing:  # so that `kill` meets every process that there is
                    if self._killed:
                        raise NuggetError("The work was broken off.")
                    future = worker.pool.submit(fn, *args, **kwargs)
                return worker.result(future, self.heartbeat)
            except BrokenProcessPool:
                self._forget(worker)
        raise NuggetError(
            f"The worker process died {self.max_losses + 1} times on this job, or gave no sign of "
            f"life for {self.heartbeat:g} s: it may need more memory than there is; use fewer "
            "workers."
        )

    def _worker(self) -> _Worker:
        """This thread's worker, a new one after a loss."""
        worker: _Worker | None = getattr(self._own, "worker", None)
        if worker is None:
            worker = _Worker()
            with self._changing:
                self._workers.add(worker)
            self._own.worker = worker
        return worker

    def _forget(self, worker: _Worker) -> None:
        self._own.worker = None
        with self._changing:
            self._workers.discard(worker)
        worker.pool.shutdown(wait=True)


def _begin_worker(parent: int, beats: ctypes.c_long) -> None:
    """In a new process: whoever started it decides when to stop, and it does not outlive that."""
    ignore_interrupts()
    threading.Thread(target=_live, args=(parent, beats), daemon=True).start()


def _live(parent: int, beats: ctypes.c_long) -> None:
    while os.getppid() == parent:
        beats.value += 1
        time.sleep(_BEAT)
    os._exit(1)


def ignore_interrupts() -> None:
    """Ctrl-C and the SIGTERM of a batch system reach all processes; only the first one acts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """New processes inherit this; libraries read it when they are loaded."""
    former = {name: os.environ.get(name) for name in ONE_THREAD}
    os.environ.update(ONE_THREAD)
    try:
        yield
    finally:
        for name, value in former.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
