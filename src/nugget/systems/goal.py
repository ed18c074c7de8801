"""What a search minimises, when two structures are the same, and the convex hull of crystals."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from math import gcd
from typing import ClassVar, Self

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols
from scipy.optimize import linprog

from nugget.numerics.arrays import Floats
from nugget.structures.identity import (
    TOLERANCE,
    CrystalFingerprint,
    graph_key,
    reduced_formula,
    same_crystal,
    same_graph,
)
from nugget.structures.memory import KnownCrystals, KnownStructures

Shares = tuple[int, ...]

#: Enthalpies per atom (eV) that differ by less are equal within the linear program's round-off.
SAME = 1e-7

#: Tolerance for structures that were relaxed on the surrogate only.
LOOSE = 2.5 * TOLERANCE


def shares_of(atoms: Atoms, elements: Sequence[int]) -> Shares:
    """Atoms of each element in a formula unit; empty if there are other elements."""
    counts = [int(np.sum(atoms.numbers == z)) for z in elements]
    divisor = gcd(*counts)
    return tuple(n // divisor for n in counts) if sum(counts) == len(atoms) else ()


@dataclass(frozen=True)
class Hull:
    """The convex hull of crystals, from the lowest enthalpy per atom of each composition.

    Compositions count the atoms of each element in a formula unit. The hull at a composition x is
    the smallest Σ λ_k h_k over mixtures of crystals with Σ λ_k x_k = x, λ ≥ 0 and Σ λ = 1, which is
    a linear program. A crystal below the hull lowers it; one above the hull does not change it.
    """

    elements: tuple[int, ...]
    points: dict[Shares, float] = field(default_factory=dict)
    _at: dict[Shares, float] = field(default_factory=dict, compare=False, repr=False)

    def shares(self, atoms: Atoms) -> Shares:
        """The composition of a crystal; empty if it has other elements."""
        return shares_of(atoms, self.elements)

    @property
    def symbols(self) -> list[str]:
        return [chemical_symbols[z] for z in self.elements]

    @property
    def complete(self) -> bool:
        """Whether all elements have an enthalpy, as formation enthalpies require."""
        return all(end in self.points for end in self.ends)

    @property
    def ends(self) -> list[Shares]:
        """The compositions of the elements."""
        return [tuple(row) for row in np.eye(len(self.elements), dtype=int).tolist()]

    def at(self, shares: Shares) -> float:
        """Enthalpy per atom of the hull; 0 while it is not complete."""
        if not self.complete:
            return 0.0
        if shares not in self._at:
            self._at[shares] = self._solve(shares)
        return self._at[shares]

    def _solve(self, shares: Shares) -> float:
        mixed = np.array(list(self.points), dtype=float)
        mixed /= mixed.sum(axis=1, keepdims=True)
        values = np.array(list(self.points.values()))
        wanted = np.array(shares, dtype=float) / sum(shares)
        # Formation enthalpies are small numbers and keep more digits than total ones.
        line = np.array([self.points[end] for end in self.ends])
        solution = linprog(values - mixed @ line, A_eq=mixed.T, b_eq=wanted, method="highs")
        lowest = float(solution.fun + wanted @ line)
        # There is no round-off where the hull passes through a point.
        return min(self.points[shares], lowest) if shares in self.points else lowest

    def formation(self, shares: Shares, value: float) -> float | None:
        """Enthalpy per atom relative to the elements; None while the hull is not complete."""
        if not self.complete:
            return None
        line = np.array([self.points[end] for end in self.ends])
        return value - float(np.dot(shares, line)) / sum(shares)

    def including(self, shares: Shares, value: float) -> Hull:
        """The hull with one more crystal; the same object if that lies above it."""
        before = self.points.get(shares, np.inf)
        if value >= before or (self.complete and value >= self.at(shares)):
            return self
        return Hull(self.elements, {**self.points, shares: value})

    def vertices(self) -> list[Shares]:
        """The stable compositions, in the order of their first element's share."""
        on = [s for s, v in self.points.items() if v <= self._without(s) - SAME]
        return sorted(on, key=lambda s: [-n / sum(s) for n in s])

    def _without(self, shares: Shares) -> float:
        """The hull at a composition without the crystal of that composition."""
        if shares in self.ends:
            return np.inf
        others = {s: v for s, v in self.points.items() if s != shares}
        return Hull(self.elements, others).at(shares)

    def name(self, shares: Shares) -> str:
        """The formula of a composition, as Cu3Au."""
        parts = zip(self.symbols, shares, strict=True)
        return "".join(f"{symbol}{n if n > 1 else ''}" for symbol, n in parts if n)


