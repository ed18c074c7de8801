"""Structures without a cell for codes that need one."""

from __future__ import annotations

from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

from nugget.errors import NuggetError


class Boxed(Calculator):
    """Puts structures without a cell into a box with vacuum around.

    The box is kept while the same atoms stay at least half the vacuum inside, so that the steps
    of a relaxation are comparable. Positions outside are never changed. Structures with a whole
    cell go through as they are, with their stress if the code has one.
    """

    implemented_properties = ["energy", "forces", "stress"]  # noqa: RUF012 (as in ASE)

    def __init__(self, inner: Calculator, vacuum: float) -> None:
        super().__init__()
        self.inner = inner
        self.vacuum = vacuum
        self._box: Atoms | None = None
        self._shift = np.zeros(3)

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
        boxed = self.atoms.copy()
        boxed.set_constraint()
        whole = boxed.cell.rank == 3
        if not whole:
            if boxed.pbc.any():
                raise NuggetError("a periodic structure needs its whole cell for this engine.")
            boxed = self._in_box(boxed)
        boxed.calc = self.inner
        # Forces first: codes that compute only what is wanted then run once.
        self.results["forces"] = boxed.get_forces()
        self.results["energy"] = boxed.get_potential_energy()
        if whole and "stress" in (properties or ()):
            self.results["stress"] = boxed.get_stress()
        elif whole and self.inner.results.get("stress") is not None:
            self.results["stress"] = self.inner.results["stress"]

    def _in_box(self, atoms: Atoms) -> Atoms:
        moved = atoms.copy()
        if self._box is not None and np.array_equal(self._box.numbers, atoms.numbers):
            moved.set_cell(self._box.cell)
            moved.positions += self._shift
            margin = np.minimum(moved.positions, moved.cell.lengths() - moved.positions).min()
            if margin >= self.vacuum / 2:
                return moved
            moved = atoms.copy()
        moved.center(vacuum=self.vacuum)
        self._box = moved.copy()
        self._shift = moved.positions[0] - atoms.positions[0]
        return moved
