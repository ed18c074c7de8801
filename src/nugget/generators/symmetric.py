"""Random clusters with the symmetry of a point group, special positions included.

Ground states of clusters are often symmetric, random structures hardly ever. A structure that
consists of orbits has few free coordinates (the Au20 tetrahedron, Td = 4 + 4 + 12, has four), so
that a random one often lies in the basin of the ground state.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.errors import NuggetError
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import compact_radius, random_rotation
from nugget.generators.point_groups import NAMES, Plan, orbits, plan_orbits, sample_points
from nugget.numerics.arrays import Floats
from nugget.numerics.jit import njit
from nugget.registry import registered
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms

CHUNK = 48  # positions tried for an orbit at a time


@njit
def fit_orbit(points: Floats, copies: Floats, radius: float, x: Floats, radii: Floats,
              min_ratio: float, bond_ratio: float, need: int) -> int:  # fmt: skip
    """The first point whose orbit is valid with itself and the atoms x, or −1.

    By symmetry it suffices to check one atom of the orbit; copies[0] is the identity.
    """
    for k in range(len(points)):
        p = points[k]
        bonds = 0
        for m in range(1, len(copies) + len(x)):
            r2 = 0.0
            reach = 2.0 * radius
            for c in range(3):
                if m < len(copies):
                    other = copies[m, c, 0] * p[0] + copies[m, c, 1] * p[1] + copies[m, c, 2] * p[2]
                else:
                    other = x[m - len(copies), c]
                r2 += (other - p[c]) * (other - p[c])
            if m >= len(copies):
                reach = radius + radii[m - len(copies)]
            if r2 < min_ratio * min_ratio * reach * reach:
                bonds = -1
                break
            if r2 <= bond_ratio * bond_ratio * reach * reach:
                bonds += 1
        if bonds >= need:
            return k
    return -1


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Symmetric(BaseGenerator):
    """A random group of `groups` that admits the composition, random orbits and positions.

    The name of the group goes to `info["symmetry"]`. `noise` (Å) breaks the symmetry slightly, for
    optimisers that would otherwise stay at a symmetric saddle point.
    """

    name = "symmetric"
    unsuited = "only a free cluster of three or more atoms can have a point group here"
    idle = "none of the groups admits this composition"
    groups: tuple[str, ...] = NAMES
    noise: float = 0.0
    tries: int = 60

    def __post_init__(self) -> None:
        unknown = [g for g in self.groups if g not in NAMES]
        if unknown or not self.groups:
            raise NuggetError(
                f"Point groups {unknown} are unknown; choose from {', '.join(NAMES)}."
            )

    def suits(self, system: PlacedAtoms) -> bool:
        return system.free and len(system.symbols) > 2

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        group = self.groups[int(rng.integers(len(self.groups)))]
        plan = plan_orbits(rng, system.numbers, orbits(group))
        if plan is None:
            return
        x = self._place(rng, system, plan)
        if x is None:
            yield Failure("there was no room for the orbits")
            return
        x = x @ random_rotation(rng).T + self.noise * rng.normal(size=x.shape)
        yield Proposal(x, {"symmetry": group})

    def _place(self, rng: Rng, system: PlacedAtoms, plan: Plan) -> Floats | None:
        """Positions in the order of the system, or None if an orbit does not fit."""
        radius = compact_radius(system)
        limit = 2.0 * radius + system.bond
        n = len(system.numbers)
        x, z, radii = np.empty((n, 3)), np.empty(n, dtype=np.int64), np.empty(n)
        done = 0
        own = {int(z): float(r) for z, r in zip(system.numbers, system.radii, strict=True)}
        for k in rng.permutation(len(plan)):
            number, orbit = plan[k]
            need = 1 if done else 0
            while True:
                points = sample_points(rng, orbit, CHUNK if orbit.rank else 1, radius)
                at = fit_orbit(
                    points, orbit.copies, own[number], x[:done], radii[:done],
                    system.min_ratio, system.bond_ratio, need if orbit.rank else 0,
                )  # fmt: skip
                if at >= 0:
                    break
                radius *= 1.06
                if radius > limit or orbit.rank == 0:
                    return None
            x[done : done + orbit.size] = orbit.copies @ points[at]
            z[done : done + orbit.size] = number
            radii[done : done + orbit.size] = own[number]
            done += orbit.size
        ordered = np.empty_like(x)
        ordered[np.argsort(system.numbers, kind="stable")] = x[np.argsort(z, kind="stable")]
        return ordered
