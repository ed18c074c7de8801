"""Known structures, so that none is evaluated twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.structures.geometry import BONDED
from nugget.structures.identity import TOLERANCE, BondGraph, CrystalFingerprint, DistanceFingerprint


@dataclass(frozen=True, eq=False)
class Known:
    """One remembered structure."""

    index: int
    key: str
    fingerprint: DistanceFingerprint
    probe: Floats
    energy: float | None


class KnownStructures:
    """Structures without variable cells that were seen before, and the test whether one is new.

    Two structures are the same if both of these conditions hold:

    - No two sorted distances differ by more than `distance_tol` (Å) if the bond graphs agree, or by
      more than `identical_tol` otherwise, since a bond of marginal length may or may not count.
    - The energies, if both are given, differ by at most `energy_tol` (eV). A predicted energy may
      be higher by any amount; if the distances agree within `identical_tol`, it may be any value,
      because a prediction error does not make a structure new.

    With `distance_tol=None` only the bond graph is compared.
    """

    def __init__(
        self,
        distance_tol: float | None = 0.2,
        identical_tol: float = 0.05,
        energy_tol: float = 0.05,
        factor: float = BONDED,
    ) -> None:
        for name, value in (
            ("distance_tol", distance_tol),
            ("identical_tol", identical_tol),
            ("energy_tol", energy_tol),
        ):
            if value is not None and not value >= 0:
                raise NuggetError(f"{name} is {value}; tolerances must not be negative.")
        self.distance_tol = distance_tol
        self.identical_tol = identical_tol
        self.energy_tol = energy_tol
        self.factor = factor
        self._known: list[Known] = []
        self._graphs: dict[str, list[Known]] = {}
        self._probes = np.zeros((16, 16))  # one row per known structure; doubles when full

    def __len__(self) -> int:
        return len(self._known)

    def copy(self) -> KnownStructures:
        """An independent copy with the same structures."""
        other = KnownStructures(self.distance_tol, self.identical_tol, self.energy_tol, self.factor)
        other._known = list(self._known)
        other._graphs = {key: list(same) for key, same in self._graphs.items()}
        other._probes = self._probes.copy()
        return other

    def __contains__(self, atoms: Atoms) -> bool:
        return self.find(atoms) is not None

    def find(
        self, atoms: Atoms, energy: float | None = None, predicted: bool = False
    ) -> int | None:
        """Number of the first known structure that is the same, or None.

        `predicted` says that the energy is a model's.
        """
        return self._find(self._describe(atoms, energy), predicted)

    def add(self, atoms: Atoms, energy: float | None = None) -> int:
        """Add a structure, even if it is known; returns its number."""
        new = self._describe(atoms, energy)
        if len(self) == len(self._probes):
            self._probes = np.vstack([self._probes, np.zeros_like(self._probes)])
        self._probes[len(self)] = new.probe
        self._known.append(new)
        self._graphs.setdefault(new.key, []).append(new)
        return new.index

    def _describe(self, atoms: Atoms, energy: float | None) -> Known:
        key = BondGraph.of(atoms, self.factor).key
        fingerprint = DistanceFingerprint.of(atoms)
        return Known(len(self), key, fingerprint, fingerprint.probe(len(atoms)), energy)

    def _find(self, new: Known, predicted: bool) -> int | None:
        def agree(old: Known) -> bool:
            return energies_agree(old.energy, new.energy, self.energy_tol, predicted)

        if self.distance_tol is None:
            same = (old.index for old in self._graphs.get(new.key, ()) if agree(old))
            return next(same, None)
        # Probes exclude nearly all known structures; only the others are compared in full.
        apart = np.abs(self._probes[: len(self)] - new.probe).max(axis=1)
        for index in np.flatnonzero(apart <= max(self.distance_tol, self.identical_tol)):
            old = self._known[index]
            apart_by = old.fingerprint.difference(new.fingerprint)
            if predicted and apart_by <= self.identical_tol:
                return old.index
            tolerance = self.distance_tol if old.key == new.key else self.identical_tol
            if apart_by <= tolerance and agree(old):
                return old.index
        return None


def energies_agree(old: float | None, new: float | None, tolerance: float, predicted: bool) -> bool:
    """Whether two energies may belong to one structure; a predicted new one may be too high."""
    if old is None or new is None:
        return True
    return new >= old - tolerance and (predicted or new <= old + tolerance)


# Known crystals.


@dataclass(frozen=True, eq=False)
class KnownCrystal:
    """One remembered crystal."""

    fingerprint: CrystalFingerprint
    probe: Floats
    energy: float | None  # eV/atom


class KnownCrystals:
    """As `KnownStructures`, for crystals, whatever cell describes them.

    Two crystals are the same if their neighbour distances match within `tolerance` (in units of the
    cube root of the volume per atom) and their energies per atom, if both are given, within
    `energy_tol` eV. A predicted energy may be higher by any amount.
    """

    def __init__(self, tolerance: float = TOLERANCE, energy_tol: float = 0.02) -> None:
        self.tolerance, self.energy_tol = tolerance, energy_tol
        self._known: list[KnownCrystal] = []

    def __len__(self) -> int:
        return len(self._known)

    def copy(self) -> KnownCrystals:
        """An independent copy with the same crystals."""
        other = KnownCrystals(self.tolerance, self.energy_tol)
        other._known = list(self._known)
        return other

    def __contains__(self, atoms: Atoms) -> bool:
        return self.find(atoms) is not None

    def find(
        self, atoms: Atoms, energy: float | None = None, predicted: bool = False
    ) -> int | None:
        """Number of the first known crystal that is the same, or None."""
        new = _describe(atoms, energy)
        for index, old in enumerate(self._known):
            if old.fingerprint.formula != new.fingerprint.formula:
                continue
            reach = 1.001 * self.tolerance * 0.5 * (old.fingerprint.size + new.fingerprint.size)
            if np.abs(old.probe - new.probe).max() > reach:
                continue
            if not energies_agree(old.energy, new.energy, self.energy_tol, predicted):
                continue
            if old.fingerprint.difference(new.fingerprint) <= self.tolerance:
                return index
        return None

    def add(self, atoms: Atoms, energy: float | None = None) -> int:
        """Add a crystal, even if it is known; returns its number."""
        self._known.append(_describe(atoms, energy))
        return len(self._known) - 1


def _describe(atoms: Atoms, energy: float | None) -> KnownCrystal:
    fingerprint = CrystalFingerprint.of(atoms)
    per_atom = None if energy is None else energy / len(atoms)
    return KnownCrystal(fingerprint, fingerprint.probe(), per_atom)
