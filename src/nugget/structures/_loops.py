"""Loops over atoms and pairs of a batch, with NumPy references."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget._compiled.jit import njit

_SPACIOUS = 1e-3  # Å, Å² or Å³: cells that span more are beyond doubt
HEAVIEST = 118  # the largest atomic number: compiled loops look elements up in tables


def is_sound_reference(
    positions: Floats, numbers: Ints, offsets: Ints, cells: Floats, pbc: Bools
) -> bool:
    """`is_sound` in NumPy."""
    elements = ((numbers >= 0) & (numbers <= HEAVIEST)).all()
    finite = np.isfinite(positions).all()
    edges = [cell[along] for cell, along in zip(cells, pbc, strict=True)]
    spacious = all(np.isfinite(e).all() for e in edges)
    spacious = spacious and all(np.linalg.det(e @ e.T) > _SPACIOUS**2 for e in edges)
    return bool(np.diff(offsets).all() and spacious and finite and elements)


@njit(reference=is_sound_reference)
def is_sound(positions: Floats, numbers: Ints, offsets: Ints, cells: Floats, pbc: Bools) -> bool:
    """Nothing to look at more closely: elements at finite places, cells that span a volume."""
    for s in range(len(offsets) - 1):
        if offsets[s] == offsets[s + 1]:
            return False
        if (pbc[s, 0] or pbc[s, 1] or pbc[s, 2]) and not _volume(cells[s], pbc[s]) > _SPACIOUS:
            return False
    total = 0.0
    for i in range(len(positions)):
        if numbers[i] < 0 or numbers[i] > HEAVIEST:
            return False
        for axis in range(3):
            total += positions[i, axis] * positions[i, axis]
    return np.isfinite(total)


@njit
def _volume(cell: Floats, pbc: Bools) -> float:
    """Length, area or volume that the periodic edges span, by Gram and Schmidt; −1 if infinite."""
    volume, edge = 1.0, np.zeros((3, 3))
    for k in range(3):
        if pbc[k]:
            square = 0.0
            for axis in range(3):
                edge[k, axis] = cell[k, axis]
            for other in range(k):
                along = 0.0
                for axis in range(3):
                    along += edge[k, axis] * edge[other, axis]
                for axis in range(3):
                    edge[k, axis] -= along * edge[other, axis]
            for axis in range(3):
                square += edge[k, axis] * edge[k, axis]
            length = np.sqrt(square)
            if length > 0.0:
                for axis in range(3):
                    edge[k, axis] /= length
            volume *= length
    return volume if np.isfinite(volume) else -1.0


@njit
def structure_sums(values: Floats, offsets: Ints) -> Floats:
    """Sums of the atoms' values (N,) over each structure (B,), one after the other."""
    out = np.zeros(len(offsets) - 1)
    for s in range(len(out)):
        for atom in range(offsets[s], offsets[s + 1]):
            out[s] += values[atom]
    return out
