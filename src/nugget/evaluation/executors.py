"""Where work is done: in this process, in a pool of processes, or on a Dask cluster.

`make_executor` gives a `concurrent.futures.Executor` for each of them. Workers run one thread, may
be lost at any moment, and work that a lost worker had is begun again elsewhere: it must be written
so that it finds what was done before.
"""

from __future__ import annotations

import contextlib
import logging
import multiprocessing
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from importlib import import_module
from typing import Any

from nugget.errors import NuggetError
from nugget.evaluation.config import ExecutionConfig

_LIBRARIES = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
ONE_THREAD = dict.fromkeys(_LIBRARIES, "1")
CONNECT = 30.0  # seconds that a Dask scheduler has to answer


@contextlib.contextmanager
def make_executor(config: ExecutionConfig) -> Iterator[Executor]:
    """An executor for as long as the context lasts; leaving by an exception kills its workers."""
    if config.kind == "dask":
        with _dask(config) as executor:
            yield executor
        return
    if config.kind == "in-process":
        with InProcess() as executor:
            yield executor
        return
    with _one_thread(), ProcessExecutor(config.count, config.max_losses) as pool:
        try:
            yield pool
        except BaseException:
            pool.kill()
            raise


class InProcess(Executor):
    """Does the work at once, here. Ctrl-C goes through."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        try:
            future.set_result(fn(*args, **kwargs))
        except Exception as error:
            future.set_exception(error)
        return future


class ProcessExecutor(Executor):
    """Processes that may die: the work of a lost one is begun again in a new one.

    Each worker is a pool of one process, fed by a thread: when a process is lost (killed, out of
    memory) it is known whose work it had, and the others go on. A job that has lost more than
    `max_losses` processes is at fault itself, and its future raises NuggetError.
    """

    def __init__(self, workers: int, max_losses: int = 3) -> None:
        self.max_losses = max_losses
        # Not fork: locks of BLAS and Numba's threads would be copied in whatever state they are.
        self._context = multiprocessing.get_context("spawn")
        self._threads = ThreadPoolExecutor(workers, thread_name_prefix="nugget-worker")
        self._own = threading.local()
        self._pools: set[ProcessPoolExecutor] = set()
        self._changing = threading.Lock()
        self._killed = False

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return self._threads.submit(self._do, fn, args, kwargs)

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        self._threads.shutdown(wait, cancel_futures=cancel_futures)
        with self._changing:
            for pool in self._pools:
                pool.shutdown(wait)

    def kill(self) -> None:
        """End all processes now; what they were doing is lost."""
        self._killed = True
        self._threads.shutdown(wait=False, cancel_futures=True)
        with self._changing:
            for pool in self._pools:
                for process in list((pool._processes or {}).values()):
                    process.kill()

    def pids(self) -> list[int]:
        """The processes that there are now."""
        with self._changing:
            return [pid for pool in self._pools for pid in list(pool._processes or {})]

    def _do(self, fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        for _ in range(self.max_losses + 1):
            pool = self._pool()
            try:
                with self._changing:  # so that `kill` meets every process that there is
                    if self._killed:
                        raise NuggetError("The work was broken off.")
                    future = pool.submit(fn, *args, **kwargs)
                return future.result()
            except BrokenProcessPool:
                self._forget(pool)
        raise NuggetError(
            f"The worker process died {self.max_losses + 1} times on this job: it may need more "
            "memory than there is; use fewer workers."
        )

    def _pool(self) -> ProcessPoolExecutor:
        """This thread's process, a new one after a loss."""
        pool: ProcessPoolExecutor | None = getattr(self._own, "pool", None)
        if pool is None:
            pool = ProcessPoolExecutor(1, self._context, _begin_worker, (os.getpid(),))
            with self._changing:
                self._pools.add(pool)
            self._own.pool = pool
        return pool

    def _forget(self, pool: ProcessPoolExecutor) -> None:
        self._own.pool = None
        with self._changing:
            self._pools.discard(pool)
        pool.shutdown(wait=True)


def _begin_worker(parent: int) -> None:
    """In a new process: whoever started it decides when to stop, and it does not outlive that."""
    ignore_interrupts()
    threading.Thread(target=_end_with, args=(parent,), daemon=True).start()


def ignore_interrupts() -> None:
    """Ctrl-C and the SIGTERM of a batch system reach all processes; only the first one acts."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)


def _ignore_ctrl_c() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _end_with(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


@contextlib.contextmanager
def _one_thread() -> Iterator[None]:
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


@contextlib.contextmanager
def _dask(config: ExecutionConfig) -> Iterator[Executor]:
    try:
        from distributed import Client
    except ImportError:
        raise NuggetError(_MISSING) from None
    with contextlib.ExitStack() as stack:
        if config.address is not None:
            try:
                client = stack.enter_context(Client(config.address, timeout=CONNECT))
            except (OSError, ValueError) as error:
                raise NuggetError(
                    f"execution.address: no Dask scheduler answers at {config.address} ({error})."
                ) from None
        else:
            stack.enter_context(_one_thread())
            cluster = stack.enter_context(make_cluster(config))
            client = stack.enter_context(Client(cluster))
            if config.cluster == "local":
                # Also on workers that replace lost ones; Ctrl-C is the first process's business.
                client.register_worker_callbacks(_ignore_ctrl_c)
            else:
                # Jobs are asked for here, and again when they have reached their walltime.
                cluster.adapt(minimum=config.workers or 1, maximum=config.workers or 1)
        client.run_on_scheduler(_allow_failures, number=config.max_losses)
        yield client.get_executor(pure=False)


_MISSING = (
    'execution.kind = "dask" needs Dask, which is not installed. To install it: '
    "pip install nugget-gp[cluster]"
)


def _allow_failures(dask_scheduler: Any, number: int) -> None:
    dask_scheduler.allowed_failures = number


def make_cluster(config: ExecutionConfig) -> Any:
    """A Dask cluster whose workers are processes with one thread each."""
    if config.cluster == "local":
        from distributed import LocalCluster

        local = {
            "n_workers": config.count,
            "threads_per_worker": 1,
            "processes": True,
            "dashboard_address": None,
            "memory_limit": 0,  # the system's own limit will do; Dask's would kill without need
            "silence_logs": logging.CRITICAL,
            "env": ONE_THREAD,
        }
        return LocalCluster(**(local | config.options))
    try:
        queues = import_module("dask_jobqueue")
    except ImportError:
        raise NuggetError(_MISSING) from None
    cores = int(config.options.get("cores", 1))
    options: dict[str, Any] = {
        "cores": cores,
        "processes": cores,
        "memory": f"{2 * cores} GB",
    } | config.options
    if options["processes"] != cores:
        raise NuggetError(
            f"execution.options has {cores} cores and {options['processes']} processes; workers "
            "run one thread, so leave processes out."
        )
    exports = [f"export {name}={value}" for name, value in ONE_THREAD.items()]
    options["job_script_prologue"] = exports + list(options.get("job_script_prologue", []))
    kind = {"slurm": "SLURMCluster", "pbs": "PBSCluster"}[config.cluster]
    return getattr(queues, kind)(**options)
