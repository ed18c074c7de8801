"""Seconds that the surrogate takes."""

from __future__ import annotations

import time

from nugget._compiled.jit import compile_seconds


class Stopwatch:
    """Adds up the seconds spent inside `with`, compilation excluded, until they are taken."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def take(self) -> float:
        seconds, self.seconds = self.seconds, 0.0
        return seconds

    def __enter__(self) -> None:
        self._begun = time.perf_counter() - compile_seconds()

    def __exit__(self, *_: object) -> None:
        self.seconds += time.perf_counter() - compile_seconds() - self._begun
