"""Alternating growth: cations beside anions and anions beside cations."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from ase.data import atomic_numbers

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import directions
from nugget.numerics.arrays import Bools, Floats
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms

#: Elements that are anions where other elements are present.
ANIONS = [atomic_numbers[s] for s in ("N", "O", "F", "P", "S", "Cl", "As", "Se", "Br", "Te", "I")]
#: Elements that form covalent bonds with both.
COVALENT = [atomic_numbers[s] for s in ("H", "C")]

SITES = 160  # random contact sites tried for each ion
NEAR, FAR = 0.8, 1.05  # distances of a site to its host, in units of the sum of covalent radii
LIKE = 1.15  # shortest distance of ions of equal sign, in units of the mean cation-anion distance


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Alternating(BaseGenerator):
    """Adds ions in random order, each bonded to ions of the other sign and away from its own.

    A site with c neighbours has the weight exp(c / landing). Every structure draws `landing`
    between `compact` and `open`; a large value gives rings and chains.
    """

    name = "alternating"
    unsuited = "there are no cations and anions to place"
    compact: float = 0.3
    open: float = 1.5

    def suits(self, system: PlacedAtoms) -> bool:
        anion, n = is_anion(system), system.n_fixed
        parts = [anion[n:], anion[:n]] if n else [anion]
        return all(part.any() and not part.all() for part in parts) and not bool(
            np.isin(system.numbers, COVALENT).any()
        )

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        x, present = system.start()
        anion, landing = is_anion(system), rng.uniform(self.compact, self.open)
        waiting = [int(i) for i in system.n_fixed + rng.permutation(len(system.symbols))]
        if not present.any():
            first = waiting.pop(0)
            x[first] = 0.0 if system.region is None else system.region.sample(rng, 1)[0]
            present[first] = True
        while waiting:
            i = waiting[0]
            opposite = next((j for j in waiting if anion[j] != anion[i]), i)
            landed = (j for j in (i, opposite) if land_ion(rng, system, x, present, j, landing))
            placed = next(landed, None)
            if placed is None:
                yield Failure("there was no site for an ion")
                return
            waiting.remove(placed)
        yield Proposal(x)


def is_anion(system: PlacedAtoms) -> Bools:
    """For every atom of the system."""
    return np.isin(system.numbers, ANIONS)


def land_ion(
    rng: Rng, system: PlacedAtoms, x: Floats, present: Bools, i: int, landing: float
) -> bool:
    """Put ion i beside ions of the other sign, away from those of its own; False if impossible.

    `x` and `present` change in place.
    """
    anion, radii = is_anion(system), system.radii
    other, like = present & (anion != anion[i]), present & (anion == anion[i])
    if not other.any():
        return False
    hosts = rng.choice(np.flatnonzero(other), size=SITES)
    reach = (radii[hosts] + radii[i]) * rng.uniform(NEAR, FAR, size=SITES)
    points = x[hosts] + directions(rng, SITES) * reach[:, None]
    bonds = system.bonds(points, i, x, other, NEAR)
    apart = LIKE * (radii[anion].mean() + radii[~anion].mean()) / (2 * radii[i])
    allowed = (bonds > 0) & (system.bonds(points, i, x, like, apart) >= 0)
    if not system.free and system.region is not None:
        allowed &= system.region.inside(points)
    good = np.flatnonzero(allowed)
    if len(good) == 0:
        return False
    w = np.exp((bonds[good] - bonds[good].max()) / landing)
    x[i] = points[rng.choice(good, p=w / w.sum())]
    present[i] = True
    return True
