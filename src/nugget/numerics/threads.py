"""Several cores in one process: the same slices of work, whatever the number of threads.

Compiled loops and BLAS let go of Python's lock, so plain threads are enough. Work is cut into
slices by its size alone and results are put together in order: one thread and many give the same
bits. BLAS is kept to one thread meanwhile; two levels of threads would only wait for each other.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from functools import cache
from itertools import count
from typing import Any, TypeVar

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


def free(threads: int | None = None) -> int:
    """Threads that `each` would use here: one within a slice of other work."""
    return 1 if getattr(_inside, "busy", False) else number(threads)


def each(
    function: Callable[[_In], _Out], items: Iterable[_In], threads: int | None = None
) -> list[_Out]:
    """[function(item) for item in items], several at a time."""
    work, cores = list(items), free(threads)
    if getattr(_inside, "busy", False):
        return [function(item) for item in work]
    with one_blas_thread():  # also for one thread: BLAS with more has other bits
        if cores == 1 or len(work) < 2:
            return [function(item) for item in work]
        results: list[Any] = [None] * len(work)
        errors: dict[int, BaseException] = {}
        numbers = count()  # next() is atomic

        def run() -> None:
            _inside.busy = True  # slices do not wait for slices
            try:
                while (k := next(numbers)) < len(work):
                    try:
                        results[k] = function(work[k])
                    except BaseException as error:
                        errors[k] = error
            finally:
                _inside.busy = False

        helpers = [
            _pool(os.getpid(), cores - 1).submit(run) for _ in range(min(cores, len(work)) - 1)
        ]
        run()  # the calling thread works too
        wait([helper for helper in helpers if not helper.cancel()])  # not for those yet to begin
    if errors:
        raise errors[min(errors)]
    return results


@cache
def _pool(process: int, threads: int) -> ThreadPoolExecutor:
    """Threads that help the one with the work; a forked process needs its own."""
    return ThreadPoolExecutor(threads, thread_name_prefix="nugget")


@contextmanager
def one_blas_thread() -> Iterator[None]:
    """BLAS on one thread, in the whole process: with more it has other bits.

    Whoever comes first sets it and whoever leaves last resets it, so that threads that work at the
    same time do not undo each other's setting. Asking takes 1 µs, telling ten times that.
    """
    with _guests.lock:
        if _guests.inside == 0:
            _guests.before = [(lib, lib.num_threads) for lib in _blas() if lib.num_threads != 1]
            for lib, _ in _guests.before:
                lib.set_num_threads(1)
        _guests.inside += 1
    try:
        yield
    finally:
        with _guests.lock:
            _guests.inside -= 1
            if _guests.inside == 0:
                for lib, before in _guests.before:
                    lib.set_num_threads(before)


class _Guests:
    """Who needs BLAS on one thread at present, and what it had before."""

    def __init__(self) -> None:
        self.lock, self.inside = threading.Lock(), 0
        self.before: list[tuple[Any, int]] = []


_guests = _Guests()

# A lock that another thread holds at the moment of a fork would stay locked in the child for ever.
os.register_at_fork(after_in_child=lambda: setattr(_guests, "lock", threading.Lock()))


@cache
def _blas() -> list[Any]:
    import scipy.linalg  # noqa: F401  # a library that is loaded later would not be found

    return [lib for lib in ThreadpoolController().lib_controllers if lib.user_api == "blas"]
