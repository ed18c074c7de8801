"""Removal: take atoms away from a structure that has more."""

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
class Remove(CompositionGenerator):
    """Removes up to `most` placed atoms of the surplus elements, each with the same probability."""

    name = "remove"
    most: int = 3

    def takes(self, missing: int, surplus: int) -> bool:
        return missing == 0 and 0 < surplus <= self.most

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Atoms]) -> Proposals:
        [parent] = parents
        _, surplus = composition_difference(system, parent)
        kept = np.ones(len(parent), dtype=bool)
        for z, n in surplus.items():
            own = np.flatnonzero(parent.numbers == z)
            kept[rng.permutation(own[own >= system.n_fixed])[:n]] = False
        yield Proposal(in_system_order(system, parent.numbers[kept], parent.positions[kept]))
