"""Where work is done: in this process, in a pool of processes, or on a Dask cluster.

`make_executor` gives a `concurrent.futures.Executor` for each of them. Workers run one thread, may
be lost at any moment, and work that a lost worker had is begun again elsewhere: it must be written
so that it finds what was done before. A worker that gives no sign of life is killed and counts as
lost.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from typing import Any

from nugget.evaluation.config import ExecutionConfig
from nugget.evaluation.processes import ONE_THREAD, ProcessExecutor, one_thread

__all__ = ["ONE_THREAD", "InProcess", "ProcessExecutor", "make_executor"]

#: Seconds that workers have to end after an interrupt.
PATIENCE = 15.0


@contextlib.contextmanager
def make_executor(config: ExecutionConfig) -> Iterator[Executor]:
    """An executor for as long as the context lasts; leaving by an exception kills its workers.

    If they cannot be ended within `PATIENCE` seconds, the program ends with exit code 130: an
    interrupt always works.
    """
    manager = _executor(config)
    executor = manager.__enter__()
    try:
        yield executor
    except BaseException:
        with _ending_within(PATIENCE):
            manager.__exit__(*sys.exc_info())
        raise
    manager.__exit__(None, None, None)


@contextlib.contextmanager
def _executor(config: ExecutionConfig) -> Iterator[Executor]:
    if config.kind == "dask":
        from nugget.evaluation.dask_cluster import dask_executor

        with dask_executor(config) as executor:
            yield executor
    elif config.kind == "in-process":
        with InProcess() as executor:
            yield executor
    else:
        pool = ProcessExecutor(config.count, config.max_losses, config.heartbeat)
        with one_thread(), pool:
            try:
                yield pool
            except BaseException:
                pool.kill()
                raise


@contextlib.contextmanager
def _ending_within(seconds: float) -> Iterator[None]:
    """End the program, if what is done here takes longer than it may."""

    def end() -> None:
        for process in multiprocessing.active_children():
            process.kill()
        os._exit(130)

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


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
