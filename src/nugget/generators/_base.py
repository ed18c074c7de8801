"""What a generator is, and small tools that several of them share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Protocol

import numpy as np
from ase import Atoms

from nugget.generators._validity import Floats
from nugget.generators.problem import Failure, Problem


class Generator(Protocol):
    """Makes one new structure from random numbers and, for some, known structures.

    `needs` is how many parents it takes; it draws them from the given pool. A generator never
    changes its parents, and gives a valid structure (see `Problem`) or a `Failure` with a reason,
    after a bounded number of tries.
    """

    name: ClassVar[str]
    needs: ClassVar[int]

    def suits(self, problem: Problem) -> bool:
        """Whether it makes sense for this problem at all."""
        ...

    def __call__(
        self, rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms] = ()
    ) -> Atoms | Failure: ...


def draw_parents(
    rng: np.random.Generator, problem: Problem, parents: Sequence[Atoms], n: int
) -> list[Floats] | Failure:
    """Positions of n different parents out of the pool."""
    if len(parents) < n:
        return Failure(f"needs {n} known structures, there are {len(parents)}")
    chosen = [parents[k] for k in rng.choice(len(parents), size=n, replace=False)]
    for atoms in chosen:
        if not np.array_equal(atoms.numbers, problem.numbers):
            return Failure("a parent's atoms are not those of the problem, in the same order")
    return [atoms.positions.copy() for atoms in chosen]


def directions(rng: np.random.Generator, n: int) -> Floats:
    """n random unit vectors."""
    v = rng.normal(size=(n, 3))
    return np.asarray(v / np.linalg.norm(v, axis=1, keepdims=True))


def in_ball(rng: np.random.Generator, n: int, radius: float) -> Floats:
    """n points, uniform in a ball around the origin."""
    return directions(rng, n) * (radius * rng.random((n, 1)) ** (1 / 3))


def rotation(axis: Floats, angle: float) -> Floats:
    """Rotation matrix R about a unit vector (Rodrigues); use as x @ R.T."""
    k = np.array([[0, -axis[2], axis[1]], [axis[2], 0, -axis[0]], [-axis[1], axis[0], 0]])
    return np.asarray(np.eye(3) + np.sin(angle) * k + (1 - np.cos(angle)) * (k @ k))


def random_rotation(rng: np.random.Generator) -> Floats:
    """A rotation, uniform over all of them (from a random unit quaternion)."""
    w, x, y, z = (q := rng.normal(size=4)) / np.linalg.norm(q)
    return np.array(
        [
            [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
            [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
            [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
        ]
    )
