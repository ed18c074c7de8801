"""Strain: another shape of a known crystal's cell, its atoms moved a little too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget.generators.base import Rng
from nugget.generators.crystal import Crystal
from nugget.generators.crystal_base import (
    CrystalGenerator,
    CrystalProposal,
    CrystalProposals,
    parts_of,
    scaled_to,
)
from nugget.registry import registered


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Strain(CrystalGenerator):
    """A random symmetric strain of up to `largest`, and random shifts of up to `shift` Å.

    Both are drawn anew for every crystal: small and large disturbances both come up.
    """

    name: ClassVar[str] = "strain"
    needs: ClassVar[int] = 1
    largest: float = 0.35
    shift: float = 0.6

    def propose(self, rng: Rng, problem: Crystal, parents: list[Atoms]) -> CrystalProposals:
        cell, points, numbers = parts_of(parents[0])
        size = rng.uniform(0.05, self.largest)
        strain = rng.normal(0.0, size, (3, 3))
        bent = cell @ (np.eye(3) + 0.5 * (strain + strain.T))
        if abs(np.linalg.det(bent)) > 0.2 * abs(np.linalg.det(cell)):
            cell = scaled_to(bent, problem.draw_volume(rng, len(numbers)))
        moves = rng.normal(0.0, rng.uniform(0.0, self.shift), (len(numbers), 3))
        yield CrystalProposal(cell, points + moves @ np.linalg.inv(cell), numbers)
