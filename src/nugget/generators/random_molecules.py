"""Molecules at random positions and in random orientations, each in contact with another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import directions, random_rotation
from nugget.numerics.arrays import Bools, Floats
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.molecules import Unit
from nugget.systems.placed_atoms import PlacedAtoms

_TRIES = 30  # directions in which a molecule is placed
_NEAR, _FAR, _STEP = 1.0, 9.0, 0.2  # Å; distances from its host that are tried


def dock(
    rng: Rng, system: PlacedAtoms, unit: Unit, shape: Floats, x: Floats, present: Bools
) -> bool:
    """Place a unit of this shape next to a present atom, at the shortest valid distance.

    `x` and `present` are changed in place. Returns False if there is no room.
    """
    own, rules = system.n_fixed + unit.atoms, system.rules
    hosts = np.flatnonzero(present)
    for direction in directions(rng, _TRIES):
        turned = shape @ random_rotation(rng).T
        host = x[rng.choice(hosts)] if len(hosts) else np.zeros(3)
        for r in np.arange(_NEAR, _FAR, _STEP) if len(hosts) else [0.0]:
            at = host + r * direction + turned
            clear, touches = rules.has_room(own, at, x, present)
            if not clear:
                continue
            region = None if system.free else system.region
            if touches and (region is None or region.inside(at).all()):
                x[own], present[own] = at, True
                return True
            break
    return False


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class RandomMolecules(BaseGenerator):
    """Molecules in random order, each placed in contact with a random one that is present."""

    name = "random_molecules"
    whole_molecules = True

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        x, present = system.start()
        for k in rng.permutation(len(system.units)):
            unit = system.units[k]
            if not dock(rng, system, unit, unit.shape, x, present):
                yield Failure("there was no room for a molecule")
                return
        yield Proposal(x)
