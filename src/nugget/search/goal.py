"""What a search minimises, and when two of its structures are the same: clusters and crystals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, Self

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers
from ase.units import GPa

from nugget._compiled.arrays import Floats
from nugget.generators.compositions import elements_of
from nugget.identity import KnownStructures, graph_key, same_graph
from nugget.identity.crystal import TOLERANCE, CrystalFingerprint, reduced_formula, same_crystal
from nugget.identity.known_crystals import KnownCrystals
from nugget.search.hull import Hull
from nugget.search.system import SystemConfig

#: Structures that only the surrogate has relaxed may differ so much from what they will become.
LOOSE = 2.5 * TOLERANCE


class Memory(Protocol):
    """A memory of structures (`KnownStructures`, `KnownCrystals`)."""

    def __len__(self) -> int: ...

    def __contains__(self, atoms: Atoms) -> bool: ...

    def find(
        self, atoms: Atoms, energy: float | None = None, predicted: bool = False
    ) -> int | None: ...

    def add(self, atoms: Atoms, energy: float | None = None) -> int: ...

    def copy(self) -> Memory: ...


class Goal(Protocol):
    """What is minimised, in `unit`, and what counts as the same structure."""

    @property
    def unit(self) -> str: ...

    def value(self, atoms: Atoms, energy: float) -> float:
        """What is minimised, of a structure with this energy."""

    def values(self, images: Sequence[Atoms], energy: Floats) -> Floats:
        """The same of many."""

    def stds(self, images: Sequence[Atoms], std: Floats) -> Floats:
        """Standard deviations of what is minimised, from those of energies."""

    def memory(self, coarse: bool = False) -> Memory:
        """An empty memory; a coarse one holds one structure of each kind."""

    def same(self, atoms: Atoms, reference: Atoms, loose: bool) -> bool:
        """Is this the reference? Loosely: could it become it when it is relaxed?"""

    def same_atoms(self, atoms: Atoms, numbers: Sequence[int]) -> bool:
        """Has it the composition that is searched for?"""

    def informed(self, atoms: Atoms, energy: float) -> Self:
        """The goal when one more structure is known: a convex hull may have sunk."""

    def order(self, atoms: Atoms, energy: float) -> tuple[float, float]:
        """By what known structures are ordered: the value, then what decides between equals."""

    def comparable(self, atoms: Atoms, other: Atoms) -> bool:
        """Can an energy per atom be judged by the other? Those of elements differ by far."""

    def reached(self, known: Sequence[tuple[Atoms, float]]) -> float | None:
        """One number for how far a search has come: the lowest value of what it knows."""

    @property
    def least(self) -> int:
        """How many structures the answer has at least: one, or the members of a hull."""

    def count(self, atoms: Sequence[Atoms], images: Sequence[Atoms]) -> int:
        """How many of the images are one of `atoms`."""


@dataclass(frozen=True)
class _OneComposition:
    """What goals have in common whose value depends on the structure alone."""

    @property
    def least(self) -> int:
        return 1

    def informed(self, atoms: Atoms, energy: float) -> Self:
        return self

    def value(self, atoms: Atoms, energy: float) -> float:
        raise NotImplementedError

    def order(self, atoms: Atoms, energy: float) -> tuple[float, float]:
        return (self.value(atoms, energy), 0.0)

    def comparable(self, atoms: Atoms, other: Atoms) -> bool:
        return True

    def reached(self, known: Sequence[tuple[Atoms, float]]) -> float | None:
        return min((self.value(*one) for one in known), default=None)


@dataclass(frozen=True)
class LowestEnergy(_OneComposition):
    """Total energies; bond graphs tell structures apart, or distances where they are molecules'."""

    unit: str = "eV"
    molecules: bool = False

    def value(self, atoms: Atoms, energy: float) -> float:
        return energy

    def values(self, images: Sequence[Atoms], energy: Floats) -> Floats:
        return energy

    def stds(self, images: Sequence[Atoms], std: Floats) -> Floats:
        return std

    def memory(self, coarse: bool = False) -> Memory:
        by_graph = coarse and not self.molecules  # all have the bonds of their molecules
        return KnownStructures(distance_tol=None) if by_graph else KnownStructures()

    def same(self, atoms: Atoms, reference: Atoms, loose: bool) -> bool:
        return same_graph(atoms, reference)

    def same_atoms(self, atoms: Atoms, numbers: Sequence[int]) -> bool:
        return sorted(atoms.numbers) == sorted(numbers)

    def count(self, atoms: Sequence[Atoms], images: Sequence[Atoms]) -> int:
        keys = {graph_key(one) for one in atoms}
        return sum(graph_key(one) in keys for one in images)


@dataclass(frozen=True)
class LowestEnthalpy(_OneComposition):
    """(E + pV) per atom, `pressure` in eV/Å³; crystals are the same whatever their cells."""

    pressure: float = 0.0
    unit: str = "eV/atom"

    def value(self, atoms: Atoms, energy: float) -> float:
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
        known = [CrystalFingerprint.of(one) for one in atoms]
        others = (CrystalFingerprint.of(one) for one in images)
        return sum(any(a.difference(b) <= LOOSE for a in known) for b in others)


@dataclass(frozen=True)
class AboveHull(LowestEnthalpy):
    """(E + pV) per atom above the convex hull of all compositions that are known so far.

    What is below 0 makes the hull sink. Before all elements are known, there is no hull: values
    are enthalpies per atom, and can be compared within one composition.
    """

    hull: Hull = field(default_factory=lambda: Hull(()))

    def value(self, atoms: Atoms, energy: float) -> float:
        return self.enthalpy(atoms, energy) - self.hull.at(self.hull.shares(atoms))

    def enthalpy(self, atoms: Atoms, energy: float) -> float:
        """(E + pV) per atom."""
        return super().value(atoms, energy)

    def informed(self, atoms: Atoms, energy: float) -> Self:
        hull = self.hull.including(self.hull.shares(atoms), self.enthalpy(atoms, energy))
        return self if hull is self.hull else replace(self, hull=hull)

    def order(self, atoms: Atoms, energy: float) -> tuple[float, float]:
        """Members of the hull by their formation enthalpies, the most stable first."""
        formation = self.hull.formation(self.hull.shares(atoms), self.enthalpy(atoms, energy))
        return (round(self.value(atoms, energy), 6), formation or 0.0)

    def comparable(self, atoms: Atoms, other: Atoms) -> bool:
        return self.hull.shares(atoms) == self.hull.shares(other)

    def reached(self, known: Sequence[tuple[Atoms, float]]) -> float | None:
        """The lowest formation enthalpy."""
        goal = self
        for one in known:
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


def make_goal(system: SystemConfig) -> Goal:
    """What a search of this system minimises."""
    if system.compositions is not None:
        elements = tuple(atomic_numbers[symbol] for symbol in elements_of(system.compositions))
        return AboveHull(system.pressure * GPa, hull=Hull(elements))
    if system.kind == "crystal":
        return LowestEnthalpy(system.pressure * GPa)
    return LowestEnergy(molecules="*" in system.formula)
