"""Permutation: exchange atoms of different elements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget.generators._base import draw_parents
from nugget.generators.problem import Failure, Problem


@dataclass(frozen=True)
class Permutation:
    """One to `most` pairs of unlike placed atoms change places (small numbers more often)."""

    name: ClassVar[str] = "permutation"
    needs: ClassVar[int] = 1
    most: int = 5
    tries: int = 20

    def suits(self, problem: Problem) -> bool:
        return len(set(problem.symbols)) > 1

    def __call__(
        self, rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        if not self.suits(problem):
            return Failure("there is only one element to place")
        chosen = draw_parents(rng, problem, parents, 1)
        if isinstance(chosen, Failure):
            return chosen
        fixed, numbers = problem.n_fixed, problem.numbers
        result: Atoms | Failure = Failure("no tries were allowed")
        for _ in range(self.tries):
            x = chosen[0].copy()
            count = min(int(rng.geometric(0.5)), self.most)
            moved: set[int] = set()
            for _ in range(count):
                here = [k for k in range(fixed, len(x)) if k not in moved]
                if len({numbers[k] for k in here}) < 2:
                    break
                i = int(rng.choice(here))
                j = int(rng.choice([k for k in here if numbers[k] != numbers[i]]))
                x[[i, j]] = x[[j, i]]
                moved |= {i, j}
            result = problem.build(x, generator=self.name)
            if isinstance(result, Atoms):
                return result
        return result
