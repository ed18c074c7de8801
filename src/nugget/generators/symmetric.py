"""Random clusters with a point group's symmetry, atoms on special positions included.

Ground states of clusters are often symmetric, and random atoms hardly ever are. A structure made of
orbits has few free coordinates (the Au20 tetrahedron, Td = 4 + 4 + 12, has four), so a random one
is often in the right basin.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget._compiled.jit import njit
from nugget.errors import NuggetError
from nugget.generators._base import directions, random_rotation
from nugget.generators._validity import Floats
from nugget.generators.point_groups import NAMES, Orbit, operations, orbits
from nugget.generators.problem import Failure, Problem
from nugget.generators.random_cluster import compact_radius

CHUNK = 48


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
                r2 += (other - p[c]) ** 2
            if m >= len(copies):
                reach = radius + radii[m - len(copies)]
            if r2 < (min_ratio * reach) ** 2:
                bonds = -1
                break
            if r2 <= (bond_ratio * reach) ** 2:
                bonds += 1
        if bonds >= need:
            return k
    return -1


@cache
def reachable(sizes: tuple[int, ...], n: int) -> tuple[bool, ...]:
    """Which numbers up to n are sums of the given sizes."""
    ok = [True] + [False] * n
    for k in range(1, n + 1):
        ok[k] = any(s <= k and ok[k - s] for s in sizes)
    return tuple(ok)


Plan = list[tuple[int, Orbit]]


def plan_orbits(
    rng: np.random.Generator, numbers: np.ndarray, kinds: tuple[Orbit, ...]
) -> Plan | None:
    """A random way to make up the composition of whole orbits: (atomic number, orbit) pairs."""
    many = [o for o in kinds if o.rank > 0]
    sizes = tuple(o.size for o in many)
    elements, counts = np.unique(numbers, return_counts=True)
    ok = reachable(sizes, int(counts.max()))
    centres: list[int | None] = [None] if all(ok[n] for n in counts) else []
    if len(many) < len(kinds):
        for s, n in enumerate(counts):
            if all(ok[m - (t == s)] for t, m in enumerate(counts)) and n > 0:
                centres.append(s)
    if not centres:
        return None
    centre = centres[int(rng.integers(len(centres)))]
    plan: Plan = []
    for s, (z, n) in enumerate(zip(elements, counts, strict=True)):
        left = int(n)
        if s == centre:
            plan.append((int(z), next(o for o in kinds if o.rank == 0)))
            left -= 1
        while left:
            fits = [o for o in many if o.size <= left and ok[left - o.size]]
            # Positions with more freedom come up more often: there are more such structures.
            tickets = [o for o in fits for _ in range(o.rank)]
            orbit = tickets[int(rng.integers(len(tickets)))]
            plan.append((int(z), orbit))
            left -= orbit.size
    return plan


def sample_points(rng: np.random.Generator, orbit: Orbit, n: int, radius: float) -> Floats:
    """n points of the orbit's subspace, uniform within the radius."""
    if orbit.rank == 0:
        return np.zeros((n, 3))
    if orbit.rank == 3:
        v = directions(rng, n)
    else:
        v = rng.normal(size=(n, orbit.rank))
        v = (v / np.linalg.norm(v, axis=1, keepdims=True)) @ orbit.basis
    return v * (radius * rng.random((n, 1)) ** (1 / orbit.rank))


@dataclass(frozen=True)
class Symmetric:
    """A random group of `groups` that can make up the composition, random orbits and places.

    The group's name goes to `info["symmetry"]`. `noise` (Å) breaks the symmetry a little, for use
    with optimisers that would otherwise stay on a symmetric saddle point.
    """

    name: ClassVar[str] = "symmetric"
    needs: ClassVar[int] = 0
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

    def __call__(
        self, rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        if not self.suits(problem):
            return Failure("only a free cluster of three or more atoms can have a point group here")
        result: Atoms | Failure = Failure("none of the groups can make up this composition")
        for _ in range(self.tries):
            group = self.groups[int(rng.integers(len(self.groups)))]
            plan = plan_orbits(rng, problem.numbers, orbits(group))
            if plan is None:
                continue
            x = self._place(rng, problem, plan)
            if x is None:
                result = Failure("the orbits found no room")
                continue
            x = x @ random_rotation(rng).T + self.noise * rng.normal(size=x.shape)
            result = problem.build(x, generator=self.name, symmetry=group)
            if isinstance(result, Atoms):
                return result
        return result

    def _place(self, rng: np.random.Generator, problem: Problem, plan: Plan) -> Floats | None:
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


def is_symmetric(x: Floats, numbers: np.ndarray, group: str, tol: float = 1e-6) -> bool:
    """Whether each operation of the group, about the mean position, permutes like atoms."""
    x = x - x.mean(axis=0)
    for op in operations(group):
        d = np.linalg.norm((x @ op.T)[:, None] - x[None], axis=2)
        d[numbers[:, None] != numbers[None, :]] = np.inf
        if not (d.min(axis=1) < tol).all():
            return False
    return True
