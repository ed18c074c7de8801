"""Melt: keep the well-bound part of a parent and place the rest of its atoms anew."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget.generators._base import directions, draw_parents
from nugget.generators.problem import Failure, Problem
from nugget.generators.random_cluster import compact_radius, fill_ball

CHUNK = 96


@dataclass(frozen=True)
class Melt:
    """The outermost atoms on one random side (or of the whole shell) are taken off and put back.

    Clusters are refilled inside a ball around what was kept; on a template or in a periodic cell
    the atoms go anywhere in the region.
    """

    name: ClassVar[str] = "melt"
    needs: ClassVar[int] = 1
    share: tuple[float, float] = (0.2, 0.6)
    tries: int = 20

    def suits(self, problem: Problem) -> bool:
        return len(problem.symbols) > 2

    def __call__(
        self, rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        chosen = draw_parents(rng, problem, parents, 1)
        if isinstance(chosen, Failure):
            return chosen
        n, fixed = len(problem.symbols), problem.n_fixed
        result: Atoms | Failure = Failure("no tries were allowed")
        for _ in range(self.tries):
            x = chosen[0].copy()
            arm = x[fixed:] - x[fixed:].mean(axis=0)
            side = directions(rng, 1)[0]
            outer = np.linalg.norm(arm, axis=1) if rng.random() < 0.5 else arm @ side
            count = max(1, round(n * rng.uniform(*self.share)))
            loose = fixed + np.argsort(-outer, kind="stable")[:count]
            loose = rng.permutation(loose)
            present = np.ones(len(x), dtype=bool)
            present[loose] = False
            if not self._refill(rng, problem, x, present, loose):
                result = Failure("the molten atoms found no room")
                continue
            result = problem.build(x, generator=self.name)
            if isinstance(result, Atoms):
                return result
        return result

    def _refill(
        self,
        rng: np.random.Generator,
        problem: Problem,
        x: np.ndarray,
        present: np.ndarray,
        loose: np.ndarray,
    ) -> bool:
        if problem.free:
            centre = x[present].mean(axis=0)
            radius = compact_radius(problem)
            return fill_ball(rng, problem, x, present, loose, centre, np.ones(3), radius)
        assert problem.region is not None
        for i in loose:
            for _ in range(10):
                points = problem.region.sample(rng, CHUNK)
                k = problem.fit(points, int(i), x, present, 1 if present.any() else 0)
                if k >= 0:
                    x[i], present[i] = points[k], True
                    break
            else:
                return False
        return True
