"""Insertion: add atoms to a structure that has fewer."""

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
from nugget.generators.surface_move import land
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Insert(CompositionGenerator):
    """Adds up to `most` atoms at contact sites; a site with c neighbours has weight exp(c/landing).

    Large values of `landing` are closer to a uniform choice.
    """

    name = "insert"
    most: int = 3
    landing: float = 1.0

    def takes(self, missing: int, surplus: int) -> bool:
        return 0 < missing <= self.most and surplus == 0

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Atoms]) -> Proposals:
        [parent] = parents
        missing, _ = composition_difference(system, parent)
        added = rng.permutation([z for z, n in missing.items() for _ in range(n)])
        numbers = np.concatenate([parent.numbers, added]).astype(np.int64)
        start = np.concatenate([parent.positions, np.zeros((len(added), 3))])
        x = in_system_order(system, numbers, start)
        present = in_system_order(system, numbers, _flags(len(parent), len(added)))[:, 0] > 0
        new = rng.permutation(np.flatnonzero(~present))
        if not present.any():
            yield Failure("there is no atom to add others to")
            return
        landed = all(land(rng, system, x, present, int(i), self.landing) for i in new)
        yield Proposal(x) if landed else Failure("there was no free site")


def _flags(present: int, absent: int) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.repeat([[1.0], [0.0]], [present, absent], axis=0)