Memory = KnownStructures | KnownCrystals


@dataclass(frozen=True)
class Goal(ABC):
    """The quantity that a search minimises, in `unit`, and the identity of structures.

    Methods that are not abstract are those of goals whose value depends on the structure alone.
    """

    unit: ClassVar[str]

    hull: Hull | None = field(default=None, kw_only=True)  # so far, of several compositions

    @abstractmethod
    def value(self, atoms: Atoms, energy: float) -> float:
        """The minimised quantity, of a structure with this energy."""

    @abstractmethod
    def values(self, images: Sequence[Atoms], energy: Floats) -> Floats:
        """The minimised quantity of many structures."""

    @abstractmethod
    def enthalpy(self, atoms: Atoms, energy: float) -> float:
        """(E + pV) per atom, eV."""

    @abstractmethod
    def stds(self, images: Sequence[Atoms], std: Floats) -> Floats:
        """Standard deviations of the minimised quantity, from those of energies."""

    @abstractmethod
    def memory(self, coarse: bool = False) -> Memory:
        """An empty memory; a coarse one distinguishes only clearly different structures."""

    @abstractmethod
    def same(self, atoms: Atoms, reference: Atoms, loose: bool) -> bool:
        """Whether this is the reference; loosely, whether it may relax to it."""

    @abstractmethod
    def same_atoms(self, atoms: Atoms, numbers: Sequence[int]) -> bool:
        """Whether a structure has the composition of the search."""

    @abstractmethod
    def count(self, atoms: Sequence[Atoms], images: Sequence[Atoms]) -> int:
        """How many of the images are the same as one of `atoms`."""

    @property
    def least(self) -> int:
        """The smallest number of structures that answer the search: one, or those of a hull."""
        return 1

    @property
    def quantity(self) -> str:
        """What is minimised: energy, or enthalpy under pressure."""
        return "energy"

    def informed(self, atoms: Atoms, energy: float) -> Self:
        """The goal after one more evaluation, which may lower a convex hull."""
        return self

    def order(self, atoms: Atoms, energy: float) -> tuple[float, float]:
        """Sort key of evaluated structures: the value, then a rule for equal values."""
        return (self.value(atoms, energy), 0.0)

    def comparable(self, atoms: Atoms, other: Atoms) -> bool:
        """Whether the energies per atom of two structures should be of similar size."""
        return True

    def reached(self, evaluated: Sequence[tuple[Atoms, float]]) -> float | None:
        """The progress of a search as one number: the lowest value of these structures."""
        return min((self.value(*one) for one in evaluated), default=None)


@dataclass(frozen=True)
class LowestEnergy(Goal):
    """The lowest total energy. Structures differ by bond graphs; molecules, by distances."""

    unit = "eV"
    molecules: bool = False

    def value(self, atoms: Atoms, energy: float) -> float:
        return energy

    def enthalpy(self, atoms: Atoms, energy: float) -> float:
        return energy / len(atoms)

    def values(self, images: Sequence[Atoms], energy: Floats) -> Floats:
        return energy

    def stds(self, images: Sequence[Atoms], std: Floats) -> Floats:
        return std

    def memory(self, coarse: bool = False) -> Memory:
        by_graph = coarse and not self.molecules  # bond graphs of intact molecules are all equal
        return KnownStructures(distance_tol=None) if by_graph else KnownStructures()

    def same(self, atoms: Atoms, reference: Atoms, loose: bool) -> bool:
        if self.molecules:
            return atoms in self._arrangements([reference], 0.5 if loose else 0.2)
        return same_graph(atoms, reference)

    def same_atoms(self, atoms: Atoms, numbers: Sequence[int]) -> bool:
        return sorted(atoms.numbers) == sorted(numbers)

    def count(self, atoms: Sequence[Atoms], images: Sequence[Atoms]) -> int:
        if self.molecules:
            known = self._arrangements(atoms)
            return sum(one in known for one in images)
        keys = {graph_key(one) for one in atoms}
        return sum(graph_key(one) in keys for one in images)

    @staticmethod
    def _arrangements(atoms: Sequence[Atoms], tolerance: float = 0.2) -> KnownStructures:
        """Structures of molecules, whose distances may differ by the tolerance, Å."""
        known = KnownStructures(tolerance)
        for one in atoms:
            known.add(one)
        return known


