"""Placing atoms one by one at random points, each with room and bonded to what is there."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget.generators.problem import Problem
from nugget.generators.sampling import in_ball

CHUNK = 48  # points offered to an atom at a time
GROWTH = 1.05  # the ball grows by this when none of them fits


def compact_radius(problem: Problem) -> float:
    """Radius of the ball that the centres of all placed atoms fill when densely packed."""
    n = len(problem.symbols)
    return 0.5 * problem.bond * max((n / 0.74) ** (1 / 3) - 0.5, 0.3)


def fill_ball(
    rng: np.random.Generator, problem: Problem, x: Floats, present: Bools, order: Ints,
    centre: Floats, stretch: Floats,
) -> bool:  # fmt: skip
    """Put the atoms of `order` into a ball that grows when needed; False when one finds no room.

    `x` and `present` (which atoms are there already) are changed in place.
    """
    radius = compact_radius(problem)
    limit = 4.0 * radius + 2.0 * problem.bond
    bank = (in_ball(rng, CHUNK * len(order), 1.0) * stretch).reshape(len(order), CHUNK, 3)
    for i, unit in zip(order, bank, strict=True):
        need = 1 if present.any() else 0
        while True:
            points = centre + radius * unit
            k = problem.fit(points, int(i), x, present, need)
            if k >= 0:
                x[i] = points[k]
                present[i] = True
                break
            radius *= GROWTH
            if radius > limit:
                return False
            unit = in_ball(rng, CHUNK, 1.0) * stretch
    return True


def fill_region(
    rng: np.random.Generator, problem: Problem, x: Floats, present: Bools, order: Ints,
    chunk: int, chunks: int,
) -> bool:  # fmt: skip
    """The same anywhere in the problem's region; each atom gets `chunks` times `chunk` points."""
    assert problem.region is not None  # only a free cluster may lack one
    for i in order:
        for _ in range(chunks):
            points = problem.region.sample(rng, chunk)
            k = problem.fit(points, int(i), x, present, 1 if present.any() else 0)
            if k >= 0:
                x[i] = points[k]
                present[i] = True
                break
        else:
            return False
    return True
