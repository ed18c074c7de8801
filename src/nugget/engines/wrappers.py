"""Calculators around calculators: a box for codes that need a cell, supercells for one k point."""

from __future__ import annotations

from math import ceil
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes

from nugget.errors import NuggetError
from nugget.structures.geometry import thickness


class Boxed(Calculator):
    """Places structures without a cell in a box with vacuum.

    The box is kept while the atoms stay at least half the vacuum away from its faces, so that the
    steps of a relaxation are comparable. The caller's positions are not changed. Structures with a
    complete cell are passed on unchanged, with their stress if the code gives one.
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
        """Whether the code reports convergence; None if it does not report it."""
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
                raise NuggetError("a periodic structure needs a complete cell for this engine.")
            boxed = self._in_box(boxed)
        boxed.calc = self.inner
        # Forces first: codes that compute only what is requested then run once.
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


class Repeated(Calculator):
    """Evaluates a periodic cell as a supercell that is at least `supercell` Å thick.

    For codes with a single k point: the Γ point of a supercell is a k-point mesh of the cell.
    Energy and forces are those of the cell.
    """

    implemented_properties = ["energy", "forces", "stress"]  # noqa: RUF012 (as in ASE)

    def __init__(self, inner: Calculator, supercell: float) -> None:
        super().__init__()
        self.inner, self.supercell = inner, supercell

    @property
    def converged(self) -> Any:
        """Whether the code reports convergence; None if it does not report it."""
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
