"""Surface move: take loosely bound atoms and put them where they get more neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget.generators._base import directions, draw_parents
from nugget.generators.problem import Failure, Problem

SITES = 160  # random contact points looked at per atom
ROOM = 0.9  # a site keeps this distance (sum of covalent radii) to all atoms


@dataclass(frozen=True)
class SurfaceMove:
    """One to `most` atoms of low coordination go to one of the best of many random contact sites.

    An atom with c neighbours leaves with weight exp(−c / leaving) and lands on a site where it gets
    c with weight exp(c / landing).
    """

    name: ClassVar[str] = "surface_move"
    needs: ClassVar[int] = 1
    most: int = 3
    leaving: float = 1.0
    landing: float = 0.4
    tries: int = 20

    def suits(self, problem: Problem) -> bool:
        return len(problem.numbers) > 3

    def __call__(
        self, rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        chosen = draw_parents(rng, problem, parents, 1)
        if isinstance(chosen, Failure):
            return chosen
        n, fixed = len(problem.symbols), problem.n_fixed
        weights = np.exp(-problem.coordination(chosen[0])[fixed:] / self.leaving)
        result: Atoms | Failure = Failure("no tries were allowed")
        for _ in range(self.tries):
            x = chosen[0].copy()
            present = np.ones(len(x), dtype=bool)
            count = int(rng.integers(1, min(self.most, max(n - 1, 1)) + 1))
            movers = fixed + rng.choice(n, size=count, replace=False, p=weights / weights.sum())
            present[movers] = False
            if not all(self._land(rng, problem, x, present, int(i)) for i in movers):
                result = Failure("no free surface site was found")
                continue
            result = problem.build(x, generator=self.name)
            if isinstance(result, Atoms):
                return result
        return result

    def _land(
        self,
        rng: np.random.Generator,
        problem: Problem,
        x: np.ndarray,
        present: np.ndarray,
        i: int,
    ) -> bool:
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
