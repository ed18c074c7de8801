"""One energy per element."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from ase.data import atomic_numbers, chemical_symbols

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.potential.priors.base import PriorValues
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs


@registered("prior")
@dataclass(frozen=True)
class SpeciesEnergies:
    """One energy per element, by least squares on the energies per atom.

    Total energies carry large constants (about −108 eV per gold atom in GFN1-xTB) that tell nothing
    about structure.
    """

    name: ClassVar[str] = "species"
    learns: ClassVar[bool] = True
    energies: tuple[tuple[str, float], ...] | None = None

    def __post_init__(self) -> None:
        if self.energies is not None:
            plain = tuple((str(symbol), float(energy)) for symbol, energy in self.energies)
            object.__setattr__(self, "energies", plain)

    def fit(self, batch: Batch, energies: Floats) -> SpeciesEnergies:
        if self.energies is not None:
            return self
        elements = np.unique(batch.numbers)
        counts = np.zeros((len(batch), len(elements)))
        np.add.at(counts, (batch.owner, np.searchsorted(elements, batch.numbers)), 1.0)
        per_atom = 1.0 / batch.sizes
        # Where composition never varies, lstsq takes the smallest solution: as good as any.
        solution = np.linalg.lstsq(counts * per_atom[:, None], energies * per_atom, rcond=1e-10)[0]
        named = zip((chemical_symbols[z] for z in elements), solution.tolist(), strict=True)
        return SpeciesEnergies(tuple(named))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        if self.energies is None:
            raise NuggetError("The species energies are not known yet: fit the prior first.")
        energies = self.table[batch.numbers]
        if math.isnan(energies.sum()):
            atom = int(np.argmax(np.isnan(energies)))
            s = batch.first + int(batch.owner[atom])
            raise NuggetError(
                f"Structure {s}: no training structure contains "
                f"{chemical_symbols[batch.numbers[atom]]}, so its energy is unknown; "
                "add such structures to the training set."
            )
        return PriorValues(energies)

    @cached_property
    def table(self) -> Floats:
        """Energy by atomic number; NaN where it is not known."""
        table = np.full(len(chemical_symbols), np.nan)
        for symbol, value in self.energies or ():
            table[atomic_numbers[symbol]] = value
        return table
