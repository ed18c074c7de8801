"""Which orbits make up a composition, and random points that span them."""

from __future__ import annotations

from functools import cache

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.generators.point_groups import Orbit
from nugget.generators.sampling import directions


@cache
def reachable(sizes: tuple[int, ...], n: int) -> tuple[bool, ...]:
    """Which numbers up to n are sums of the given sizes."""
    ok = [True] + [False] * n
    for k in range(1, n + 1):
        ok[k] = any(s <= k and ok[k - s] for s in sizes)
    return tuple(ok)


Plan = list[tuple[int, Orbit]]


def plan_orbits(rng: np.random.Generator, numbers: Ints, kinds: tuple[Orbit, ...]) -> Plan | None:
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
