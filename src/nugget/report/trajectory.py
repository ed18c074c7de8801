"""Distributions of a trajectory: distances between atoms, and their displacements."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations_with_replacement, pairwise

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from ase.geometry import find_mic
from ase.neighborlist import neighbor_list

from nugget.numerics.arrays import Floats

_BINS = 120
_LONGEST = 8.0  # Å


def reach_of(atoms: Atoms) -> float:
    """The largest distance of a distribution: half of the smallest height of a crystal, or 8 Å."""
    if not atoms.pbc.any() or atoms.cell.rank < 3:
        return _LONGEST
    heights = 1.0 / np.linalg.norm(np.linalg.inv(atoms.cell.array), axis=0)
    # Distances beyond half a height count images of the same pair; g(r) is defined there as well.
    return float(min(_LONGEST, max(heights[atoms.pbc].min(), 4.0)))


def radial_distribution(images: Sequence[Atoms]) -> tuple[Floats, dict[str, Floats]]:
    """Distances (Å) and the distribution of each pair of elements.

    g(r) = n(r) / (4π r² dr ρ) for crystals. Without a volume, the mean number of neighbours per Å.
    """
    edges = np.linspace(0.0, reach_of(images[0]), _BINS + 1)
    middle, width = 0.5 * (edges[1:] + edges[:-1]), edges[1] - edges[0]
    numbers = images[0].numbers
    kinds = sorted(set(numbers.tolist()))
    counts = {pair: np.zeros(_BINS) for pair in combinations_with_replacement(kinds, 2)}
    volume = 0.0
    for atoms in images:
        first, second, distance = neighbor_list("ijd", atoms, float(edges[-1]))
        low = np.minimum(numbers[first], numbers[second])
        high = np.maximum(numbers[first], numbers[second])
        for (a, b), total in counts.items():
            total += np.histogram(distance[(low == a) & (high == b)], edges)[0]
        volume += float(atoms.get_volume()) if atoms.pbc.all() else 0.0
    named = {}
    for (a, b), total in counts.items():
        n_a, n_b = int(np.sum(numbers == a)), int(np.sum(numbers == b))
        per_frame = total / len(images)
        if volume:
            density = n_a * n_b * (1 if a == b else 2) / (volume / len(images))
            values = per_frame / (4 * np.pi * middle**2 * width * density)
        else:
            values = per_frame / (width * (n_a if a == b else n_a + n_b))
        named[f"{chemical_symbols[a]}–{chemical_symbols[b]}"] = values
    return middle, named


def mean_square_displacement(images: Sequence[Atoms]) -> dict[str, Floats]:
    """Å², by element, from the first frame and relative to the centre of mass."""
    first = images[0]
    masses = first.get_masses()
    travelled = np.zeros_like(first.positions)
    moved = [travelled.copy()]
    for before, after in pairwise(images):
        step = find_mic(after.positions - before.positions, after.cell, after.pbc)[0]
        travelled = travelled + step - np.average(step, axis=0, weights=masses)
        moved.append(travelled)
    squares = np.sum(np.array(moved) ** 2, axis=2)
    return {
        chemical_symbols[z]: squares[:, first.numbers == z].mean(axis=1)
        for z in sorted(set(first.numbers.tolist()))
    }
