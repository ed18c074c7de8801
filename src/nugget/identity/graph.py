"""Bond graphs: who is bonded to whom, whatever the numbering and the placement of the atoms.

Two atoms are bonded when closer than BONDED times the sum of their covalent radii. In a
periodic cell every image counts: A_ij is the *number* of bonds from i to images of j, and A_ii
counts bonds to an atom's own images, so row sums are coordination numbers. The same crystal in a
larger cell has a larger graph and counts as another structure.
"""

import hashlib
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.structures.batch import as_batch
from nugget.structures.bonds import BONDED, radii_of
from nugget.structures.neighbours import find_pairs

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
    return np.r_[pairs.i, pairs.j], np.r_[pairs.j, pairs.i], np.r_[d, d]


def _mix(x: Words) -> Words:
    """Scramble 64-bit words (the finaliser of splitmix64): sums of these identify multisets."""
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@dataclass(frozen=True, eq=False)
class BondGraph:
    """Who is bonded to whom, and how often; species sit on the vertices."""

    numbers: Ints  # (N,)
    adjacency: Ints  # (N, N), symmetric

    @classmethod
    def of(cls, atoms: Atoms, factor: float = BONDED) -> "BondGraph":
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
        """Weisfeiler–Lehman: recolour by the neighbours' colours until no class splits any more.

        A colour depends on the graph only, never on the numbering, so colours of different graphs
        can be compared.
        """
        links = self.adjacency.astype(np.uint64)
        classes = len(np.unique(colours))
        while True:
            colours = _mix(_mix(colours) + links @ _mix(colours ^ np.uint64(0x9E3779B97F4A7C15)))
            found = len(np.unique(colours))
            if found <= classes:
                return colours
            classes = found

    @cached_property
    def colours(self) -> Words:
        """Stable colours of the atoms, starting from their species."""
        return self.refine(_mix(self.numbers.astype(np.uint64)))

    @cached_property
    def key(self) -> str:
        """A short text, the same for every numbering and placement of the atoms.

        Hash of species, refined colours and spectrum (rounded to 1e-6; the matrix is one of
        integers, so round-off is 1e-13). Graphs that agree in all three and yet differ exist
        (strongly regular ones, for example) but are not met among bond graphs of atoms;
        `same_graph` tells even those apart.
        """
        text = hashlib.blake2b(digest_size=16)
        text.update(np.sort(self.numbers).astype("<i8").tobytes())
        text.update(np.sort(self.colours).astype("<u8").tobytes())
        text.update(np.rint(self.spectrum * 1e6).astype("<i8").tobytes())
        return text.hexdigest()

    @property
    def connected(self) -> bool:
        """Can every atom be reached along bonds?"""
        linked = self.adjacency > 0
        reached = np.zeros(len(linked), dtype=bool)
        reached[0] = True
        while True:
            more = reached | linked[reached].any(axis=0)
            if more.sum() == reached.sum():
                return bool(reached.all())
            reached = more

    def same(self, other: "BondGraph") -> bool:
        """Exactly: is there a renumbering that turns one graph into the other?"""
        if self.key != other.key:
            return False
        return _match(self, self.colours, other, other.colours)


def _match(a: BondGraph, p: Words, b: BondGraph, q: Words) -> bool:
    """Colour classes agree and, once every class is a single atom, so do the bonds.

    While a class has several atoms, one of `a` is singled out and tried against each of `b`.
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
    """Do the two have the same bond graph (exactly, not only the same key)?"""
    return BondGraph.of(a, factor).same(BondGraph.of(b, factor))


def degree_sequence(atoms: Atoms, factor: float = BONDED) -> list[int]:
    """Coordination numbers, ascending: [3]*4 + [6]*12 + [9]*4 for the Au20 tetrahedron."""
    return [int(d) for d in np.sort(BondGraph.of(atoms, factor).degrees)]


def is_connected(atoms: Atoms, factor: float = BONDED) -> bool:
    """In one piece? Of a periodic structure: do bonds (through images too) link all its atoms?"""
    return BondGraph.of(atoms, factor).connected


def min_distance_ratio(atoms: Atoms) -> float:
    """Smallest distance in units of the pair's covalent radii; below about 0.7 atoms collide.

    Infinite when no two atoms (or images) are within twice the largest sum of radii.
    """
    radii = _radii(atoms)
    i, j, d = directed_pairs(atoms, 4 * float(radii.max()))
    return float(np.min(d / (radii[i] + radii[j]), initial=np.inf))


def is_reference(
    atoms: Atoms,
    reference: Atoms,
    energy_tol: float | None = None,
    factor: float = BONDED,
) -> bool:
    """Same bond graph as the reference and, with energy_tol (eV), the same stored energy."""
    if not same_graph(atoms, reference, factor):
        return False
    if energy_tol is None:
        return True
    return abs(stored_energy(atoms) - stored_energy(reference)) <= energy_tol


def stored_energy(atoms: Atoms) -> float:
    """The energy that a structure carries; nothing is calculated."""
    energy = None if atoms.calc is None else atoms.calc.results.get("energy")
    if energy is None:
        raise NuggetError(
            f"{atoms.get_chemical_formula()} carries no energy; attach one or leave energy_tol out."
        )
    return float(energy)
