"""Crystals: the same one in another cell, setting, orientation or numbering is the same.

A crystal is reduced to its primitive cell (spglib). Then each of its atoms is described by the
sorted distances to its nearest neighbours of each element. Two crystals are the same when their
atoms can be matched one to one, so that no two distances differ by more than a tolerance. If one
has a primitive cell several times as large (it is slightly distorted, for example), the other's
atoms count several times. Mirror images are the same.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce
from math import gcd, lcm

import numpy as np
from ase import Atoms
from scipy.optimize import linear_sum_assignment

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.identity.graph import directed_pairs
from nugget.structures.symmetry import standardised

#: Å: atoms this far from ideal positions still count as symmetric.
SYMPREC = 0.05
#: Distances that differ by less are the same, in units of the cube root of the volume per atom.
#: fcc and hcp differ by 0.11.
TOLERANCE = 0.06
NEIGHBOURS = 44  # shells of fcc up to the third, where hcp differs
FEWEST = 8  # neighbours of a rare element


def primitive(atoms: Atoms, symprec: float = SYMPREC) -> Atoms:
    """The primitive standardised cell; the crystal itself if spglib finds none."""
    if not atoms.pbc.all():
        raise NuggetError("only structures that are periodic along three axes are crystals.")
    found = standardised(atoms, True, symprec)
    return atoms.copy() if len(found) > len(atoms) else found


def conventional(atoms: Atoms, symprec: float = 0.1) -> Atoms:
    """The conventional standardised cell, as crystallographers draw it."""
    return standardised(atoms, False, symprec)


def reduced_formula(atoms: Atoms) -> tuple[tuple[int, int], ...]:
    """Elements and their shares, as in Cu3Au, whatever the size of the cell."""
    elements, counts = np.unique(atoms.numbers, return_counts=True)
    divisor = reduce(gcd, counts.tolist())
    return tuple(zip(elements.tolist(), (counts // divisor).tolist(), strict=True))


@dataclass(frozen=True, eq=False)
class CrystalFingerprint:
    """Neighbour distances of the atoms of a primitive cell."""

    formula: tuple[tuple[int, int], ...]
    numbers: Ints  # (n,)
    rows: Floats  # (n, k) sorted distances, element by element
    size: float  # Å: cube root of the volume per atom

    @classmethod
    def of(cls, atoms: Atoms) -> CrystalFingerprint:
        bare = primitive(atoms)
        formula = reduced_formula(bare)
        total = sum(count for _, count in formula)
        wanted = {z: max(FEWEST, -(-NEIGHBOURS * count // total)) for z, count in formula}
        volume = float(bare.get_volume()) / len(bare)
        most = max(wanted[z] * total / count for z, count in formula)
        reach = (1.3 * 3 * most * volume / (4 * np.pi)) ** (1 / 3)
        while True:
            i, j, d = directed_pairs(bare, reach)
            rows = _rows(len(bare), i, np.asarray(bare.numbers)[j], d, wanted)
            if rows is not None:
                break
            reach *= 1.2
        return cls(formula, np.asarray(bare.numbers), rows, volume ** (1 / 3))

    def probe(self) -> Floats:
        """The mean row: no number of it differs by more than `difference` does."""
        return np.asarray(self.rows.mean(axis=0))

    def difference(self, other: CrystalFingerprint) -> float:
        """Largest difference of two distances after matching, in units of `size`."""
        if self.formula != other.formula:
            return float("inf")
        n = lcm(len(self.numbers), len(other.numbers))
        a, b = np.arange(n) % len(self.numbers), np.arange(n) % len(other.numbers)
        apart = np.abs(self.rows[:, None] - other.rows).max(axis=-1)
        apart[self.numbers[:, None] != other.numbers] = 1e3
        table = apart[np.ix_(a, b)]
        # Higher powers bring the smallest sum closer to the smallest largest difference.
        chosen = linear_sum_assignment((table / self.size) ** 4)
        return float(table[chosen].max()) / (0.5 * (self.size + other.size))


def _rows(n: int, i: Ints, z: Ints, d: Floats, wanted: dict[int, int]) -> Floats | None:
    """Sorted distances of all atoms; None when the reach was too short for as many as wanted."""
    order = np.lexsort((d, z, i))
    i, z, d = i[order], z[order], d[order]
    out = np.empty((n, sum(wanted.values())))
    for k in range(n):
        column = 0
        for element, count in wanted.items():
            mine = d[(i == k) & (z == element)]
            if len(mine) < count:
                return None
            out[k, column : column + count] = mine[:count]
            column += count
    return out


def same_crystal(a: Atoms, b: Atoms, tolerance: float = TOLERANCE) -> bool:
    """Are these the same crystal, whatever their cells, orientation and numbering?"""
    return CrystalFingerprint.of(a).difference(CrystalFingerprint.of(b)) <= tolerance
