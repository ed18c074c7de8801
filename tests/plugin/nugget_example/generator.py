"""Swings half of a cluster around an axis through its centre."""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget.generators import BaseGenerator, Proposal


@dataclass(frozen=True, kw_only=True)
class Swing(BaseGenerator):
    name: ClassVar[str] = "swing"
    needs: ClassVar[int] = 1

    largest: float = 0.7

    def suits(self, problem):
        return problem.free

    def propose(self, rng, problem, parents):
        [x] = parents
        x -= x.mean(axis=0)
        angle = rng.uniform(0.1, self.largest)
        half = x[:, 2] > 0
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        x[half, :2] = x[half, :2] @ turn.T
        yield Proposal(x + rng.normal(0, 0.05, x.shape))
