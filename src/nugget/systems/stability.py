"""Which compositions are stable, for many sets of energies at once (draws of a posterior).

With one chemical potential, intervals and boundaries are exact. With several, the range is covered
by a grid.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.systems.grand_potential import Counts, Envelope
from nugget.systems.reservoirs import UNLIMITED

_POINTS = {1: 201, 2: 61}  # grid points per chemical potential
_FEW = 17  # the same with three or more
_CHUNK = 2_000_000  # numbers per array


def formation(envelope: Envelope, counts: Sequence[Counts], energies: Floats) -> Floats:
    """E − Σ reference N (..., compositions)."""
    return np.asarray(energies - np.array(counts) @ np.array(envelope.references))


def intervals(counts: Ints, energies: Floats, low: float, high: float) -> tuple[Floats, Floats]:
    """The smallest and largest Δμ at which each composition is stable, (..., compositions).

    `energies` are relative to the reservoir. A composition is stable between the largest slope
    (e_c − e_k)/(n_c − n_k) to a smaller composition k and the smallest one to a larger k. It is
    nowhere stable if the second number is not above the first.
    """
    lower, upper = np.full_like(energies, low), np.full_like(energies, high)
    for c, n in enumerate(counts):
        for k, m in enumerate(counts):
            if m != n:
                slope = (energies[..., c] - energies[..., k]) / (n - m)
                if m < n:
                    lower[..., c] = np.maximum(lower[..., c], slope)
                else:
                    upper[..., c] = np.minimum(upper[..., c], slope)
    return lower, upper


def crossing(counts: Ints, energies: Floats, most: int, low: float, high: float) -> Floats:
    """The Δμ (...) at which the stable number of atoms rises above `most`, within the range.

    Compositions with more atoms win if one of them, k, has Δμ > (e_k − e_j)/(n_k − n_j) for all j
    with at most `most` atoms.
    """
    few, many = np.flatnonzero(counts <= most), np.flatnonzero(counts > most)
    slopes = energies[..., many, None] - energies[..., None, few]
    slopes /= counts[many, None] - counts[None, few]
    return np.asarray(np.clip(slopes.max(axis=-1).min(axis=-1), low, high))


def limits(envelope: Envelope) -> list[tuple[float, float]]:
    """The range of each Δμ; one without limits is reduced to where the stable phase changes."""
    ranges = []
    counts = np.array(list(envelope.points))
    energies = formation(envelope, list(envelope.points), np.array(list(envelope.points.values())))
    for k, (low, high) in enumerate(zip(envelope.lowest, envelope.highest, strict=True)):
        if (low, high) == UNLIMITED:
            other = np.delete(counts, k, axis=1)
            slopes = [
                (energies[a] - energies[b]) / (counts[a, k] - counts[b, k])
                for a in range(len(counts))
                for b in range(a)
                if counts[a, k] != counts[b, k] and np.array_equal(other[a], other[b])
            ]
            low, high = min(slopes, default=0.0) - 0.5, max(slopes, default=0.0) + 0.5
        ranges.append((float(low), float(high)))
    return ranges


def grid(ranges: Sequence[tuple[float, float]]) -> tuple[list[Floats], Floats]:
    """The axes, and all points (points, elements) of the range."""
    size = _POINTS.get(len(ranges), _FEW)
    axes = [np.linspace(low, high, size) for low, high in ranges]
    return axes, np.stack([x.ravel() for x in np.meshgrid(*axes, indexing="ij")], axis=-1)


def stable_on(points: Floats, counts: Ints, energies: Floats) -> Ints:
    """The index of the stable composition at each point, (draws, points)."""
    work = points @ counts.T  # (points, compositions)
    step = max(_CHUNK // work.size, 1)
    parts = [
        np.argmin(energies[k : k + step, None, :] - work, axis=-1)
        for k in range(0, len(energies), step)
    ]
    return np.concatenate(parts)


def appears(stable: Ints, compositions: int) -> Bools:
    """Whether each composition is stable somewhere, (draws, compositions)."""
    return np.stack([(stable == c).any(axis=1) for c in range(compositions)], axis=1)


def neighbours(stable: Ints, axes: Sequence[Floats]) -> list[tuple[int, int]]:
    """Pairs of compositions with a common boundary on the grid, for one set of energies."""
    cells = stable.reshape([len(axis) for axis in axes])
    pairs = set()
    for axis in range(cells.ndim):
        a = np.moveaxis(cells, axis, 0)
        differ = a[:-1] != a[1:]
        pairs |= {
            (min(p), max(p))
            for p in zip(a[:-1][differ].tolist(), a[1:][differ].tolist(), strict=True)
        }
    return sorted(pairs)
