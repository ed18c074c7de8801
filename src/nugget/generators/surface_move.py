"""Surface move: take loosely bound atoms and put them where they get more neighbours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Bools, Floats
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.problem import Failure, Problem
from nugget.generators.sampling import directions
from nugget.registry import registered

SITES = 160  # random contact points looked at per atom
ROOM = 0.9  # a site keeps this distance (sum of covalent radii) to all atoms


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class SurfaceMove(BaseGenerator):
    """One to `most` atoms of low coordination go to one of the best of many random contact sites.

    An atom with c neighbours leaves with weight exp(−c / leaving) and lands on a site where it gets
    c with weight exp(c / landing).
    """

    name: ClassVar[str] = "surface_move"
    needs: ClassVar[int] = 1
    unsuited: ClassVar[str] = "there are too few atoms to move one over the others"
    most: int = 3
    leaving: float = 1.0
    landing: float = 0.4

    def suits(self, problem: Problem) -> bool:
        return len(problem.numbers) > 3

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        [x] = parents
        n, fixed = len(problem.symbols), problem.n_fixed
        weights = np.exp(-problem.coordination(x)[fixed:] / self.leaving)
        present = np.ones(len(x), dtype=bool)
        count = int(rng.integers(1, min(self.most, max(n - 1, 1)) + 1))
        movers = fixed + rng.choice(n, size=count, replace=False, p=weights / weights.sum())
        present[movers] = False
        if all(self._land(rng, problem, x, present, int(i)) for i in movers):
            yield Proposal(x)
        else:
            yield Failure("no free surface site was found")

    def _land(self, rng: Rng, problem: Problem, x: Floats, present: Bools, i: int) -> bool:
        """Move atom i to a contact site, not back to where it was."""
        hosts = rng.choice(np.flatnonzero(present), size=SITES)
        reach = (problem.radii[hosts] + problem.radii[i]) * rng.uniform(ROOM, 1.1, size=SITES)
        points = x[hosts] + directions(rng, SITES) * reach[:, None]
        bonds = problem.bonds(points, i, x, present, ROOM)
        away = np.linalg.norm(points - x[i], axis=1) > 0.5 * problem.bond
        if not problem.free and problem.region is not None:
            away &= problem.region.inside(points)
        good = np.flatnonzero((bonds > 0) & away)
        if len(good) == 0:
            return False
        w = np.exp((bonds[good] - bonds[good].max()) / self.landing)
        x[i] = points[rng.choice(good, p=w / w.sum())]
        present[i] = True
        return True
