"""Screened nuclear repulsion (ZBL) of pairs that are closer than any in the training set.

V(r) = k z_i z_j/r φ(r/a), φ(x) = Σ_k c_k exp(−d_k x), a = 0.4685 Å/(z_i^0.23 + z_j^0.23), from
J. F. Ziegler, J. P. Biersack and U. Littmark, The Stopping and Range of Ions in Matter (1985). It
is multiplied by a switching function that rises from 0 at the shortest distance r_s of the training
set to 1 at r_s/2, with two continuous derivatives. So it is zero on all training structures, and
labels do not change. Its standard deviation is 0.7 times its value.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from ase.data import atomic_numbers, chemical_symbols

from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.jit import FAST, njit
from nugget.potential.mean_functions.base import MeanValues
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.geometry import RADII
from nugget.structures.neighbours import Pairs, find_pairs

# Standard deviation over value.
RELATIVE_ERROR = 0.7

# In units of the sum of covalent radii: the repulsion starts at 1 or at the shortest distance in
# the training set, whichever is shorter, and at 0.8 for elements that are nowhere closer than 1.25.
_LONGEST_START, _UNKNOWN_START, _BONDED = 1.0, 0.8, 1.25

# The switching function is 1 at this share of the starting distance.
_COMPLETE = 0.5

_COULOMB = 14.399645  # e²/4πε₀, eV Å

_SHORTEST = 1e-3  # Å; below it the distance counts as this


@njit(fastmath=FAST)
def repulsion(
    positions: Floats, charges: Floats, screening: Floats, kinds: Ints, starts: Floats,
    owner: Ints, i: Ints, j: Ints, shift: Floats, energies: Floats, gradient: Floats,
    strain: Floats,
) -> None:  # fmt: skip
    """Add the repulsion of all pairs to `energies` (half to each atom), and its derivatives.

    `starts` (S, S) holds the starting distance for each pair of `kinds`.
    """
    d = np.empty(3)
    for p in range(len(i)):
        a, b = i[p], j[p]
        start = starts[kinds[a], kinds[b]]
        r2 = 0.0
        for axis in range(3):
            d[axis] = positions[b, axis] + shift[p, axis] - positions[a, axis]
            r2 += d[axis] * d[axis]
        if r2 >= start * start:
            continue
        r = np.sqrt(r2)
        if r < _SHORTEST:
            # Coincident atoms need some direction in which to separate.
            d[0], d[1], d[2] = _SHORTEST, 0.0, 0.0
            r = _SHORTEST
        length = 0.46850 / (screening[a] + screening[b])
        x = r / length
        e1, e2 = 0.18175 * np.exp(-3.19980 * x), 0.50986 * np.exp(-0.94229 * x)
        e3, e4 = 0.28022 * np.exp(-0.40290 * x), 0.02817 * np.exp(-0.20162 * x)
        phi = e1 + e2 + e3 + e4
        less = -(3.19980 * e1 + 0.94229 * e2 + 0.40290 * e3 + 0.20162 * e4) / length
        coulomb = _COULOMB * charges[a] * charges[b] / r
        width = (1.0 - _COMPLETE) * start
        s = min((start - r) / width, 1.0)
        switch = s * s * s * (10.0 - 15.0 * s + 6.0 * s * s)
        value = coulomb * phi * switch
        slope = coulomb * (less - phi / r) * switch
        slope -= coulomb * phi * 30.0 * s * s * (1.0 - s) * (1.0 - s) / width
        energies[a] += 0.5 * value
        energies[b] += 0.5 * value
        for axis in range(3):
            g = slope * d[axis] / r
            gradient[b, axis] += g
            gradient[a, axis] -= g
            for other in range(3):
                strain[owner[a], axis, other] += g * d[other]


@registered("prior")
@dataclass(frozen=True)
class ZBL:
    """Screened nuclear repulsion below the shortest distances of the training set.

    `shortest` holds (element, element, Å) for each pair of elements; None: from the training set.
    """

    name: ClassVar[str] = "zbl"
    learns: ClassVar[bool] = False  # nothing from the energies
    shortest: tuple[tuple[str, str, float], ...] | None = None

    def __post_init__(self) -> None:
        if self.shortest is not None:
            plain = tuple((str(a), str(b), float(r)) for a, b, r in self.shortest)
            object.__setattr__(self, "shortest", plain)

    def fit(self, batch: Batch, energies: Floats) -> ZBL:
        """The repulsion that starts at the shortest distances of a training set."""
        return self if self.shortest is not None else self.extended(batch)

    def extended(self, batch: Batch) -> ZBL:
        """The repulsion that is zero on further structures as well."""
        elements = np.unique(batch.numbers)
        pairs = find_pairs(batch, 2.0 * _BONDED * float(RADII[elements].max()))
        r, z = pairs.distances(batch), np.sort(batch.numbers[np.stack([pairs.i, pairs.j])], axis=0)
        found = {(a, b): distance for a, b, distance in self.shortest or ()}
        for a in elements:
            for b in elements[elements >= a]:
                own = r[(z[0] == a) & (z[1] == b)]
                name = chemical_symbols[a], chemical_symbols[b]
                first = float(own.min()) if len(own) else np.inf
                bond = float(RADII[a] + RADII[b])
                if first <= _BONDED * bond:
                    found[name] = min(first, _LONGEST_START * bond, found.get(name, np.inf))
        return ZBL(tuple((a, b, distance) for (a, b), distance in sorted(found.items())))

    @cached_property
    def _starts(self) -> Floats:
        """Starting distances (119, 119) by atomic numbers."""
        starts = _UNKNOWN_START * np.add.outer(RADII, RADII)
        for a, b, distance in self.shortest or ():
            za, zb = atomic_numbers[a], atomic_numbers[b]
            starts[za, zb] = starts[zb, za] = distance
        return starts

    @cached_property
    def _longest(self) -> float:
        """The largest starting distance of all elements."""
        return float(self._starts.max())

    def _reach(self, numbers: Ints) -> float:
        return float(self._starts[numbers].max())

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        z = batch.numbers
        if pairs is None or (pairs.reach < self._longest and pairs.reach < self._reach(z)):
            pairs = find_pairs(batch, self._reach(z))
        energies, gradient = np.zeros(len(batch.positions)), np.zeros_like(batch.positions)
        strain = np.zeros((len(batch), 3, 3))
        repulsion(
            batch.positions, z.astype(float), _SCREENING[z], z, self._starts, batch.owner,
            pairs.i, pairs.j, pairs.shift, energies, gradient, strain,
        )  # fmt: skip
        if not energies.any():
            return MeanValues(energies)
        c = RELATIVE_ERROR
        std = MeanValues(c * energies, c * gradient, c * strain)
        return MeanValues(energies, gradient, strain, std)


_SCREENING = np.arange(len(RADII), dtype=float) ** 0.23
