"""Strain: deform the cell of a parent and move its atoms a little."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.generators.base import CrystalGenerator, CrystalProposal, CrystalProposals, Rng
from nugget.registry import registered
from nugget.structures.geometry import parts_of, scaled_to
from nugget.systems.crystal import Crystal


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Strain(CrystalGenerator):
    """A random symmetric strain of up to `largest`, and random shifts of up to `shift` Å.

    Both sizes are drawn for each crystal, so that perturbations are small and large.
    """

    name = "strain"
    needs = 1
    largest: float = 0.35
    shift: float = 0.6

    def propose(self, rng: Rng, system: Crystal, parents: list[Atoms]) -> CrystalProposals:
        cell, points, numbers = parts_of(parents[0])
        size = rng.uniform(0.05, self.largest)
        strain = rng.normal(0.0, size, (3, 3))
        bent = cell @ (np.eye(3) + 0.5 * (strain + strain.T))
        if abs(np.linalg.det(bent)) > 0.2 * abs(np.linalg.det(cell)):
            cell = scaled_to(bent, system.draw_volume(rng, len(numbers)))
        moves = rng.normal(0.0, rng.uniform(0.0, self.shift), (len(numbers), 3))
        yield CrystalProposal(cell, points + moves @ np.linalg.inv(cell), numbers)
