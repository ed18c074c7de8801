"""Melt: keep the core of a parent and place its outer atoms again."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import directions, fill_ball, fill_region
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms

CHUNK = 96  # points of the region tried for an atom at a time


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Melt(BaseGenerator):
    """The outermost atoms on one random side (or all around) are removed and placed again.

    In clusters they are placed in a ball around the core; on a template or in a periodic cell,
    anywhere in the region.
    """

    name = "melt"
    needs = 1
    unsuited = "there are too few atoms to keep some and place others again"
    share: tuple[float, float] = (0.2, 0.6)

    def suits(self, system: PlacedAtoms) -> bool:
        return len(system.symbols) > 2

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        [x] = parents
        fixed = system.n_fixed
        arm = x[fixed:] - x[fixed:].mean(axis=0)
        side = directions(rng, 1)[0]
        outer = np.linalg.norm(arm, axis=1) if rng.random() < 0.5 else arm @ side
        count = max(1, round(len(arm) * rng.uniform(*self.share)))
        loose = rng.permutation(fixed + np.argsort(-outer, kind="stable")[:count])
        present = np.ones(len(x), dtype=bool)
        present[loose] = False
        if system.free:
            centre = x[present].mean(axis=0)
            fits = fill_ball(rng, system, x, present, loose, centre, np.ones(3))
        else:
            fits = fill_region(rng, system, x, present, loose, CHUNK, 10)
        yield Proposal(x) if fits else Failure("there was no room for the removed atoms")
