"""Numba as this package uses it: cached on disk, and it says so when it has to compile."""

from __future__ import annotations

import sys
from typing import Any

from numba import njit
from numba.core import event

__all__ = ["FAST", "njit"]

# No "reassoc" and no "nnan": sums keep their order and NaN stays NaN.
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
