"""Any ASE calculator as a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator

from nugget._compiled.arrays import Floats
from nugget.potential.priors.base import FixedPrior, PriorValues
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs

# Structures whose values are kept: those that a search asks for again, and more.
_KEPT = 4000
_Values = tuple[float, Floats, Floats]  # energy, gradient (N, 3), derivative by strain (3, 3)


@registered("prior")
@dataclass(frozen=True)
class CalculatorPrior(FixedPrior):
    """Any ASE calculator as a baseline: the process learns the difference to it (Δ-learning).

    `engine` is a name that `nugget engines` lists or `module:factory`; a name, unlike an object,
    can be written into a model file. The calculator is made once and kept. It is reset before each
    structure, so that no value depends on what was calculated before. A structure on which it fails
    has the energy NaN.
    """

    name: ClassVar[str] = "calculator"
    engine: str
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple((str(k), v) for k, v in self.options))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        energies = np.empty(len(batch.positions))
        gradient = np.empty_like(batch.positions)
        strain = np.zeros((len(batch), 3, 3))
        for s in range(len(batch)):
            rows = slice(batch.offsets[s], batch.offsets[s + 1])
            atoms = Atoms(
                batch.numbers[rows], batch.positions[rows], cell=batch.cells[s], pbc=batch.pbc[s]
            )
            energy, gradient[rows], strain[s] = self._live(atoms)
            energies[rows] = energy / len(atoms)
        return PriorValues(energies, gradient, strain)

    @cached_property
    def _live(self) -> _Live:
        from nugget.evaluation.engines import get_engine

        engine = get_engine(self.engine)
        return _Live(engine.calculator(**{**engine.forgetful, **dict(self.options)}))


class _Live:
    """A calculator that is kept, with the values of the last structures."""

    def __init__(self, calculator: Calculator) -> None:
        self.calculator = calculator
        self.values: dict[bytes, _Values] = {}

    def __call__(self, atoms: Atoms) -> _Values:
        parts = (atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)
        key = b"".join(part.tobytes() for part in parts)
        if key not in self.values:
            if len(self.values) >= _KEPT:
                self.values.pop(next(iter(self.values)))
            self.values[key] = self._calculate(atoms)
        return self.values[key]

    def _calculate(self, atoms: Atoms) -> _Values:
        if hasattr(self.calculator, "reset"):
            self.calculator.reset()
        atoms.calc = self.calculator
        strain = np.zeros((3, 3))
        try:
            energy, forces = float(atoms.get_potential_energy()), atoms.get_forces()
            if atoms.pbc.all():
                strain = atoms.get_stress(voigt=False) * atoms.get_volume()
        except Exception:  # calculators fail in ways of their own
            energy, forces = np.nan, np.zeros((len(atoms), 3))
        return energy, -forces, strain
