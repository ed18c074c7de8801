"""Permutation in crystals: exchange atoms of different elements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from ase import Atoms

from nugget.generators.base import Rng
from nugget.generators.crystal import Crystal
from nugget.generators.crystal_base import (
    CrystalGenerator,
    CrystalProposal,
    CrystalProposals,
    parts_of,
)
from nugget.registry import registered


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class CrystalPermutation(CrystalGenerator):
    """Any other arrangement of the elements on a parent's sites."""

    name: ClassVar[str] = "crystal_permutation"
    needs: ClassVar[int] = 1
    unsuited: ClassVar[str] = "there is only one element"

    def fits(self, problem: Crystal) -> bool:
        return len(problem.count) > 1

    def propose(self, rng: Rng, problem: Crystal, parents: list[Atoms]) -> CrystalProposals:
        cell, points, numbers = parts_of(parents[0])
        shuffled = rng.permutation(numbers)
        if rng.random() < 0.5:  # a single exchange
            shuffled = numbers.copy()
            i = int(rng.integers(len(numbers)))
            j = int(rng.choice([k for k in range(len(numbers)) if numbers[k] != numbers[i]]))
            shuffled[[i, j]] = shuffled[[j, i]]
        yield CrystalProposal(cell, points, shuffled)
