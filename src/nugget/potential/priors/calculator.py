"""Any ASE calculator as a baseline."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from ase import Atoms

from nugget.potential.priors.base import FixedPrior, PriorValues
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs


@registered("prior")
@dataclass(frozen=True)
class CalculatorPrior(FixedPrior):
    """Any ASE calculator as a baseline: the process learns the difference to it (Δ-learning).

    `engine` is a name that `nugget engines` lists or `module:factory`; a name, unlike an object,
    can be written into a model file.
    """

    name: ClassVar[str] = "calculator"
    engine: str
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple((str(k), v) for k, v in self.options))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        from nugget.evaluation.engines import make_calculator

        calculator = make_calculator(self.engine, **dict(self.options))
        energies = np.empty(len(batch.positions))
        gradient = np.empty_like(batch.positions)
        strain = np.zeros((len(batch), 3, 3))
        for s in range(len(batch)):
            rows = slice(batch.offsets[s], batch.offsets[s + 1])
            atoms = Atoms(
                batch.numbers[rows], batch.positions[rows], cell=batch.cells[s], pbc=batch.pbc[s]
            )
            atoms.calc = calculator
            energies[rows] = atoms.get_potential_energy() / len(atoms)
            gradient[rows] = -atoms.get_forces()
            if batch.pbc[s].all():
                strain[s] = atoms.get_stress(voigt=False) * atoms.get_volume()
        return PriorValues(energies, gradient, strain)
