"""A memory of crystals, so that none is evaluated twice."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.identity.crystal import TOLERANCE, CrystalFingerprint
from nugget.identity.known import energies_agree


@dataclass(frozen=True, eq=False)
class KnownCrystal:
    """One remembered crystal."""

    fingerprint: CrystalFingerprint
    probe: Floats
    energy: float | None  # eV/atom


class KnownCrystals:
    """Has this crystal been here before? As `KnownStructures`, whatever the cells.

    Two crystals are the same when their neighbour distances match within `tolerance` (in units of
    the cube root of the volume per atom), and their energies per atom, if both are known, within
    `energy_tol` eV; a predicted one may be higher.
    """

    def __init__(self, tolerance: float = TOLERANCE, energy_tol: float = 0.02) -> None:
        self.tolerance, self.energy_tol = tolerance, energy_tol
        self._known: list[KnownCrystal] = []

    def __len__(self) -> int:
        return len(self._known)

    def copy(self) -> KnownCrystals:
        """A memory of its own with the same crystals."""
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
        """Remember a crystal, in any case; its number."""
        self._known.append(_describe(atoms, energy))
        return len(self._known) - 1


def _describe(atoms: Atoms, energy: float | None) -> KnownCrystal:
    fingerprint = CrystalFingerprint.of(atoms)
    per_atom = None if energy is None else energy / len(atoms)
    return KnownCrystal(fingerprint, fingerprint.probe(), per_atom)
