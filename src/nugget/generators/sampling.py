"""Random directions, points and rotations."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats


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
