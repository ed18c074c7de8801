"""What the benchmarks share: interleaved timing, tables, JSON."""

from __future__ import annotations

import json
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

RESULTS = Path(__file__).parent / "results"


class Timings(dict[str, float]):
    """Median seconds of each piece of work; `ratio` compares two of them round by round."""

    def __init__(self, samples: dict[str, list[float]]) -> None:
        super().__init__({name: median(times) for name, times in samples.items()})
        self.samples = samples

    def ratio(self, above: str, below: str) -> float:
        """Median over the rounds of one piece's time over another's in the same round."""
        pairs = zip(self.samples[above], self.samples[below], strict=True)
        return median(a / b for a, b in pairs)


def interleaved(work: dict[str, Callable[[], object]], seconds: float = 2.0) -> Timings:
    """Processor seconds of one call of each piece of work, taken in turns.

    Turns make the ratio of two pieces of work robust against a machine that changes its speed:
    each round runs all of them, and slow rounds are slow for all. Processor time leaves out what
    other processes take; with one thread it is the wall time of a quiet machine.
    """
    repeats = {}
    for name, function in work.items():
        function()
        start = time.process_time()
        function()
        once = time.process_time() - start
        repeats[name] = max(1, int(0.01 / max(once, 1e-7)))
    samples: dict[str, list[float]] = {name: [] for name in work}
    deadline = time.process_time() + seconds * len(work)
    while time.process_time() < deadline or len(next(iter(samples.values()))) < 5:
        for name, function in work.items():
            for _ in range(repeats[name] // 4):  # not at the cost of what the one before it left
                function()
            start = time.process_time()
            for _ in range(repeats[name]):
                function()
            samples[name].append((time.process_time() - start) / repeats[name])
    return Timings(samples)


def peak_memory_mb() -> float:
    """High-water mark of this process."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def table(title: str, header: list[str], rows: list[list[object]]) -> None:
    """Print a Markdown table."""
    cells = [[f"{c:.4g}" if isinstance(c, float) else str(c) for c in row] for row in rows]
    widths = [max(len(r[k]) for r in [header, *cells]) for k in range(len(header))]
    print(f"\n{title}\n")
    for row in [header, ["-" * w for w in widths], *cells]:
        print("| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |")


def save(name: str, results: object) -> None:
    """Write results with the processor's name to benchmarks/results/NAME.json."""
    RESULTS.mkdir(exist_ok=True)
    path = RESULTS / f"{name}.json"
    path.write_text(json.dumps({"machine": platform.machine(), "results": results}, indent=1))
    print(f"\nwritten: benchmarks/results/{path.name}")
