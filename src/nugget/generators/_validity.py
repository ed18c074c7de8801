"""Is a structure sensible? Shortest distances and connectivity, periodic images included.

Distances are measured in units of the sum of two covalent radii. The loops are compiled: a check of
20 atoms takes microseconds, so generators can afford many tries.

They do not use `structures.neighbours`, because they ask something else. `bonds_at` tests one point
against the atoms that are already placed, thousands of times per candidate. `check` stops at the
first pair that is too close and needs no list; with `find_pairs` it takes eight to ten times as
long (Au20, a slab with adsorbates, a bulk cell of eight atoms). `coordination` counts the nearest
image of each neighbour only.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget._compiled.jit import njit

OK, TOO_CLOSE, DISCONNECTED = range(3)


@dataclass(frozen=True)
class Lattice:
    """Cell of the periodic axes, in the form the loops read. `shifts` are the images to look at."""

    cell: Floats  # (3,3)
    inverse: Floats  # (3,3), zero columns along axes that are not periodic
    shifts: Floats  # (K,3), the first one is zero


def lattice(cell: Floats, pbc: Bools, reach: float) -> Lattice:
    """Images needed to see every neighbour within `reach`, once differences are wrapped."""
    if not pbc.any():
        return Lattice(np.zeros((3, 3)), np.zeros((3, 3)), np.zeros((1, 3)))
    inverse = np.linalg.inv(cell)
    # A wrapped difference lies within half a cell, so the images reach half a cell farther.
    turns = np.where(pbc, np.ceil(reach * np.linalg.norm(inverse, axis=0) + 0.5), 0).astype(int)
    n = np.array(list(np.ndindex(*(2 * turns + 1)))) - turns
    n = n[np.argsort(np.abs(n).sum(axis=1), kind="stable")]
    return Lattice(
        np.ascontiguousarray(cell), np.where(pbc[None, :], inverse, 0.0), n.astype(float) @ cell
    )


@njit
def wrap(d: Floats, cell: Floats, inverse: Floats) -> None:
    """Bring a difference vector into the cell around the origin, in place."""
    w0 = np.rint(d[0] * inverse[0, 0] + d[1] * inverse[1, 0] + d[2] * inverse[2, 0])
    w1 = np.rint(d[0] * inverse[0, 1] + d[1] * inverse[1, 1] + d[2] * inverse[2, 1])
    w2 = np.rint(d[0] * inverse[0, 2] + d[1] * inverse[1, 2] + d[2] * inverse[2, 2])
    for c in range(3):
        d[c] -= w0 * cell[0, c] + w1 * cell[1, c] + w2 * cell[2, c]


@njit
def shortest(a: Floats, b: Floats, same: bool, cell: Floats, inverse: Floats, shifts: Floats,
             d: Floats) -> float:  # fmt: skip
    """Shortest distance between two atoms or, when they are the same, to an atom's own images.

    Callers give `same` as a variable: a literal True or False would compile this once more each.
    """
    for c in range(3):
        d[c] = a[c] - b[c]
    if len(shifts) == 1:
        return np.inf if same else np.sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2])
    wrap(d, cell, inverse)
    best = np.inf
    for k in range(1 if same else 0, len(shifts)):
        r2 = 0.0
        for c in range(3):
            away = d[c] + shifts[k, c]
            r2 += away * away
        best = min(best, r2)
    return np.sqrt(best)


@njit
def root(parent: Ints, i: int) -> int:
    while parent[i] != i:
        parent[i] = parent[parent[i]]
        i = parent[i]
    return i


@njit
def check(x: Floats, radii: Floats, fixed: int, cell: Floats, inverse: Floats, shifts: Floats,
          min_ratio: float, bond_ratio: float) -> int:  # fmt: skip
    """OK, TOO_CLOSE or DISCONNECTED. The first `fixed` atoms (template) count as one piece."""
    n = len(x)
    parent = np.empty(n, dtype=np.int64)
    for i in range(n):
        parent[i] = i if i >= fixed else 0
    pieces = n - max(fixed - 1, 0)
    d = np.empty(3)
    for i in range(fixed, n):
        for j in range(i + 1):
            r = shortest(x[i], x[j], i == j, cell, inverse, shifts, d)
            ratio = r / (radii[i] + radii[j])
            if not ratio >= min_ratio:
                return TOO_CLOSE
            if ratio <= bond_ratio:
                a, b = root(parent, i), root(parent, j)
                if a != b:
                    parent[a] = b
                    pieces -= 1
    return OK if pieces <= 1 else DISCONNECTED


@njit
def bonds_at(point: Floats, radius: float, skip: int, x: Floats, radii: Floats,
             present: Bools, cell: Floats, inverse: Floats, shifts: Floats,
             min_ratio: float, bond_ratio: float, d: Floats) -> int:  # fmt: skip
    """Number of bonds of an atom put at `point`, −1 when it is too close to one that is there.

    `skip` is the atom's own index; its periodic images are kept clear but are not counted.
    """
    periodic = len(shifts) > 1
    if periodic and (
        shortest(point, point, periodic, cell, inverse, shifts, d) < 2 * radius * min_ratio
    ):
        return -1
    count = 0
    for j in range(len(x)):
        if j == skip or not present[j]:
            continue
        ratio = shortest(point, x[j], j == skip, cell, inverse, shifts, d) / (radius + radii[j])
        if ratio < min_ratio:
            return -1
        if ratio <= bond_ratio:
            count += 1
    return count


@njit
def bonds_of(points: Floats, radius: float, skip: int, x: Floats, radii: Floats,
             present: Bools, cell: Floats, inverse: Floats, shifts: Floats,
             min_ratio: float, bond_ratio: float) -> Ints:  # fmt: skip
    """`bonds_at` for many points."""
    d = np.empty(3)
    out = np.empty(len(points), dtype=np.int64)
    for k in range(len(points)):
        out[k] = bonds_at(
            points[k], radius, skip, x, radii, present, cell, inverse, shifts, min_ratio,
            bond_ratio, d,
        )  # fmt: skip
    return out


@njit
def first_fit(points: Floats, radius: float, skip: int, x: Floats, radii: Floats,
              present: Bools, cell: Floats, inverse: Floats, shifts: Floats,
              min_ratio: float, bond_ratio: float, need: int) -> int:  # fmt: skip
    """The first point with room and at least `need` bonds, or −1."""
    d = np.empty(3)
    for k in range(len(points)):
        n = bonds_at(
            points[k], radius, skip, x, radii, present, cell, inverse, shifts, min_ratio,
            bond_ratio, d,
        )  # fmt: skip
        if n >= need:
            return k
    return -1


@njit
def coordination(x: Floats, radii: Floats, cell: Floats, inverse: Floats, shifts: Floats,
                 bond_ratio: float) -> Ints:  # fmt: skip
    """Number of neighbours (nearest image each) of every atom."""
    n = len(x)
    out = np.zeros(n, dtype=np.int64)
    d = np.empty(3)
    for i in range(n):
        for j in range(i):
            r = shortest(x[i], x[j], i == j, cell, inverse, shifts, d)
            if r <= bond_ratio * (radii[i] + radii[j]):
                out[i] += 1
                out[j] += 1
    return out
