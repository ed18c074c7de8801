"""Numba as this package uses it: one cache key for all loops, and compile times.

`njit` is the decorator of every compiled function of the package. docs/compiled.md explains it.
"""

from __future__ import annotations

import gc
import os
import sys
import time
from collections.abc import Callable
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import llvmlite
import numba
import numpy as np
from llvmlite import binding
from numba.core import event
from numba.core.caching import FunctionCache, IndexDataCacheFile
from numpy.typing import NDArray

# No "reassoc" and no "nnan": sums keep their order, also next to large constants; NaN stays NaN.
FAST = {"contract", "nsz", "arcp"}
_PACKAGE = Path(__file__).resolve().parents[1]


def _lanes() -> int:
    """Doubles in the widest register that Numba compiles for; four where that is not known."""
    wanted = os.environ.get("NUGGET_LANES", "")
    if wanted in ("4", "8"):
        return int(wanted)
    config: Any = numba.config
    if config.CPU_FEATURES is not None:
        return 8 if "+avx512f" in str(config.CPU_FEATURES) else 4
    if config.CPU_NAME not in (None, "", "host"):
        return 4
    return 8 if binding.get_host_cpu_features().get("avx512f") else 4


LANES = _lanes()


def njit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Compile a function on its first call and keep the machine code on disk.

    Options are those of `numba.njit`. Compiled functions release Python's lock (see `threads`).
    """

    def decorate(function: Callable[..., Any]) -> Any:
        compiled: Any = numba.njit(nogil=True, **options)(function)
        # An inlined function has no machine code of its own; NUMBA_DISABLE_JIT=1 compiles nothing.
        if hasattr(compiled, "py_func") and options.get("inline") != "always":
            compiled._cache = _Cache(function)
        return compiled

    return decorate if function is None else decorate(function)


def entry_point(function: Any, *arguments: Any) -> Callable[..., Any]:
    """The machine code of a compiled function for the types of these arguments.

    A call of it skips Numba's look-up of types, which takes up to 10 µs for tuples of arrays. All
    later arguments must have the same types: the same data types, dimensions and C order.
    """
    if not hasattr(function, "overloads"):  # NUMBA_DISABLE_JIT=1
        return cast(Callable[..., Any], function)
    key = function, _type_key(arguments)
    if key not in _entry_points:
        types = tuple(numba.typeof(argument) for argument in arguments)
        function.compile(types)
        _entry_points[key] = function.overloads[types].entry_point
    return _entry_points[key]


_entry_points: dict[Any, Callable[..., Any]] = {}


def _type_key(value: Any) -> Any:
    """Everything that Numba's type of a value depends on; `numba.typeof` takes milliseconds."""
    if isinstance(value, np.ndarray):
        flags = value.flags
        layout = flags.c_contiguous, flags.f_contiguous, flags.aligned, flags.writeable
        return value.dtype.str, value.ndim, layout
    if isinstance(value, tuple):
        return type(value), *map(_type_key, value)
    return type(value)


class _Cache(FunctionCache):
    """Numba's cache on disk, valid as long as no compiled source of the package has changed.

    Numba looks at the file of the function itself, but not at the files of functions that it calls:
    a change there would leave callers at their old machine code.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function)
        stamp = (
            self._impl.locator.get_source_stamp(), llvmlite.__version__, LANES, sources_digest(),
        )  # fmt: skip
        self._cache_file = IndexDataCacheFile(self.cache_path, self._impl.filename_base, stamp)


def compiled_sources() -> dict[str, bytes]:
    """Files of the package with compiled code, by name: `numerics`, and those that use @njit."""
    sources = {}
    for path in sorted(_PACKAGE.rglob("*.py")):
        source = path.read_bytes()
        if path.parent.name == "numerics" or b"\n@njit" in source:
            sources[path.relative_to(_PACKAGE).as_posix()] = source
    return sources


@cache
def sources_digest() -> str:
    """Digest of the names and contents of all compiled sources."""
    digest = sha256()
    for name, source in compiled_sources().items():
        digest.update(f"{name} {len(source)} ".encode() + source)
    return digest.hexdigest()


class _Compilations(event.Listener):
    """Says what is being compiled (reading a cache is not compiling) and counts the seconds.

    On a terminal one line is updated and removed at the end; elsewhere one line is printed once.
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.depth = 0
        self.count = 0
        self.start, self.collects = 0.0, True

    def on_start(self, happening: Any) -> None:
        if self.depth == 0:
            self.start, self.collects = time.perf_counter(), gc.isenabled()
            gc.disable()  # compiling makes millions of objects, which takes the collector 13 %
        self.depth += 1
        function = getattr(happening.data.get("dispatcher"), "py_func", None)
        home = getattr(function, "__module__", None) or ""
        if home.startswith("nugget."):
            self.count += 1
            self.announce(f"{home.removeprefix('nugget.')} {function.__name__}")  # type: ignore[union-attr]

    def on_end(self, happening: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            self.seconds += time.perf_counter() - self.start
            if self.collects:
                gc.enable()
            if self.count and _on_terminal():
                print("\r\033[K", end="", file=sys.stderr, flush=True)

    def announce(self, name: str) -> None:
        if _on_terminal():
            line = f"nugget: compiling, first run only: {self.count} {name} ..."
            print(f"\r\033[K{line[:79]}", end="", file=sys.stderr, flush=True)
        elif self.count == 1:
            print("nugget: compiling, first run only ...", file=sys.stderr, flush=True)


def _on_terminal() -> bool:
    """A live display puts its own stream in the place of stderr; then lines cannot be updated."""
    return sys.stderr is sys.__stderr__ and sys.stderr is not None and sys.stderr.isatty()


_compilations = _Compilations()
event.register("numba:compile", _compilations)


def compile_seconds() -> float:
    """Seconds that this process has spent compiling so far."""
    return _compilations.seconds


@njit
def part_end(offsets: NDArray[np.int64], start: int, rows: int) -> int:
    """End of a part of a batch: from structure `start` on at most `rows` rows, or one structure."""
    end = start + 1
    while end < len(offsets) - 1 and offsets[end + 1] - offsets[start] <= rows:
        end += 1
    return end
