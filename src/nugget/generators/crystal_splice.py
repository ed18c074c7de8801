"""Crystal splice: combine slabs of two crystals in fractional coordinates."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.generators.base import CrystalGenerator, CrystalProposal, CrystalProposals, Rng
from nugget.generators.random_crystal import place
from nugget.registry import registered
from nugget.structures.geometry import parts_of, scaled_to
from nugget.systems.crystal import Crystal


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class CrystalSplice(CrystalGenerator):
    """Atoms below a random height from one parent, above it from the other, in a mixed cell.

    The child has as many atoms as the first parent: surplus atoms are removed, missing ones are
    placed at random.
    """

    name = "crystal_splice"
    needs = 2

    def suits(self, system: Crystal) -> bool:
        return system.units[1] * len(system.numbers) > 1

    def propose(self, rng: Rng, system: Crystal, parents: list[Atoms]) -> CrystalProposals:
        (cell, a, numbers), (other, b, others) = (parts_of(atoms) for atoms in parents)
        axis, share = int(rng.integers(3)), rng.uniform(0.2, 0.8)
        a, b = (a + rng.random(3)) % 1.0, (b + rng.random(3)) % 1.0
        if len(others) != len(numbers):  # a slab with the same number of atoms
            b[:, axis] *= len(others) / len(numbers)
        mixed = (1 - share) * other + share * cell if len(others) == len(numbers) else cell
        if abs(np.linalg.det(mixed)) > 0.3 * abs(np.linalg.det(cell)):
            cell = mixed
        cell = scaled_to(cell, system.draw_volume(rng, len(numbers)))
        below, above = a[:, axis] < share, (b[:, axis] >= share) & (b[:, axis] < 1.0)
        points = np.concatenate([a[below], b[above]])
        species = np.concatenate([numbers[below], others[above]])
        keep, missing = [], []
        for z in system.order:
            wanted, there = int(np.sum(numbers == z)), np.flatnonzero(species == z)
            keep += list(rng.permutation(there)[:wanted])
            missing += [z] * (wanted - min(wanted, len(there)))
        kept = np.array(keep, dtype=np.int64)
        full = np.concatenate([species[kept], np.array(missing, dtype=np.int64)])
        yield CrystalProposal(cell, place(rng, system, cell, full, points[kept]), full)
