"""Twist: rotate one half of a cluster against the other."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import directions, rotation
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.placed_atoms import PlacedAtoms


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Twist(BaseGenerator):
    """Rotates the atoms above a random plane near the centre about the normal of the plane.

    Halves that overlap are moved apart by up to 0.3 bond lengths.
    """

    name = "twist"
    needs = 1
    unsuited = "only a free cluster of five or more atoms can be twisted"
    smallest: float = 0.3  # radians
    tries: int = 12

    def suits(self, system: PlacedAtoms) -> bool:
        return system.free and len(system.symbols) > 4

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        x = parents[0] - parents[0].mean(axis=0)
        axis = directions(rng, 1)[0]
        height = x @ axis
        upper = height > np.quantile(height, rng.uniform(0.25, 0.75))
        turn = rotation(axis, rng.uniform(self.smallest, 2 * np.pi - self.smallest))
        for gap in (0.0, 0.15, 0.3):
            turned = x @ turn.T + gap * system.bond * axis
            yield Proposal(np.where(upper[:, None], turned, x))
