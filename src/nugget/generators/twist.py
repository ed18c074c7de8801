"""Twist: turn one half of a cluster against the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget.generators._base import directions, draw_parents, rotation
from nugget.generators.problem import Failure, Problem


@dataclass(frozen=True)
class Twist:
    """Atoms above a random plane near the middle turn about the plane's normal.

    Halves that collide are moved apart by up to 0.3 bond lengths.
    """

    name: ClassVar[str] = "twist"
    needs: ClassVar[int] = 1
    smallest: float = 0.3  # radians
    tries: int = 12

    def suits(self, problem: Problem) -> bool:
        return problem.free and len(problem.symbols) > 4

    def __call__(
        self, rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        if not self.suits(problem):
            return Failure("only a free cluster of five or more atoms can be twisted")
        chosen = draw_parents(rng, problem, parents, 1)
        if isinstance(chosen, Failure):
            return chosen
        x = chosen[0] - chosen[0].mean(axis=0)
        result: Atoms | Failure = Failure("no tries were allowed")
        for _ in range(self.tries):
            axis = directions(rng, 1)[0]
            height = x @ axis
            upper = height > np.quantile(height, rng.uniform(0.25, 0.75))
            turn = rotation(axis, rng.uniform(self.smallest, 2 * np.pi - self.smallest))
            for gap in (0.0, 0.15, 0.3):
                turned = x @ turn.T + gap * problem.bond * axis
                child = np.where(upper[:, None], turned, x)
                result = problem.build(child, generator=self.name)
                if isinstance(result, Atoms):
                    return result
        return result
