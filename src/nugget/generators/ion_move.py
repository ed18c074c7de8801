"""Ion move: ions go to other sites among ions of the other sign."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.ions import is_anion, is_ionic, land_ion
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class IonMove(BaseGenerator):
    """Moves one to `most` anions, or as many cations, to other sites; see `ions.land_ion`.

    An ion with c neighbours of the other sign is selected with weight exp(−c / leaving).
    """

    name = "ion_move"
    needs = 1
    unsuited = "there are no cations and anions to place"
    most: int = 3
    leaving: float = 1.0
    landing: float = 0.6

    def suits(self, system: PlacedAtoms) -> bool:
        return is_ionic(system)

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        [x] = parents
        anion, fixed = is_anion(system), system.n_fixed
        sign = bool(rng.random() < 0.75)
        ions = fixed + np.flatnonzero(anion[fixed:] == sign)
        count = int(rng.integers(1, min(self.most, max(len(ions) - 1, 1)) + 1))
        weights = np.exp(-system.coordination(x)[ions] / self.leaving)
        movers = rng.choice(ions, size=count, replace=False, p=weights / weights.sum())
        present = np.ones(len(x), dtype=bool)
        present[movers] = False
        landed = all(land_ion(rng, system, x, present, int(i), self.landing) for i in movers)
        yield Proposal(x) if landed else Failure("there was no other site for an ion")
