"""Rattle: move some of a parent's atoms by random vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import in_ball
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.placed_atoms import PlacedAtoms

CHUNK = 16  # positions tried for each atom


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Rattle(BaseGenerator):
    """Moves a random share of the placed atoms within a ball.

    For each structure the radius is drawn between `smallest` and `largest` bond lengths, the share
    between `share` and 1, so that perturbations are small and large.
    """

    name = "rattle"
    needs = 1
    smallest: float = 0.1
    largest: float = 0.8
    share: float = 0.2

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        [x] = parents
        n = len(system.symbols)
        present = np.ones(len(x), dtype=bool)
        radius = system.bond * rng.uniform(self.smallest, self.largest)
        count = max(1, round(n * rng.uniform(self.share, 1.0)))
        movers = system.n_fixed + rng.permutation(n)[:count]
        shifts = in_ball(rng, CHUNK * count, radius).reshape(count, CHUNK, 3)
        for i, shift in zip(movers, shifts, strict=True):
            points = x[i] + shift
            k = system.fit(points, int(i), x, present, min(1, len(x) - 1))
            if k >= 0:
                x[i] = points[k]
        yield Proposal(x)
