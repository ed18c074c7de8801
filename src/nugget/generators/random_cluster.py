"""Random compact clusters, grown atom by atom inside a stretched ball."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import fill_ball
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class RandomCluster(BaseGenerator):
    """Atoms in random order, uniform in an ellipsoid of random shape.

    `stretch` is the standard deviation of the logarithms of the axes: 0 gives round clusters only,
    larger values also flat and elongated ones.
    """

    name = "random_cluster"
    unsuited = "only a free cluster has no template and no cell"
    stretch: float = 0.25

    def suits(self, system: PlacedAtoms) -> bool:
        return system.free

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        x, present = system.start()
        log = self.stretch * rng.normal(size=3)
        order = rng.permutation(len(x))
        fits = fill_ball(rng, system, x, present, order, np.zeros(3), np.exp(log - log.mean()))
        yield Proposal(x) if fits else Failure("the atoms did not fit into the ball")
