"""Several cores in one process: the same slices of work, whatever the number of threads.

Compiled loops and BLAS let go of Python's lock, so plain threads are enough. Work is cut into
slices by its size alone and results are put together in order: one thread and many give the same
bits. BLAS is kept to one thread meanwhile; two levels of threads would only wait for each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import TypeVar

from threadpoolctl import ThreadpoolController

from nugget.errors import NuggetError

_In = TypeVar("_In")
_Out = TypeVar("_Out")

_inside = threading.local()
_chosen: list[int | None] = [None]


def all_cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_threads(threads: int | None) -> None:
    """Threads of this process wherever `threads` is not given; None: `NUGGET_THREADS`, or 1."""
    _chosen[0] = None if threads is None else number(threads)


def number(threads: int | None) -> int:
    """The number of threads: what is given, else what `set_threads` or the environment says."""
    if threads is None:
        threads = _chosen[0]
    if threads is None:
        said = os.environ.get("NUGGET_THREADS", "1")
        if not said.isdigit():
            raise NuggetError(f"NUGGET_THREADS is {said!r}; give a number, 0 for all cores.")
        threads = int(said)
    if threads < 0:
        raise NuggetError(f"threads is {threads}; give a number, 0 for all cores.")
    return threads or all_cores()


def each(
    function: Callable[[_In], _Out], items: Iterable[_In], threads: int | None = None
) -> list[_Out]:
    """[function(item) for item in items], several at a time."""
    work, count = list(items), number(threads)
    if count == 1 or len(work) < 2 or getattr(_inside, "busy", False):
        return [function(item) for item in work]
    with _controller().limit(limits=1, user_api="blas"):
        return list(_pool(os.getpid(), count).map(_marked(function), work))


def _marked(function: Callable[[_In], _Out]) -> Callable[[_In], _Out]:
    def run(item: _In) -> _Out:
        _inside.busy = True  # slices do not wait for slices: the pool may have no thread left
        try:
            return function(item)
        finally:
            _inside.busy = False

    return run


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """One pool per number of threads; a forked process makes its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="nugget")


@cache
def _controller() -> ThreadpoolController:
    return ThreadpoolController()
