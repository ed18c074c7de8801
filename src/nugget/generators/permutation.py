"""Permutation: exchange atoms of different elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nugget._compiled.arrays import Floats
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.problem import Problem
from nugget.registry import registered


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Permutation(BaseGenerator):
    """One to `most` pairs of unlike placed atoms change places (small numbers more often)."""

    name: ClassVar[str] = "permutation"
    needs: ClassVar[int] = 1
    unsuited: ClassVar[str] = "there is only one element to place"
    most: int = 5

    def suits(self, problem: Problem) -> bool:
        return len(set(problem.symbols)) > 1

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        [x] = parents
        numbers = problem.numbers
        moved: set[int] = set()
        for _ in range(min(int(rng.geometric(0.5)), self.most)):
            here = [k for k in range(problem.n_fixed, len(x)) if k not in moved]
            if len({numbers[k] for k in here}) < 2:
                break
            i = int(rng.choice(here))
            j = int(rng.choice([k for k in here if numbers[k] != numbers[i]]))
            x[[i, j]] = x[[j, i]]
            moved |= {i, j}
        yield Proposal(x)
