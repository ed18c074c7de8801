"""Molecules that are placed and moved as units, and the distances that are valid between them.

In a composition, `H2O*4` means four water molecules and `CO*2,Au4` two CO and four gold atoms. A
unit is one molecule, or one of the other atoms. A structure is valid if

- atoms that are bonded in a molecule stay within `bond_ratio` of the sum of their covalent radii,
- atoms of two molecules are at least 0.6 times the sum of their van der Waals radii apart,
- all other atoms (single ones, the template) at least `min_ratio` times the sum of their covalent
  radii, and
- contacts (two atoms closer than 1.2 times the sum of their van der Waals radii) connect all units
  and the template.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from ase.build import molecule
from ase.collections import g2
from ase.data import vdw_radii
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.structures.geometry import BONDED, radii_of
from nugget.systems.validity import LARGEST, Lattice, symbols_of

_APART, _CONTACT = 0.6, 1.2  # in units of the sum of two van der Waals radii
_BEYOND = 0.9  # Å; difference to the covalent radius where no van der Waals radius is tabulated


@dataclass(frozen=True, eq=False)
class Unit:
    """A molecule: name, indices of its atoms among the placed ones, positions about its centre."""

    name: str
    atoms: Ints
    shape: Floats


def units_of(composition: str) -> tuple[tuple[str, ...], tuple[Unit, ...]]:
    """Symbols of all atoms and the units that they form; no units if no molecule is named."""
    if "*" not in composition:
        return symbols_of(composition), ()
    symbols: list[str] = []
    units: list[Unit] = []
    for part in composition.split(","):
        for name, one in _molecules(part.strip()):
            first = len(symbols)
            symbols += one.get_chemical_symbols()
            places = one.positions - one.positions.mean(axis=0)
            units.append(Unit(name, np.arange(first, first + len(one)), places))
            if len(symbols) > LARGEST:
                raise NuggetError(f"{composition} has more than {LARGEST} atoms.")
    return tuple(symbols), tuple(units)


def _molecules(part: str) -> Iterable[tuple[str, Atoms]]:
    """The units of `H2O*4` (four molecules) or of `Au4` (four atoms)."""
    name, star, count = part.partition("*")
    name = name.strip()
    if not star:
        return [(symbol, Atoms(symbol)) for symbol in symbols_of(name)]
    if not count.strip().isdecimal() or int(count) < 1:
        raise NuggetError(f"{part!r}: write molecules as H2O*4, with a number of 1 or more.")
    if name not in g2.names:
        raise NuggetError(
            f"{name!r} in {part!r} is not a molecule of ase.collections.g2; give one of its "
            "names, such as H2O, CO or CH3OH, or a plain formula."
        )
    return [(name, molecule(name))] * min(int(count), LARGEST + 1)


@dataclass(frozen=True, eq=False)
class Rules:
    """Valid distances of a system with molecules; atoms of the template come first."""

    owner: Ints  # the unit of each atom; the template is unit 0
    closest: Floats
    contact: Floats
    bonds: Ints  # (b, 2) atoms bonded in their molecule
    longest: Floats  # (b,)
    held: Ints  # (h, 2) atoms of one molecule with at most one atom between them
    lengths: Floats  # (h,) their distances, Å
    lattice: Lattice

    @classmethod
    def of(
        cls, units: tuple[Unit, ...], numbers: Ints, fixed: int, lattice: Lattice,
        min_ratio: float, bond_ratio: float,
    ) -> Rules:  # fmt: skip
        radii = radii_of(numbers)
        vdw = np.where(np.isnan(vdw_radii[numbers]), radii + _BEYOND, vdw_radii[numbers])
        covalent, far = radii[:, None] + radii, vdw[:, None] + vdw
        owner = np.zeros(len(numbers), dtype=np.int64)
        single = np.ones(len(numbers), dtype=bool)
        bonds, held, lengths = [np.zeros((0, 2), int)], [np.zeros((0, 2), int)], [np.zeros(0)]
        for k, unit in enumerate(units, 1):
            own = fixed + unit.atoms
            owner[own] = k
            single[own] = len(own) == 1
            d = np.linalg.norm(unit.shape[:, None] - unit.shape, axis=2)
            bonded = (d <= BONDED * covalent[np.ix_(own, own)]).astype(int)
            near = np.triu(bonded @ bonded, 1) > 0  # bonded, or bonded to the same atom
            bonds.append(own[np.argwhere(np.triu(bonded, 1))])
            held.append(own[np.argwhere(near)])
            lengths.append(d[near])
        between = (owner[:, None] != owner) & ~single[:, None] & ~single
        closest = np.where(between, _APART * far, min_ratio * covalent)
        pairs = np.concatenate(bonds)
        longest = bond_ratio * covalent[pairs[:, 0], pairs[:, 1]]
        springs = np.concatenate(held), np.concatenate(lengths)
        return cls(owner, closest, _CONTACT * far, pairs, longest, *springs, lattice)

    def distances(self, x: Floats, y: Floats) -> Floats:
        """Between all atoms of two sets, nearest images."""
        d = x[:, None] - y
        if len(self.lattice.shifts) > 1:
            d = d - np.rint(d @ self.lattice.inverse) @ self.lattice.cell
            return np.asarray(
                np.linalg.norm(d[..., None, :] + self.lattice.shifts, axis=-1).min(-1)
            )
        return np.asarray(np.linalg.norm(d, axis=2))

    def has_room(self, own: Ints, at: Floats, x: Floats, present: Bools) -> tuple[bool, bool]:
        """Whether a unit at these positions has no atom too close, and touches another unit."""
        others = np.flatnonzero(present)
        if not len(others):
            return True, True
        d, pairs = self.distances(at, x[others]), np.ix_(own, others)
        return bool((d >= self.closest[pairs]).all()), bool((d <= self.contact[pairs]).any())

    def fault(self, x: Floats) -> str | None:
        """What makes these positions invalid, or None."""
        d = self.distances(x, x)
        apart = self.owner[:, None] != self.owner
        inside = ~apart & (self.owner[:, None] > 0) & ~np.eye(len(x), dtype=bool)
        if ((d < self.closest) & (apart | inside)).any():
            return "two atoms are too close"
        if (d[self.bonds[:, 0], self.bonds[:, 1]] > self.longest).any():
            return "a molecule is broken"
        i, j = np.nonzero(apart & (d <= self.contact))
        n = int(self.owner.max()) + 1
        graph = coo_array((np.ones(len(i)), (self.owner[i], self.owner[j])), shape=(n, n))
        pieces = connected_components(graph, directed=False)[0]
        lone = 0 if (self.owner == 0).any() else 1  # without a template unit 0 is empty
        return None if pieces - lone <= 1 else "the structure is not connected"
