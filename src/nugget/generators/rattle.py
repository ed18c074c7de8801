"""Rattle: move some of a parent's atoms by random vectors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget.generators._base import draw_parents, in_ball
from nugget.generators.problem import Failure, Problem

CHUNK = 16


@dataclass(frozen=True)
class Rattle:
    """Each of a random share of the placed atoms moves within a ball.

    The ball's radius is drawn between `smallest` and `largest` (in bond lengths), the share between
    `share` and 1, anew for every structure: small and large disturbances both come up.
    """

    name: ClassVar[str] = "rattle"
    needs: ClassVar[int] = 1
    smallest: float = 0.1
    largest: float = 0.8
    share: float = 0.2
    tries: int = 20

    def suits(self, problem: Problem) -> bool:
        return True

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
            present = np.ones(len(x), dtype=bool)
            radius = problem.bond * rng.uniform(self.smallest, self.largest)
            count = max(1, round(n * rng.uniform(self.share, 1.0)))
            movers = fixed + rng.permutation(n)[:count]
            shifts = in_ball(rng, CHUNK * count, radius).reshape(count, CHUNK, 3)
            for i, shift in zip(movers, shifts, strict=True):
                points = x[i] + shift
                k = problem.fit(points, int(i), x, present, min(1, len(x) - 1))
                if k >= 0:
                    x[i] = points[k]
            result = problem.build(x, generator=self.name)
            if isinstance(result, Atoms):
                return result
        return result
