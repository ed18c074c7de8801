"""Random crystals: a random cell, atoms one after the other where there is room."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms
from ase.geometry import minkowski_reduce

from nugget._compiled.arrays import Floats, Ints
from nugget.generators.base import Rng
from nugget.generators.crystal import Crystal
from nugget.generators.crystal_base import (
    CrystalGenerator,
    CrystalProposal,
    CrystalProposals,
    random_cell,
)
from nugget.registry import registered
from nugget.structures.bonds import radii_of
from nugget.structures.cells import distances

POINTS = 24  # places tried for each atom


def place(rng: Rng, problem: Crystal, cell: Floats, numbers: Ints, points: Floats) -> Floats:
    """Fractional coordinates of `numbers`, of which the first are at `points` already.

    An atom takes the first of some random places with room, or else the one with most room.
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
        room = (apart / (radii[k] + radii[:k])).min(axis=1) / problem.min_ratio
        fits = np.flatnonzero(room >= 1.0)
        out[k] = places[fits[0] if len(fits) else int(np.argmax(room))]
    return out


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class RandomCrystal(CrystalGenerator):
    """A cell of random shape and sensible volume with atoms at random places."""

    name: ClassVar[str] = "random_crystal"

    def propose(self, rng: Rng, problem: Crystal, parents: list[Atoms]) -> CrystalProposals:
        numbers = problem.numbers_of(problem.draw_units(rng))
        cell = random_cell(rng, problem.draw_volume(rng, len(numbers)))
        cell = np.asarray(minkowski_reduce(cell)[0])
        order = rng.permutation(len(numbers))
        points = place(rng, problem, cell, numbers[order], np.zeros((0, 3)))
        yield CrystalProposal(cell, points, numbers[order])
