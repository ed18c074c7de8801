"""Random crystals: a random cell with atoms placed one by one at random."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase import Atoms
from ase.geometry import minkowski_reduce

from nugget.generators.base import CrystalGenerator, CrystalProposal, CrystalProposals, Rng
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered
from nugget.structures.geometry import distances, radii_of, random_cell
from nugget.systems.crystal import Crystal

POINTS = 24  # positions tried for each atom


def place(rng: Rng, system: Crystal, cell: Floats, numbers: Ints, points: Floats) -> Floats:
    """Fractional coordinates of `numbers`, of which the first are at `points`.

    Each atom takes the first random position that is valid, or else the one with the most room.
    """
    radii = radii_of(numbers)
    out = np.empty((len(numbers), 3))
    out[: len(points)] = points
    for k in range(len(points), len(numbers)):
        places = rng.random((POINTS, 3))
        if k == 0:
            out[0] = places[0]
            continue
        apart = distances(places, out[:k], cell)
        room = (apart / (radii[k] + radii[:k])).min(axis=1) / system.min_ratio
        fits = np.flatnonzero(room >= 1.0)
        out[k] = places[fits[0] if len(fits) else int(np.argmax(room))]
    return out


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class RandomCrystal(CrystalGenerator):
    """A cell of random shape and volume with atoms at random positions."""

    name = "random_crystal"

    def propose(self, rng: Rng, system: Crystal, parents: list[Atoms]) -> CrystalProposals:
        numbers = system.numbers_of(system.draw_units(rng))
        cell = random_cell(rng, system.draw_volume(rng, len(numbers)))
        cell = np.asarray(minkowski_reduce(cell)[0])
        order = rng.permutation(len(numbers))
        points = place(rng, system, cell, numbers[order], np.zeros((0, 3)))
        yield CrystalProposal(cell, points, numbers[order])
