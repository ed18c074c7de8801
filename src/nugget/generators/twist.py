"""Twist: turn one half of a cluster against the other."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Floats
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.problem import Problem
from nugget.generators.sampling import directions, rotation
from nugget.registry import registered


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Twist(BaseGenerator):
    """Atoms above a random plane near the middle turn about the plane's normal.

    Halves that collide are moved apart by up to 0.3 bond lengths.
    """

    name: ClassVar[str] = "twist"
    needs: ClassVar[int] = 1
    unsuited: ClassVar[str] = "only a free cluster of five or more atoms can be twisted"
    smallest: float = 0.3  # radians
    tries: int = 12

    def suits(self, problem: Problem) -> bool:
        return problem.free and len(problem.symbols) > 4

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        x = parents[0] - parents[0].mean(axis=0)
        axis = directions(rng, 1)[0]
        height = x @ axis
        upper = height > np.quantile(height, rng.uniform(0.25, 0.75))
        turn = rotation(axis, rng.uniform(self.smallest, 2 * np.pi - self.smallest))
        for gap in (0.0, 0.15, 0.3):
            turned = x @ turn.T + gap * problem.bond * axis
            yield Proposal(np.where(upper[:, None], turned, x))
