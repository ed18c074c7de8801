"""Exchange: turn atoms of one element into another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget.generators.base import (
    CompositionGenerator,
    Proposal,
    Proposals,
    Rng,
    composition_difference,
    in_system_order,
)
from nugget.registry import registered
from nugget.systems.placed_atoms import PlacedAtoms


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Exchange(CompositionGenerator):
    """Turns up to `most` placed atoms of surplus elements into missing ones.

    Beside it, `permutation` swaps atoms of different elements within one composition.
    """

    name = "exchange"
    most: int = 3

    def takes(self, missing: int, surplus: int) -> bool:
        return missing == surplus and 0 < missing <= self.most

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Atoms]) -> Proposals:
        [parent] = parents
        missing, surplus = composition_difference(system, parent)
        numbers = parent.numbers.copy()
        changed: list[int] = []
        for z, n in surplus.items():
            own = np.flatnonzero(parent.numbers == z)
            changed += rng.permutation(own[own >= system.n_fixed])[:n].tolist()
        numbers[changed] = rng.permutation([z for z, n in missing.items() for _ in range(n)])
        yield Proposal(in_system_order(system, numbers, parent.positions))
