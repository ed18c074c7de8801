"""How much memory and time a fit takes, before it is begun."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ase import Atoms

    from nugget.potential.potential import Potential

# Inducing points that a tolerance needs grow like n^0.3 with the environments (measured on gold
# clusters: 0.22 for a small basis, 0.34 for a large one).
_GROWTH = 0.3
_SAMPLE = 1000  # environments that are looked at
# Copies of the label rows at the peak: parts, their concatenation, scaled rows, the store.
_COPIES = 4.5
_STREAMED = 2 * 2048  # label rows that a streamed fit holds: two pieces


@dataclass(frozen=True)
class FitSize:
    """The numbers that decide what a fit costs."""

    environments: int
    pairs: int  # each once
    labels: int
    features: int
    points: int  # inducing
    members: int = 0
    greedy: bool = True  # pivoted Cholesky, which keeps a factor of all environments
    largest_pairs: int = 0  # of one structure
    structures: int = 0
    stream: bool = False  # label rows are made and dropped piece by piece


@dataclass(frozen=True)
class Estimate:
    bytes: float
    seconds: float


def estimate_fit(size: FitSize, gflops: float = 20.0) -> Estimate:
    """Peak memory (on top of the program itself) and time of one thread.

    Rows of p labels for m points: 8 p m bytes, several times over; their QR takes 2 p m²
    operations, and the slopes of all pairs with f features 12 P f m.
    """
    n, p, f, m = size.environments, size.labels, size.features, size.points
    with_forces = p > 0 and size.largest_pairs > 0
    held, seen = (min(p, _STREAMED), min(n, 10 * m)) if size.stream else (p, n)
    floats = (
        _COPIES * held * m
        + 8.0 * m * m
        + 6.0 * seen * f
        + (seen * m if size.greedy else 0)
        + (float(size.structures) * m if size.stream else 0)  # rows of energies are kept
        + 3.0 * p * size.members
        + (6.0 * size.largest_pairs * (2 * f + m) if with_forces else 0)
    )
    # Measured shares of the speed of a plain matrix product: QR 0.3, slopes 0.5, committee 0.3.
    work = 2.0 * p * m * m / 0.3 + 10.0 * m**3 / 0.3
    seconds = work / (gflops * 1e9)
    if with_forces:
        seconds += 12.0 * size.pairs * f * m / 0.5 / (gflops * 1e9)
        seconds += size.pairs * (4e-8 * m + 1.5e-7 * f)  # loops, bound by memory
    else:
        seconds += 5e-9 * n * m
    if size.greedy:
        seconds += 1.2e-9 * n * m * m  # bound by memory, not by arithmetic
    return Estimate(8.0 * floats, seconds)


def measure(
    potential: Potential, images: Sequence[Atoms], forces: bool, stream: bool = False
) -> FitSize:
    """The size of a fit, from a sample of the structures."""
    from nugget.gp.inducing import PivotedCholesky
    from nugget.gp.points import Points
    from nugget.structures.batch import as_batch

    batch = as_batch(images)
    n = len(batch.positions)
    step = max(n // _SAMPLE, 1)
    chosen = np.arange(0, len(batch), step)
    env = potential.descriptor.compute(batch.select(chosen))
    share = len(env.values) / n
    rule = potential.inducing
    greedy = isinstance(rule, PivotedCholesky)
    if isinstance(rule, PivotedCholesky):
        points = Points(env.values, env.batch.offsets, env.species)
        rng = np.random.default_rng(0)
        sampled = len(rule.select(points, potential.kernel, rng))
        m = min(int(sampled * (1.0 / share) ** _GROWTH), rule.max_points or n, n)
    else:
        m = min(int(getattr(rule, "n_points", n)), n)
    per_structure = np.diff(env.pairs.offsets)
    return FitSize(
        environments=n,
        pairs=int(len(env.pairs.i) / share),
        labels=len(batch) + (3 * n if forces else 0),
        features=int(env.values.shape[1]),
        points=m,
        members=int(getattr(potential.uncertainty, "members", None) or 0),
        greedy=greedy,
        largest_pairs=int(per_structure.max()) if forces else 0,
        structures=len(batch),
        stream=stream,
    )


def points_that_fit(size: FitSize, limit: float) -> int:
    """The largest number of inducing points whose fit stays within `limit` bytes (0: none)."""
    low, high = 0, size.points
    while low < high:
        middle = (low + high + 1) // 2
        tried = FitSize(**{**size.__dict__, "points": middle})
        low, high = (middle, high) if estimate_fit(tried).bytes <= limit else (low, middle - 1)
    return low


def speed() -> float:
    """10⁹ operations per second of a plain matrix product, here and now."""
    a = np.ones((512, 512))
    best = np.inf
    for _ in range(3):
        start = time.perf_counter()
        a @ a
        best = min(best, time.perf_counter() - start)
    return 2.0 * 512**3 / best / 1e9


def available_memory() -> float:
    """Bytes that this process may still take: the machine's, or a container's if that is less."""
    limits = [float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
        limits.append(1024.0 * float(lines["MemAvailable"].split()[0]))
    group = Path("/sys/fs/cgroup")
    try:
        limit = float((group / "memory.max").read_text())  # "max" where there is none
        used = float((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        limits.append(limit - used + float(stat.get("inactive_file", 0)))  # caches give way
    except (OSError, ValueError):
        pass
    return min(limits)
