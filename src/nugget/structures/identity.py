"""The identity of structures: bond graphs, sorted distances, and fingerprints of crystals.

Bond graphs do not depend on the numbering and the placement of the atoms. Two atoms are bonded when
closer than BONDED times the sum of their covalent radii. In a periodic cell every image counts:
A_ij is the *number* of bonds from i to images of j, and A_ii counts bonds to an atom's own images,
so row sums are coordination numbers. The same crystal in a larger cell has a larger graph and
counts as another structure.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache, reduce
from math import gcd, lcm

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from ase.symbols import Symbols
from numpy.typing import NDArray
from scipy.optimize import linear_sum_assignment
from scipy.sparse.csgraph import connected_components

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.structures.batch import as_batch
from nugget.structures.geometry import BONDED, radii_of
from nugget.structures.neighbours import find_pairs
from nugget.structures.symmetry import standardised

Words = NDArray[np.uint64]


def _radii(atoms: Atoms) -> Floats:
    if len(atoms) == 0:
        raise NuggetError("a structure without atoms has no identity; remove it.")
    return radii_of(atoms.numbers)


def directed_pairs(atoms: Atoms, cutoff: float) -> tuple[Ints, Ints, Floats]:
    """i, j, distance of all pairs (both directions, all images) closer than cutoff."""
    batch = as_batch(atoms)
    pairs = find_pairs(batch, cutoff)
    d = pairs.distances(batch)
    i, j = np.concatenate([pairs.i, pairs.j]), np.concatenate([pairs.j, pairs.i])
    return i, j, np.concatenate([d, d])


def _mix(x: Words) -> Words:
    """Scramble 64-bit words (the finaliser of splitmix64): sums of these identify multisets."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class BondGraph:
    """Numbers of bonds between atoms; the vertices carry the species."""

    numbers: Ints  # (N,)
    adjacency: Ints  # (N, N), symmetric

    @classmethod
    def of(cls, atoms: Atoms, factor: float = BONDED) -> BondGraph:
        """The graph of a structure, periodic or not."""
        radii = _radii(atoms)
        i, j, d = directed_pairs(atoms, 2 * factor * float(radii.max()))
        bonded = d < factor * (radii[i] + radii[j])
        n = len(radii)
        counts = np.bincount(i[bonded] * n + j[bonded], minlength=n * n)
        return cls(np.asarray(atoms.numbers, dtype=np.int64), counts.reshape(n, n))

    @property
    def degrees(self) -> Ints:
        """Coordination number of each atom."""
        return np.asarray(self.adjacency.sum(axis=1))

    @cached_property
    def spectrum(self) -> Floats:
        """Eigenvalues of the adjacency with species on the diagonal, ascending."""
        matrix = self.adjacency.astype(np.float64) + np.diag(self.numbers.astype(np.float64))
        return np.asarray(np.linalg.eigvalsh(matrix))

    def refine(self, colours: Words) -> Words:
        """Weisfeiler–Lehman refinement: mix in the neighbours' colours until no class splits.

        Colours do not depend on the numbering, so those of different graphs can be compared.
        """
        links = self.adjacency.astype(np.uint64)
        classes = len(np.unique(colours))
        while True:
            colours = _mix(_mix(colours) + links @ _mix(colours ^ np.uint64(0x9E3779B97F4A7C15)))
            refined = len(np.unique(colours))
            if refined <= classes:
                return colours
            classes = refined

    @cached_property
    def colours(self) -> Words:
        """Stable colours of the atoms, starting from their species."""
        return self.refine(_mix(self.numbers.astype(np.uint64)))

    @cached_property
    def key(self) -> str:
        """A hash that depends neither on the numbering nor on the placement of the atoms.

        It comprises species, refined colours and spectrum (rounded to 1e-6, while round-off is
        1e-13, because the matrix consists of integers). Some different graphs agree in all three,
        such as strongly regular ones, but bond graphs of atoms hardly do. `same_graph` is exact.
        """
        text = hashlib.blake2b(digest_size=16)
        text.update(np.sort(self.numbers).astype("<i8").tobytes())
        text.update(np.sort(self.colours).astype("<u8").tobytes())
        text.update(np.rint(self.spectrum * 1e6).astype("<i8").tobytes())
        return text.hexdigest()

    @property
    def connected(self) -> bool:
        """Whether bonds connect all atoms."""
        return bool(connected_components(self.adjacency)[0] == 1)

    def same(self, other: BondGraph) -> bool:
        """Whether the graphs are isomorphic (exact, unlike a comparison of keys)."""
        if self.key != other.key:
            return False
        return _match(self, self.colours, other, other.colours)


def _match(a: BondGraph, p: Words, b: BondGraph, q: Words) -> bool:
    """Whether colour classes agree and, once every class is a single atom, the bonds as well.

    While a class has several atoms, one of them in `a` is paired with each candidate in `b`.
    """
    names, first, counts = np.unique(p, return_index=True, return_counts=True)
    if not np.array_equal(np.sort(p), np.sort(q)):
        return False
    if counts.max() == 1:
        i, j = np.argsort(p), np.argsort(q)
        return np.array_equal(a.adjacency[np.ix_(i, i)], b.adjacency[np.ix_(j, j)])
    pick = int(np.argmin(np.where(counts > 1, counts, len(p) + 1)))
    mark = _mix(np.array([len(names)], dtype=np.uint64))[0]
    left = p.copy()
    left[first[pick]] ^= mark
    left = a.refine(left)
    for candidate in np.flatnonzero(q == names[pick]):
        right = q.copy()
        right[candidate] ^= mark
        if _match(a, left, b, b.refine(right)):
            return True
    return False


