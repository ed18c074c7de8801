"""Where jobs run: in this process, in processes of this machine, on a Dask cluster, or in a queue.

`nugget.engines.dask_cluster` and `nugget.engines.batch_jobs` contain the last two of these.

`make_executor` gives a `concurrent.futures.Executor` for each of them. Workers run one thread and
may be lost at any time. A worker without a heartbeat is killed and counts as lost. The job of a
lost worker starts again on another one, so jobs must be able to resume.
"""

from __future__ import annotations

import contextlib
import ctypes
import multiprocessing
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from nugget.engines.engine_settings import HEARTBEAT, MAX_LOSSES, ExecutionConfig
from nugget.errors import NuggetError

_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")

ONE_THREAD = dict.fromkeys(_LIBRARIES, "1")
_BEAT = 0.5  # seconds between two heartbeats


class _Worker:
    """A pool of one process, and a counter that the process increases as its heartbeat."""

    def __init__(self) -> None:
        # Not fork, which would copy the locks of BLAS and Numba threads in any state.
        context = multiprocessing.get_context("spawn")
        self.beats: ctypes.c_long = context.RawValue(ctypes.c_long, 0)
        self.pool = ProcessPoolExecutor(1, context, _begin_worker, (os.getpid(), self.beats))

    def kill(self) -> None:
        for process in list((self.pool._processes or {}).values()):
            process.kill()

    def pids(self) -> list[int]:
        return list(self.pool._processes or {})

    def result(self, future: Future[Any]) -> Any:
        """Wait for a result; kill the process after HEARTBEAT seconds without a heartbeat.

        Only the waits of this process count, not the time for which it was suspended itself.
        """
        silent, last = 0.0, self.beats.value
        while True:
            try:
                return future.result(timeout=_BEAT)
            except TimeoutError:
                if future.done():
                    raise  # raised by the job itself
            silent, last = (silent + _BEAT if self.beats.value == last else 0.0), self.beats.value
            if silent > HEARTBEAT:
                self.kill()
                silent = 0.0


class ProcessExecutor(Executor):
    """Processes that may be lost; the job of a lost process starts again in a new one.

    Each worker is a pool of one process that a thread supplies with jobs. When a process is lost
    (killed, out of memory, no heartbeat for HEARTBEAT seconds), its job can be identified and the
    other workers continue. The future of a job that lost more than MAX_LOSSES processes raises
    NuggetError.
    """

    def __init__(self, workers: int) -> None:
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
        """End all processes now, and with them their jobs."""
        self._killed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._changing:
            for worker in self._workers:
                worker.kill()

    def pids(self) -> list[int]:
        """Numbers of the current processes."""
        with self._changing:
            return [pid for worker in self._workers for pid in worker.pids()]

    def _do(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for _ in range(MAX_LOSSES + 1):
            worker = self._worker()
            try:
                with self._changing:  # so that `kill` includes every process
                    if self._killed:
                        raise NuggetError("The executor was killed.")
                    future = worker.pool.submit(fn, *args, **kwargs)
                return worker.result(future)
            except BrokenProcessPool:
                self._forget(worker)
        raise NuggetError(
            f"The worker process died {MAX_LOSSES + 1} times on this job, or sent no "
            f"heartbeat for {HEARTBEAT:g} s. The job may need more memory than is available; "
            "use fewer workers."
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
    """Initialise a new process, which ignores signals and ends with its parent."""
    ignore_interrupts()
    threading.Thread(target=_live, args=(parent, beats), daemon=True).start()


def _live(parent: int, beats: ctypes.c_long) -> None:
    while os.getppid() == parent:
        beats.value += 1
        time.sleep(_BEAT)
    os._exit(1)


def ignore_interrupts() -> None:
    """Ctrl-C and the SIGTERM of a batch system reach all processes; only the main one reacts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


@contextlib.contextmanager
def one_thread() -> Iterator[None]:
    """Set the number of threads for new processes; libraries read it when they are loaded."""
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


#: Seconds in which workers must end after an interrupt.
PATIENCE = 15.0


@contextlib.contextmanager
def make_executor(config: ExecutionConfig, directory: Path | None = None) -> Iterator[Executor]:
    """An executor within a context; an exception in the context kills its workers.

    Batch jobs have their files in `directory` (default: the current one). They stay in the queue
    after an exception, so that the next process can collect their results.

    If they do not end within `PATIENCE` seconds, the program ends with exit code 130, so that an
    interrupt always works; an error is printed before, and the exit code is 2.
    """
    manager = _executor(config, directory)
    executor = manager.__enter__()
    try:
        yield executor
    except BaseException as error:
        with _ending_within(PATIENCE, error):
            manager.__exit__(*sys.exc_info())
        raise
    manager.__exit__(None, None, None)


@contextlib.contextmanager
def _executor(config: ExecutionConfig, directory: Path | None) -> Iterator[Executor]:
    if config.kind == "dask":
        # Dask takes a second to import.
        from nugget.engines.dask_cluster import dask_executor

        with one_thread(), dask_executor(config, ONE_THREAD) as executor:
            yield executor
    elif config.kind == "jobs":
        from nugget.engines.batch_jobs import job_executor

        with job_executor(config, directory or Path.cwd(), ONE_THREAD) as executor:
            yield executor
    elif config.kind == "in-process":
        with InProcess() as executor:
            yield executor
    else:
        pool = ProcessExecutor(config.count)
        with one_thread(), pool:
            try:
                yield pool
            except BaseException:
                pool.kill()
                raise


def script_of(config: ExecutionConfig, directory: Path) -> str:
    """The script of the jobs that these settings submit; NuggetError if they submit none."""
    if config.kind == "jobs":
        from nugget.engines.batch_jobs import DIRECTORY, job_options, job_script

        place = directory.absolute() / DIRECTORY / "example"
        return job_script(job_options(config), ONE_THREAD, place, "nugget-example")
    if config.kind == "dask" and config.address is None and config.cluster != "local":
        from nugget.engines.dask_cluster import job_script_of

        return job_script_of(config, ONE_THREAD)
    raise NuggetError(
        'the settings submit no jobs; [execution] needs kind = "jobs", or kind = "dask" with '
        'cluster = "slurm" or "pbs".'
    )


@contextlib.contextmanager
def _ending_within(seconds: float, error: BaseException) -> Iterator[None]:
    """End the program if the context takes longer."""

    def end() -> None:
        if isinstance(error, NuggetError):
            print(f"Error: {error}", file=sys.stderr, flush=True)
        for process in multiprocessing.active_children():
            process.kill()
        os._exit(2 if isinstance(error, NuggetError) else 130)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@runtime_checkable
class Losable(Protocol):
    """An executor that may be lost as a whole, such as a cluster without its scheduler."""

    def lost(self) -> str | None:
        """Why no more results can be expected; None while they can."""


def require_alive(executor: Executor | None) -> None:
    """Raise NuggetError if the executor can be lost and is."""
    if isinstance(executor, Losable) and (reason := executor.lost()) is not None:
        raise executor_lost(reason)


def executor_lost(reason: str) -> NuggetError:
    """The error that ends a search or a campaign whose executor is lost."""
    return NuggetError(
        f"The executor takes no more work ({reason}). Evaluations in flight are recorded: "
        "--resume continues with a new executor."
    )


class InProcess(Executor):
    """Runs each job immediately in this process; Ctrl-C is passed on."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future
