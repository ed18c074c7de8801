"""What a search minimises, and when two of its structures are the same: clusters and crystals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from ase import Atoms
from ase.units import GPa

from nugget._compiled.arrays import Floats
from nugget.identity import KnownStructures, graph_key, same_graph
from nugget.identity.crystal import TOLERANCE, CrystalFingerprint, reduced_formula, same_crystal
from nugget.identity.known_crystals import KnownCrystals
from nugget.search.system import SystemConfig

#: Structures that only the surrogate has relaxed may differ so much from what they will become.
LOOSE = 2.5 * TOLERANCE


class Memory(Protocol):
    """A memory of structures (`KnownStructures`, `KnownCrystals`)."""

    def __len__(self) -> int: ...

    def __contains__(self, atoms: Atoms) -> bool: ...

    def find(self, atoms: Atoms, energy: float | None = None) -> int | None: ...

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

    def count(self, atoms: Sequence[Atoms], images: Sequence[Atoms]) -> int:
        """How many of the images are one of `atoms`."""


@dataclass(frozen=True)
class LowestEnergy:
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
class LowestEnthalpy:
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


def make_goal(system: SystemConfig) -> Goal:
    """What a search of this system minimises."""
    if system.kind == "crystal":
        return LowestEnthalpy(system.pressure * GPa)
    return LowestEnergy(molecules="*" in system.formula)
