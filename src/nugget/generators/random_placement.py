"""Random placement in the problem's region: a box, a sphere, above a slab, in a bulk cell."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nugget._compiled.arrays import Floats
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.filling import fill_region
from nugget.generators.problem import Failure, Problem
from nugget.registry import registered

CHUNK = 32  # points offered to an atom at a time


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class RandomPlacement(BaseGenerator):
    """Atoms in random order, uniform in the region, each bonded to the template or another atom."""

    name: ClassVar[str] = "random_placement"
    unsuited: ClassVar[str] = "the problem has no region to place atoms in"
    chunks: int = 60

    def suits(self, problem: Problem) -> bool:
        return problem.region is not None

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        x, present = problem.start()
        order = problem.n_fixed + rng.permutation(len(problem.symbols))
        if fill_region(rng, problem, x, present, order, CHUNK, self.chunks):
            yield Proposal(x)
        else:
            yield Failure("no room was found for an atom in the region")
