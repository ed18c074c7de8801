"""Valid formulas, cells that can hold their atoms, and the compiled checks of structures.

Distances are measured in units of the sum of two covalent radii. The checks are compiled: one of 20
atoms takes microseconds, so that generators can make many tries. They do not use
`structures.neighbours`. `bonds_at` tests one point against the atoms placed so far, thousands of
times per candidate. `check` stops at the first pair that is too close, without a list; with
`find_pairs` it takes eight to ten times as long (Au20, a slab with adsorbates, a bulk cell of eight
atoms). `coordination` counts the nearest image of each neighbour only.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase.data import atomic_numbers
from ase.formula import Formula
from ase.geometry import minkowski_reduce

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.numerics.jit import njit

#: The largest number of atoms to place: with more, a single candidate takes minutes.
LARGEST = 2000
_DENSEST = 0.7405  # packing fraction of equal spheres


def count_atoms(formula: str) -> dict[str, int]:
    """The number of atoms of each element in a formula such as Au20 or Cu5Au8."""
    if "+" in formula or "-" in formula:
        raise NuggetError(
            f"{formula!r}: a formula takes no charge; set the charge by engine.charge "
            "(--set engine.charge=1)."
        )
    try:
        counts: dict[str, int] = Formula(formula, strict=True).count()
    except (ValueError, RecursionError):
        counts = {}
    if not counts or not re.fullmatch(r"[A-Za-z0-9()]+", formula):
        raise NuggetError(f"{formula!r} is not a formula such as Au20 or Cu5Au8.")
    if (total := sum(counts.values())) > LARGEST:
        raise NuggetError(
            f"{formula} has {total} atoms; candidates of more than {LARGEST} atoms would take "
            "hours each."
        )
    return counts


def symbols_of(composition: str | Sequence[str]) -> tuple[str, ...]:
    """The chemical symbol of every atom."""
    if isinstance(composition, str):
        return tuple(s for s, n in count_atoms(composition).items() for _ in range(n))
    return tuple(composition)


def elements_of(compositions: str) -> list[str]:
    """The elements of "Cu-Au", each once."""
    elements = [part.strip() for part in compositions.split("-")]
    for symbol in elements:
        if atomic_numbers.get(symbol, 0) < 1:
            raise NuggetError(
                f"compositions {compositions!r}: {symbol!r} is not an element; write Cu-Au."
            )
    if len(set(elements)) < len(elements):
        raise NuggetError(f"compositions {compositions!r} name an element twice.")
    if len(elements) < 2:
        raise NuggetError(f"compositions {compositions!r}: name two elements or more, as Cu-Au.")
    return elements


def check_cell(cell: Floats, radii: Floats) -> None:
    """Refuse a periodic cell that is too small for atoms of these radii."""
    shortest = float(np.linalg.norm(minkowski_reduce(cell)[0], axis=1).min())
    if shortest < 2 * radii.min():
        raise NuggetError(
            f"The cell is only {shortest:.3g} Å wide: an atom and its own image must be "
            f"{2 * radii.min():.3g} Å apart; give a larger cell."
        )
    check_volume(abs(float(np.linalg.det(cell))), radii)


def check_volume(volume: float, radii: Floats) -> None:
    """Refuse a volume (Å³) in which spheres of these radii do not fit."""
    needed = 4 / 3 * np.pi * float((radii**3).sum()) / _DENSEST
    if volume < needed:
        raise NuggetError(
            f"{len(radii)} atoms do not fit into {volume:.3g} Å³: they need at least "
            f"{needed:.3g} Å³; give more room."
        )


#: A structure this far above the lowest (eV/atom) counts against its shortest distance; candidates
#: must then keep atoms apart by this factor more, but not beyond this share of the shortest
#: distance in the lowest third of the structures.
BAD, APART, NEARLY = 1.0, 1.03, 0.9


def learned_ratio(closest: Floats, values: Floats, least: float) -> float:
    """The shortest distance that evaluations leave open, in units of the sum of two radii.

    Some models predict low energies where atoms are too close. If all evaluated structures with
    such short distances (`closest`) have high energies (`values`, eV/atom), candidates with them
    are no longer valid.
    """
    fine = values <= values.min() + BAD
    low = values <= np.quantile(values, 1 / 3)
    bad = closest[(closest < closest[fine].min()) & ~fine]
    if not len(bad):
        return least
    return max(least, min(APART * float(bad.max()), NEARLY * float(closest[low].min())))


# Compiled checks of distances and connectivity, periodic images included.

OK, TOO_CLOSE, DISCONNECTED = range(3)


@dataclass(frozen=True)
class Lattice:
    """The periodic cell as the compiled loops take it; `shifts` lead to the images."""

    cell: Floats  # (3,3)
    inverse: Floats  # (3,3), zero columns along axes that are not periodic
    shifts: Floats  # (K,3), the first one is zero


def lattice(cell: Floats, pbc: Bools, reach: float) -> Lattice:
    """The lattice with all images within `reach` of a wrapped difference vector."""
    if not pbc.any():
        return Lattice(np.zeros((3, 3)), np.zeros((3, 3)), np.zeros((1, 3)))
    inverse = np.linalg.inv(cell)
    # A wrapped difference lies within half a cell, so images are needed half a cell farther.
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
    """OK, TOO_CLOSE or DISCONNECTED. The first `fixed` atoms (the template) count as one part."""
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
    """Number of bonds of an atom at `point`, −1 if it is too close to a present atom.

    `skip` is the atom's own index; its periodic images must not be too close and are not counted.
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
    """The first point that is not too close and has at least `need` bonds, or −1."""
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