@dataclass(frozen=True)
class LowestEnthalpy(Goal):
    """The lowest (E + pV) per atom, `pressure` in eV/Å³. Crystals are compared without cells."""

    unit = "eV/atom"
    pressure: float = 0.0

    @property
    def quantity(self) -> str:
        return "enthalpy" if self.pressure else "energy"

    def value(self, atoms: Atoms, energy: float) -> float:
        return self.enthalpy(atoms, energy)

    def enthalpy(self, atoms: Atoms, energy: float) -> float:
        return (energy + self.pressure * float(atoms.get_volume())) / len(atoms)

    def values(self, images: Sequence[Atoms], energy: Floats) -> Floats:
        pairs = zip(images, energy, strict=True)
        return np.array([self.value(atoms, float(e)) for atoms, e in pairs])

    def stds(self, images: Sequence[Atoms], std: Floats) -> Floats:
        return std / np.array([len(atoms) for atoms in images])

    def memory(self, coarse: bool = False) -> Memory:
        return KnownCrystals(LOOSE, energy_tol=np.inf) if coarse else KnownCrystals()

    def same(self, atoms: Atoms, reference: Atoms, loose: bool) -> bool:
        return same_crystal(atoms, reference, LOOSE if loose else TOLERANCE)

    def same_atoms(self, atoms: Atoms, numbers: Sequence[int]) -> bool:
        return reduced_formula(atoms) == reduced_formula(Atoms(list(numbers)))

    def count(self, atoms: Sequence[Atoms], images: Sequence[Atoms]) -> int:
        wanted = [CrystalFingerprint.of(one) for one in atoms]
        others = (CrystalFingerprint.of(one) for one in images)
        return sum(any(a.difference(b) <= LOOSE for a in wanted) for b in others)


@dataclass(frozen=True)
class AboveHull(LowestEnthalpy):
    """(E + pV) per atom above the convex hull of all evaluations so far.

    A negative value lowers the hull. While the hull is not complete, values are enthalpies per
    atom, which can be compared within one composition.
    """

    hull: Hull = field(default_factory=lambda: Hull(()), kw_only=True)

    def value(self, atoms: Atoms, energy: float) -> float:
        return self.enthalpy(atoms, energy) - self.hull.at(self.hull.shares(atoms))

    def informed(self, atoms: Atoms, energy: float) -> Self:
        hull = self.hull.including(self.hull.shares(atoms), self.enthalpy(atoms, energy))
        return self if hull is self.hull else replace(self, hull=hull)

    def order(self, atoms: Atoms, energy: float) -> tuple[float, float]:
        """Structures on the hull by their formation enthalpies, the most stable first."""
        formation = self.hull.formation(self.hull.shares(atoms), self.enthalpy(atoms, energy))
        return (round(self.value(atoms, energy), 6), formation or 0.0)

    def comparable(self, atoms: Atoms, other: Atoms) -> bool:
        return self.hull.shares(atoms) == self.hull.shares(other)

    def reached(self, evaluated: Sequence[tuple[Atoms, float]]) -> float | None:
        """The lowest formation enthalpy."""
        goal = self
        for one in evaluated:
            goal = goal.informed(*one)
        hull = goal.hull
        if not hull.complete:
            return None
        return min(hull.formation(shares, value) or 0.0 for shares, value in hull.points.items())

    def same_atoms(self, atoms: Atoms, numbers: Sequence[int]) -> bool:
        return set(atoms.numbers.tolist()) <= set(self.hull.elements)

    @property
    def least(self) -> int:
        return len(self.hull.vertices())
