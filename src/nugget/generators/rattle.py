"""Rattle: move some of a parent's atoms by random vectors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Floats
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.problem import Problem
from nugget.generators.sampling import in_ball
from nugget.registry import registered

CHUNK = 16  # places tried for each atom


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Rattle(BaseGenerator):
    """Each of a random share of the placed atoms moves within a ball.

    The ball's radius is drawn between `smallest` and `largest` (in bond lengths), the share between
    `share` and 1, anew for every structure: small and large disturbances both come up.
    """

    name: ClassVar[str] = "rattle"
    needs: ClassVar[int] = 1
    smallest: float = 0.1
    largest: float = 0.8
    share: float = 0.2

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        [x] = parents
        n = len(problem.symbols)
        present = np.ones(len(x), dtype=bool)
        radius = problem.bond * rng.uniform(self.smallest, self.largest)
        count = max(1, round(n * rng.uniform(self.share, 1.0)))
        movers = problem.n_fixed + rng.permutation(n)[:count]
        shifts = in_ball(rng, CHUNK * count, radius).reshape(count, CHUNK, 3)
        for i, shift in zip(movers, shifts, strict=True):
            points = x[i] + shift
            k = problem.fit(points, int(i), x, present, min(1, len(x) - 1))
            if k >= 0:
                x[i] = points[k]
        yield Proposal(x)
