"""Crystals for codes that know a single k point: small cells are repeated."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

from nugget.structures.cells import thickness


class Repeated(Calculator):
    """Evaluates a periodic cell as a supercell that is at least `supercell` Å thick.

    The Γ point of a supercell is a mesh of k points of the cell itself. Energy and forces are
    those of the cell, the stress is the same.
    """

    implemented_properties = ["energy", "forces", "stress"]  # noqa: RUF012 (as in ASE)

    def __init__(self, inner: Calculator, supercell: float) -> None:
        super().__init__()
        self.inner, self.supercell = inner, supercell

    @property
    def converged(self) -> Any:
        """What the code says of its convergence, if it says anything."""
        return getattr(self.inner, "converged", None)

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        bare = self.atoms.copy()
        bare.set_constraint()
        times = [1, 1, 1]
        if bare.pbc.all():
            times = [ceil(self.supercell / t - 1e-9) for t in thickness(bare.cell.array)]
        large = bare.repeat([max(n, 1) for n in times])
        large.calc = self.inner
        copies = len(large) // len(bare)
        self.results["forces"] = np.array(large.get_forces()[: len(bare)])
        self.results["energy"] = large.get_potential_energy() / copies
        if bare.pbc.all():
            self.results["stress"] = large.get_stress()
