"""Melt: keep the well-bound part of a parent and place the rest of its atoms anew."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.filling import fill_ball, fill_region
from nugget.generators.problem import Failure, Problem
from nugget.generators.sampling import directions
from nugget.registry import registered

CHUNK = 96  # points of the region offered to an atom at a time


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Melt(BaseGenerator):
    """The outermost atoms on one random side (or of the whole shell) are taken off and put back.

    Clusters are refilled inside a ball around what was kept; on a template or in a periodic cell
    the atoms go anywhere in the region.
    """

    name: ClassVar[str] = "melt"
    needs: ClassVar[int] = 1
    unsuited: ClassVar[str] = "there are too few atoms to keep some and melt others"
    share: tuple[float, float] = (0.2, 0.6)

    def suits(self, problem: Problem) -> bool:
        return len(problem.symbols) > 2

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        [x] = parents
        fixed = problem.n_fixed
        arm = x[fixed:] - x[fixed:].mean(axis=0)
        side = directions(rng, 1)[0]
        outer = np.linalg.norm(arm, axis=1) if rng.random() < 0.5 else arm @ side
        count = max(1, round(len(arm) * rng.uniform(*self.share)))
        loose = rng.permutation(fixed + np.argsort(-outer, kind="stable")[:count])
        present = np.ones(len(x), dtype=bool)
        present[loose] = False
        if self._refill(rng, problem, x, present, loose):
            yield Proposal(x)
        else:
            yield Failure("the molten atoms found no room")

    def _refill(self, rng: Rng, problem: Problem, x: Floats, present: Bools, loose: Ints) -> bool:
        if problem.free:
            centre = x[present].mean(axis=0)
            return fill_ball(rng, problem, x, present, loose, centre, np.ones(3))
        return fill_region(rng, problem, x, present, loose, CHUNK, 10)
