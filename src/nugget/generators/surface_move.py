"""Surface move: move atoms of low coordination to sites with more neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import directions
from nugget.numerics.arrays import Bools, Floats
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms

SITES = 160  # random contact sites tried for each atom
ROOM = 0.9  # shortest distance of a site to all atoms, in units of the sum of covalent radii


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class SurfaceMove(BaseGenerator):
    """Moves one to `most` atoms of low coordination to random contact sites of high coordination.

    An atom with c neighbours is selected with weight exp(−c / leaving), a site that gives it c
    neighbours with weight exp(c / landing).
    """

    name = "surface_move"
    needs = 1
    unsuited = "there are too few atoms to move one over the others"
    most: int = 3
    leaving: float = 1.0
    landing: float = 0.4

    def suits(self, system: PlacedAtoms) -> bool:
        return len(system.numbers) > 3

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        [x] = parents
        n, fixed = len(system.symbols), system.n_fixed
        weights = np.exp(-system.coordination(x)[fixed:] / self.leaving)
        present = np.ones(len(x), dtype=bool)
        count = int(rng.integers(1, min(self.most, max(n - 1, 1)) + 1))
        movers = fixed + rng.choice(n, size=count, replace=False, p=weights / weights.sum())
        present[movers] = False
        landed = all(self._land(rng, system, x, present, int(i)) for i in movers)
        yield Proposal(x) if landed else Failure("there was no free surface site")

    def _land(self, rng: Rng, system: PlacedAtoms, x: Floats, present: Bools, i: int) -> bool:
        """Move atom i to a contact site away from its present one."""
        return land(rng, system, x, present, i, self.landing, x[i].copy())


def land(
    rng: Rng, system: PlacedAtoms, x: Floats, present: Bools, i: int, landing: float,
    away_from: Floats | None = None,
) -> bool:  # fmt: skip
    """Put atom i on a contact site of present atoms; False if there is none.

    A site with c neighbours has the weight exp(c / landing). `x` and `present` change in place.
    """
    hosts = rng.choice(np.flatnonzero(present), size=SITES)
    reach = (system.radii[hosts] + system.radii[i]) * rng.uniform(ROOM, 1.1, size=SITES)
    points = x[hosts] + directions(rng, SITES) * reach[:, None]
    bonds = system.bonds(points, i, x, present, ROOM)
    allowed = bonds > 0
    if away_from is not None:
        allowed &= np.linalg.norm(points - away_from, axis=1) > 0.5 * system.bond
    if not system.free and system.region is not None:
        allowed &= system.region.inside(points)
    good = np.flatnonzero(allowed)
    if len(good) == 0:
        return False
    w = np.exp((bonds[good] - bonds[good].max()) / landing)
    x[i] = points[rng.choice(good, p=w / w.sum())]
    present[i] = True
    return True
