"""Supercells: repeat a parent, with random shifts that break its periodicity."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.generators.base import CrystalGenerator, CrystalProposal, CrystalProposals, Rng
from nugget.registry import registered
from nugget.structures.geometry import parts_of, random_multiple, repeated
from nugget.systems.base import Failure
from nugget.systems.crystal import Crystal


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Supercell(CrystalGenerator):
    """A random multiple of a parent within the largest cell, with atoms moved by `shift` Å."""

    name = "supercell"
    needs = 1
    unsuited = "there is no room for a second formula unit"
    shift: float = 0.3

    def suits(self, system: Crystal) -> bool:
        return system.units[1] >= 2 * system.units[0]

    def propose(self, rng: Rng, system: Crystal, parents: list[Atoms]) -> CrystalProposals:
        most = system.units[1] // system.units_of(parents[0])
        if most < 2:
            yield Failure("the parent has no room for more units")
            return
        supercell = repeated(parents[0], random_multiple(rng, int(rng.integers(2, most + 1))))
        cell, points, numbers = parts_of(supercell)
        moves = rng.normal(0.0, self.shift, (len(numbers), 3))
        yield CrystalProposal(cell, points + moves @ np.linalg.inv(cell), numbers)
