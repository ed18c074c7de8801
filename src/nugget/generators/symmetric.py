"""Random clusters with a point group's symmetry, atoms on special positions included.

Ground states of clusters are often symmetric, and random atoms hardly ever are. A structure made of
orbits has few free coordinates (the Au20 tetrahedron, Td = 4 + 4 + 12, has four), so a random one
is often in the right basin.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Floats
from nugget._compiled.jit import njit
from nugget.errors import NuggetError
from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.filling import compact_radius
from nugget.generators.orbit_plans import Plan, plan_orbits, sample_points
from nugget.generators.point_groups import NAMES, orbits
from nugget.generators.problem import Failure, Problem
from nugget.generators.sampling import random_rotation
from nugget.registry import registered

CHUNK = 48  # places tried for an orbit at a time


@njit
def fit_orbit(points: Floats, copies: Floats, radius: float, x: Floats, radii: Floats,
              min_ratio: float, bond_ratio: float, need: int) -> int:  # fmt: skip
    """The first point whose orbit has room among itself and the atoms x, or −1.

    By symmetry it is enough to look from one atom of the orbit; copies[0] is the identity.
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
    """A random group of `groups` that can make up the composition, random orbits and places.

    The group's name goes to `info["symmetry"]`. `noise` (Å) breaks the symmetry a little, for use
    with optimisers that would otherwise stay on a symmetric saddle point.
    """

    name: ClassVar[str] = "symmetric"
    unsuited: ClassVar[str] = (
        "only a free cluster of three or more atoms can have a point group here"
    )
    idle: ClassVar[str] = "none of the groups can make up this composition"
    groups: tuple[str, ...] = NAMES
    noise: float = 0.0
    tries: int = 60

    def __post_init__(self) -> None:
        unknown = [g for g in self.groups if g not in NAMES]
        if unknown or not self.groups:
            raise NuggetError(
                f"Point groups {unknown} are unknown; choose from {', '.join(NAMES)}."
            )

    def suits(self, problem: Problem) -> bool:
        return problem.free and len(problem.symbols) > 2

    def propose(self, rng: Rng, problem: Problem, parents: list[Floats]) -> Proposals:
        group = self.groups[int(rng.integers(len(self.groups)))]
        plan = plan_orbits(rng, problem.numbers, orbits(group))
        if plan is None:
            return
        x = self._place(rng, problem, plan)
        if x is None:
            yield Failure("the orbits found no room")
            return
        x = x @ random_rotation(rng).T + self.noise * rng.normal(size=x.shape)
        yield Proposal(x, {"symmetry": group})

    def _place(self, rng: Rng, problem: Problem, plan: Plan) -> Floats | None:
        """Positions in the problem's order, or None when an orbit does not fit."""
        radius = compact_radius(problem)
        limit = 2.0 * radius + problem.bond
        n = len(problem.numbers)
        x, z, radii = np.empty((n, 3)), np.empty(n, dtype=np.int64), np.empty(n)
        done = 0
        own = {int(z): float(r) for z, r in zip(problem.numbers, problem.radii, strict=True)}
        for k in rng.permutation(len(plan)):
            number, orbit = plan[k]
            need = 1 if done else 0
            while True:
                points = sample_points(rng, orbit, CHUNK if orbit.rank else 1, radius)
                at = fit_orbit(
                    points, orbit.copies, own[number], x[:done], radii[:done],
                    problem.min_ratio, problem.bond_ratio, need if orbit.rank else 0,
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
        ordered[np.argsort(problem.numbers, kind="stable")] = x[np.argsort(z, kind="stable")]
        return ordered
