"""Random compact clusters, grown atom by atom inside a stretched ball."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Floats
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.filling import fill_ball
from nugget.generators.problem import Failure, Problem
from nugget.registry import registered


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class RandomCluster(BaseGenerator):
    """Atoms in random order, uniform in an ellipsoid of random shape.

    `stretch` is the spread of the logarithms of the axes: 0 gives round clusters only, larger
    values flat and long ones too.
    """

    name: ClassVar[str] = "random_cluster"
    unsuited: ClassVar[str] = "there is a template or a cell, so this is no free cluster"
    stretch: float = 0.25

    def suits(self, problem: Problem) -> bool:
        return problem.free

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        x, present = problem.start()
        log = self.stretch * rng.normal(size=3)
        order = rng.permutation(len(x))
        if fill_ball(rng, problem, x, present, order, np.zeros(3), np.exp(log - log.mean())):
            yield Proposal(x)
        else:
            yield Failure("the atoms did not fit into the ball")
