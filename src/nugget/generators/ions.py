"""Cations and anions, and sites at which they alternate."""

from __future__ import annotations

import numpy as np
from ase.data import atomic_numbers

from nugget.generators.base import Rng
from nugget.generators.placement import directions
from nugget.numerics.arrays import Bools, Floats
from nugget.systems.placed_atoms import PlacedAtoms

#: Elements that are anions where other elements are present.
ANIONS = [atomic_numbers[s] for s in ("N", "O", "F", "P", "S", "Cl", "As", "Se", "Br", "Te", "I")]
#: Elements that form covalent bonds with both.
COVALENT = [atomic_numbers[s] for s in ("H", "C")]

SITES = 160  # random contact sites tried for each atom
NEAR, FAR = 0.8, 1.05  # distances of a site to its host, in units of the sum of covalent radii
LIKE = 1.15  # shortest distance of ions of equal sign, in units of the mean cation-anion distance


def is_anion(system: PlacedAtoms) -> Bools:
    """For every atom of the system."""
    return np.isin(system.numbers, ANIONS)


def is_ionic(system: PlacedAtoms) -> bool:
    """Whether cations and anions are to be placed, on no template or on one that has both."""
    anion, n = is_anion(system), system.n_fixed
    parts = [anion[n:], anion[:n]] if n else [anion]
    return all(part.any() and not part.all() for part in parts) and not bool(
        np.isin(system.numbers, COVALENT).any()
    )


def land_ion(
    rng: Rng, system: PlacedAtoms, x: Floats, present: Bools, i: int, landing: float
) -> bool:
    """Put ion i beside ions of the other sign, away from those of its own; False if impossible.

    A site with c neighbours of the other sign has the weight exp(c / landing). `x` and `present`
    change in place.
    """
    anion = is_anion(system)
    other, like = present & (anion != anion[i]), present & (anion == anion[i])
    if not other.any():
        return False
    radii = system.radii
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
