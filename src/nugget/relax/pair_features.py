"""Distances of one structure as coordinates, and functions of them that all its atoms share.

Every pair of neighbours p, of distance r_p and sum of covalent radii b_p, gives

- a coordinate q_p = b_p/r_p, in which the structure as a whole is described;
- the values of Gaussians in r_p/b_p, from which one pair function per pair of elements is made.

The list of pairs stays the same while a structure is relaxed, so that coordinates stay comparable.
"""

from __future__ import annotations

import numpy as np
from ase import Atoms
from scipy.sparse import csr_matrix

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget.structures.batch import as_batch
from nugget.structures.bonds import radii_of
from nugget.structures.neighbours import find_pairs

REACH, SKIN = 2.5, 1.0  # pairs up to REACH·b + SKIN (Å)
_GRID = np.linspace(0.6, REACH, 20)  # centres of the Gaussians, r/b
_WIDTH = float(_GRID[1] - _GRID[0])


def _pair_function_factor() -> Floats:
    """L with LLᵀ = covariance of a pair function at the grid: smooth, larger at short distance."""
    size = np.exp(-2.0 * (_GRID - 1.0))
    smooth = np.exp(-0.5 * ((_GRID[:, None] - _GRID) / 0.25) ** 2)
    covariance = size[:, None] * smooth * size
    covariance.flat[:: len(_GRID) + 1] += 1e-10
    return np.asarray(np.linalg.cholesky(covariance))


class PairFeatures:
    """The pairs of one structure with a free atom; `x` are its free coordinates, flat."""

    factor = _pair_function_factor()
    n_basis = len(_GRID)

    def __init__(self, atoms: Atoms, free: Bools) -> None:
        self.positions, self.free = atoms.positions.copy(), free
        radii = radii_of(atoms.numbers)
        found = find_pairs(as_batch(atoms), 2 * REACH * float(radii.max()) + SKIN)
        i, j = found.i, found.j
        bond = radii[i] + radii[j]
        distance = np.linalg.norm(self.positions[j] + found.shift - self.positions[i], axis=1)
        movable = np.asarray(free.any(axis=1))
        # An atom and its own image keep their distance.
        used = (movable[i] | movable[j]) & (i != j) & (distance < REACH * bond + SKIN)
        self.i, self.j, self.shift, self.bond = i[used], j[used], found.shift[used], bond[used]
        elements = np.sort(np.column_stack([atoms.numbers[self.i], atoms.numbers[self.j]]), axis=1)
        kinds, self.kind = np.unique(elements, axis=0, return_inverse=True)
        self.kind = self.kind.reshape(-1)
        self.n_pairs, self.n_kinds, self.n_free = len(self.i), len(kinds), int(free.sum())
        self._end_j = self._columns(self.j)
        self._end_i = self._columns(self.i)

    def _columns(self, atom: Ints) -> tuple[Ints, Ints, Ints]:
        """Pair, axis and free coordinate of every pair's end that can move."""
        number = np.full(self.free.shape, -1, dtype=np.int64)
        number[self.free] = np.arange(self.n_free)
        pair, axis = np.nonzero(self.free[atom])
        return pair, axis, number[atom[pair], axis]

    def distances(self, x: Floats) -> tuple[Floats, Floats]:
        """r (P,) and the unit vectors from i to j (P, 3)."""
        positions = self.positions.copy()
        positions[self.free] = x
        d = positions[self.j] + self.shift - positions[self.i]
        r = np.sqrt(np.sum(d * d, axis=1))
        return r, d / r[:, None]

    def coordinates(self, r: Floats) -> tuple[Floats, Floats]:
        """q = b/r and dq/dr."""
        return self.bond / r, -self.bond / (r * r)

    def basis(self, r: Floats) -> tuple[Floats, Floats]:
        """Gaussians (P, n_basis), smoothly zero from r = REACH·b on, and their slopes d/dr."""
        t = r / self.bond
        s = np.minimum(t / REACH, 1.0)
        cut, slope = (1 - s * s) ** 2, -4 * s * (1 - s * s) / REACH
        value = np.exp(-0.5 * ((t[:, None] - _GRID) / _WIDTH) ** 2)
        grad = -(t[:, None] - _GRID) / _WIDTH**2 * value
        return value * cut[:, None], (grad * cut[:, None] + value * slope[:, None]) / self.bond[
            :, None
        ]

    def jacobian(self, unit: Floats, weight: Floats) -> csr_matrix:
        """weight_p · ∂r_p/∂x, (P, n_free), sparse."""
        rows, columns, values = [], [], []
        for sign, (pair, axis, column) in ((1.0, self._end_j), (-1.0, self._end_i)):
            rows.append(pair)
            columns.append(column)
            values.append(sign * weight[pair] * unit[pair, axis])
        entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
        return csr_matrix(entries, shape=(len(self.i), self.n_free))

    def gradient(self, unit: Floats, weight: Floats) -> Floats:
        """Σ_p weight_p ∂r_p/∂x, (n_free,)."""
        total = np.zeros(self.n_free)
        for sign, (pair, axis, column) in ((1.0, self._end_j), (-1.0, self._end_i)):
            values = sign * weight[pair] * unit[pair, axis]
            total += np.bincount(column, values, self.n_free)
        return total
