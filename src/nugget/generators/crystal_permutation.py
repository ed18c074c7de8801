"""Crystal permutation: exchange atoms of different elements."""

from __future__ import annotations

from dataclasses import dataclass

from ase import Atoms

from nugget.generators.base import CrystalGenerator, CrystalProposal, CrystalProposals, Rng
from nugget.registry import registered
from nugget.structures.geometry import parts_of
from nugget.systems.crystal import Crystal


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class CrystalPermutation(CrystalGenerator):
    """A random arrangement of the elements on the parent's sites, or a single exchange."""

    name = "crystal_permutation"
    needs = 1
    unsuited = "there is only one element"

    def suits(self, system: Crystal) -> bool:
        return len(system.count) > 1

    def propose(self, rng: Rng, system: Crystal, parents: list[Atoms]) -> CrystalProposals:
        cell, points, numbers = parts_of(parents[0])
        shuffled = rng.permutation(numbers)
        if rng.random() < 0.5:  # a single exchange
            shuffled = numbers.copy()
            i = int(rng.integers(len(numbers)))
            j = int(rng.choice([k for k in range(len(numbers)) if numbers[k] != numbers[i]]))
            shuffled[[i, j]] = shuffled[[j, i]]
        yield CrystalProposal(cell, points, shuffled)