def graph_key(atoms: Atoms, factor: float = BONDED) -> str:
    """Stable text key of the bond graph, for sets and databases."""
    return BondGraph.of(atoms, factor).key


def same_graph(a: Atoms, b: Atoms, factor: float = BONDED) -> bool:
    """Whether two bond graphs are equal (exactly, not only by their keys)."""
    return BondGraph.of(a, factor).same(BondGraph.of(b, factor))


def degree_sequence(atoms: Atoms, factor: float = BONDED) -> list[int]:
    """Coordination numbers, ascending: [3]*4 + [6]*12 + [9]*4 for the Au20 tetrahedron."""
    return [int(d) for d in np.sort(BondGraph.of(atoms, factor).degrees)]


def is_connected(atoms: Atoms, factor: float = BONDED) -> bool:
    """Whether bonds, including those to periodic images, connect all atoms."""
    return BondGraph.of(atoms, factor).connected


# --- Fingerprints: numbers that rotations, translations and renumbering do not change ---
#
# They change continuously with the positions, so "the same" needs a tolerance. They do not
# distinguish mirror images, whose energies are equal.


Pair = tuple[int, int]

#: Distances up to here, in Å, make the fingerprint of a periodic structure.
PERIODIC_CUTOFF = 6.0


@lru_cache(maxsize=1024)
def _hill_formula(numbers: tuple[int, ...]) -> str:
    """Chemical formula of these atoms in Hill order."""
    return str(Symbols(numbers).formula.format("hill"))


@dataclass(frozen=True, eq=False)
class DistanceFingerprint:
    """Sorted distances for each pair of species; all of them, or those below a cutoff."""

    formula: str
    cutoff: float  # infinite for clusters
    blocks: Mapping[Pair, Floats]

    @classmethod
    def of(cls, atoms: Atoms, cutoff: float | None = None) -> DistanceFingerprint:
        """Cutoff: none for clusters, PERIODIC_CUTOFF for periodic structures, unless given."""
        reach = (PERIODIC_CUTOFF if atoms.pbc.any() else np.inf) if cutoff is None else cutoff
        if atoms.pbc.any() and not np.isfinite(reach):
            raise NuggetError("a periodic structure needs a finite cutoff for its fingerprint.")
        i, j, d = directed_pairs(atoms, reach)
        zi, zj = atoms.numbers[i], atoms.numbers[j]
        code = np.minimum(zi, zj) * len(chemical_symbols) + np.maximum(zi, zj)
        order = np.lexsort((d, code))
        d, code = d[order], code[order]
        pairs, starts = np.unique(code, return_index=True)
        blocks = {
            divmod(int(pair), len(chemical_symbols)): block
            for pair, block in zip(pairs, np.split(d, starts)[1:], strict=True)
        }
        return cls(_hill_formula(tuple(atoms.numbers.tolist())), float(reach), blocks)

    def probe(self, n_atoms: int) -> Floats:
        """Sixteen of the sorted distances, for a quick first test.

        None of them differs by more than `difference`, because merging the blocks before sorting
        can only bring two lists closer.
        """
        merged = np.sort(np.concatenate([*self.blocks.values(), np.zeros(0)]))
        finite = np.isfinite(self.cutoff)
        reach = 12 * n_atoms if finite else max(n_atoms * (n_atoms - 1), 1)
        spots = np.linspace(0, reach - 1, 16).astype(np.int64)
        fill = self.cutoff if finite else 0.0
        return np.concatenate([merged, np.full(max(reach - len(merged), 0), fill)])[spots]

    def difference(self, other: DistanceFingerprint) -> float:
        """Largest difference of two sorted distances, in Å; infinite for other compositions.

        In a periodic structure, a distance may pass the cutoff. The shorter list is therefore
        filled with the cutoff, which keeps the difference continuous.
        """
        if self.formula != other.formula or self.cutoff != other.cutoff:
            return float("inf")
        largest = 0.0
        empty = np.zeros(0)
        for pair in {*self.blocks, *other.blocks}:
            a, b = self.blocks.get(pair, empty), other.blocks.get(pair, empty)
            short, long = sorted((a, b), key=len)
            if len(short) < len(long):
                short = np.r_[short, np.full(len(long) - len(short), self.cutoff)]
            largest = max(largest, float(np.max(np.abs(short - long), initial=0.0)))
        return largest


# --- Crystals, whatever their cell, setting, orientation and numbering ---
#
# A crystal is reduced to its primitive cell (spglib). Then each of its atoms is described by the
# sorted distances to its nearest neighbours of each element. Two crystals are the same when their
# atoms can be matched one to one, so that no two distances differ by more than a tolerance. If one
# has a primitive cell several times as large (it is slightly distorted, for example), the other's
# atoms count several times. Mirror images are the same.


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
        """The mean row, no number of which differs by more than `difference`."""
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
    """Sorted distances of all atoms; None if fewer neighbours than wanted are within reach."""
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
    """Whether two crystals are equal, independent of cell, orientation and numbering."""
    return CrystalFingerprint.of(a).difference(CrystalFingerprint.of(b)) <= tolerance
