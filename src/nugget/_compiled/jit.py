"""Numba as this package uses it: cached on disk, and it says so when it has to compile."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
from numba import njit
from numba.core import event
from numpy.typing import NDArray

__all__ = ["FAST", "njit", "part_end"]

# No "reassoc" and no "nnan": sums keep their order, also next to large constants; NaN stays NaN.
FAST = {"contract", "nsz", "arcp"}


class _Announcer(event.Listener):
    """Prints one line when a function of this package is compiled (not when a cache is read)."""

    def __init__(self) -> None:
        self.spoken = False

    def on_start(self, happening: Any) -> None:
        function = getattr(happening.data.get("dispatcher"), "py_func", None)
        home = getattr(function, "__module__", None) or ""
        if not self.spoken and home.startswith("nugget."):
            self.spoken = True
            print("nugget: compiling, first run only ...", file=sys.stderr, flush=True)

    def on_end(self, happening: Any) -> None:
        pass


event.register("numba:compile", _Announcer())


@njit(cache=True)
def part_end(offsets: NDArray[np.int64], start: int, rows: int) -> int:
    """End of a part of a batch: from structure `start` on at most `rows` rows, or one structure."""
    end = start + 1
    while end < len(offsets) - 1 and offsets[end + 1] - offsets[start] <= rows:
        end += 1
    return end
