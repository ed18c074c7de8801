"""Permutation: exchange atoms of different elements."""

from __future__ import annotations

from dataclasses import dataclass

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.placed_atoms import PlacedAtoms


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Permutation(BaseGenerator):
    """Exchanges one to `most` pairs of placed atoms of different elements, mostly few."""

    name = "permutation"
    needs = 1
    unsuited = "there is only one element to place"
    most: int = 5

    def suits(self, system: PlacedAtoms) -> bool:
        return len(set(system.symbols)) > 1

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        [x] = parents
        numbers = system.numbers
        moved: set[int] = set()
        for _ in range(min(int(rng.geometric(0.5)), self.most)):
            here = [k for k in range(system.n_fixed, len(x)) if k not in moved]
            if len({numbers[k] for k in here}) < 2:
                break
            i = int(rng.choice(here))
            j = int(rng.choice([k for k in here if numbers[k] != numbers[i]]))
            x[[i, j]] = x[[j, i]]
            moved |= {i, j}
        yield Proposal(x)
