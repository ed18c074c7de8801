"""Random compact clusters, grown atom by atom inside a stretched ball."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget.generators._base import in_ball
from nugget.generators._validity import Floats, Ints
from nugget.generators.problem import Failure, Problem

CHUNK = 48  # points offered to an atom at a time
GROWTH = 1.05  # the ball grows by this when none of them fits


def compact_radius(problem: Problem, n: int | None = None) -> float:
    """Radius of the ball that n densely packed atoms' centres fill."""
    n = len(problem.symbols) if n is None else n
    return 0.5 * problem.bond * max((n / 0.74) ** (1 / 3) - 0.5, 0.3)


def fill_ball(
    rng: np.random.Generator, problem: Problem, x: Floats, present: NDArray[np.bool_],
    order: Ints, centre: Floats, stretch: Floats, radius: float,
) -> bool:  # fmt: skip
    """Put the atoms of `order` into the ball one by one, each bonded to what is there."""
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


@dataclass(frozen=True)
class RandomCluster:
    """Atoms in random order, uniform in an ellipsoid of random shape.

    `stretch` is the spread of the logarithms of the axes: 0 gives round clusters only, larger
    values flat and long ones too.
    """

    name: ClassVar[str] = "random_cluster"
    needs: ClassVar[int] = 0
    stretch: float = 0.25
    tries: int = 20

    def suits(self, problem: Problem) -> bool:
        return problem.free

    def __call__(
        self, rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure:
        radius = compact_radius(problem)
        result: Atoms | Failure = Failure("no tries were allowed")
        for _ in range(self.tries):
            x, present = problem.start()
            log = self.stretch * rng.normal(size=3)
            order = rng.permutation(len(x))
            if not fill_ball(
                rng, problem, x, present, order, np.zeros(3), np.exp(log - log.mean()), radius
            ):
                result = Failure("the atoms did not fit into the ball")
                continue
            result = problem.build(x, generator=self.name)
            if isinstance(result, Atoms):
                return result
        return result
