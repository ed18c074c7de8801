"""Loops over atoms and pairs of a batch, with NumPy references."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget._compiled.jit import njit

# Below this many atoms a double loop finds the pairs of a cluster sooner than a cell list.
SMALL_CLUSTER = 400
HEAVIEST = 118  # the largest atomic number: compiled loops look elements up in tables


def is_sound_reference(positions: Floats, numbers: Ints, offsets: Ints, pbc: Bools) -> bool:
    """`is_sound` in NumPy."""
    elements = ((numbers >= 0) & (numbers <= HEAVIEST)).all()
    finite = np.isfinite(positions).all()
    return bool(np.diff(offsets).all() and not pbc.any() and finite and elements)


@njit(reference=is_sound_reference)
def is_sound(positions: Floats, numbers: Ints, offsets: Ints, pbc: Bools) -> bool:
    """Nothing to look at more closely: no empty, infinite or periodic structure, only elements."""
    for s in range(len(offsets) - 1):
        if offsets[s] == offsets[s + 1] or pbc[s, 0] or pbc[s, 1] or pbc[s, 2]:
            return False
    total = 0.0
    for i in range(len(positions)):
        if numbers[i] < 0 or numbers[i] > HEAVIEST:
            return False
        for axis in range(3):
            total += positions[i, axis] * positions[i, axis]
    return np.isfinite(total)


def direct_pairs_reference(
    positions: Floats, offsets: Ints, pbc: Bools, cutoff2: float
) -> tuple[Ints, Ints, Floats, Ints, bool]:
    """`direct_pairs` in NumPy."""
    sizes = np.diff(offsets)
    direct = (sizes <= SMALL_CLUSTER) & ~pbc.any(axis=1)
    pairs = [np.zeros((2, 0), dtype=np.int64)]
    for start, n in zip(offsets[:-1], np.where(direct, sizes, 0), strict=True):
        i, j = np.add(np.triu_indices(n, 1), start)
        near = np.sum((positions[j] - positions[i]) ** 2, axis=1) < cutoff2
        pairs.append(np.stack([i[near], j[near]]))
    first, second = np.concatenate(pairs, axis=1)
    counts = np.cumsum([p.shape[1] for p in pairs])
    return first, second, np.zeros((len(first), 3)), counts, bool(direct.all())


@njit(reference=direct_pairs_reference)
def direct_pairs(
    positions: Floats, offsets: Ints, pbc: Bools, cutoff2: float
) -> tuple[Ints, Ints, Floats, Ints, np.bool_]:
    """Pairs of the small clusters, and whether all structures are such."""
    most = 0
    direct = np.empty(len(pbc), dtype=np.bool_)
    for s in range(len(pbc)):
        n = offsets[s + 1] - offsets[s]
        direct[s] = n <= SMALL_CLUSTER and not (pbc[s, 0] or pbc[s, 1] or pbc[s, 2])
        if direct[s]:
            most += n * (n - 1) // 2
    first = np.empty(most, dtype=np.int64)
    second = np.empty(most, dtype=np.int64)
    pair_offsets = np.zeros(len(offsets), dtype=np.int64)
    count = 0
    for s in range(len(offsets) - 1):
        if direct[s]:
            for i in range(offsets[s], offsets[s + 1]):
                for j in range(i + 1, offsets[s + 1]):
                    dx = positions[j, 0] - positions[i, 0]
                    dy = positions[j, 1] - positions[i, 1]
                    dz = positions[j, 2] - positions[i, 2]
                    if dx * dx + dy * dy + dz * dz < cutoff2:
                        first[count] = i
                        second[count] = j
                        count += 1
        pair_offsets[s + 1] = count
    shift = np.zeros((count, 3))
    return first[:count], second[:count], shift, pair_offsets, direct.all()
