"""Random directions, points and rotations, and the random placement of atoms one by one."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from nugget.generators.base import Proposal
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.systems.base import Failure
from nugget.systems.placed_atoms import PlacedAtoms


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


CHUNK = 48  # points tried for an atom at a time
GROWTH = 1.05  # factor by which the ball grows when no point is valid


def compact_radius(system: PlacedAtoms) -> float:
    """Radius of the ball that contains the centres of all placed atoms in a dense packing."""
    n = len(system.symbols)
    return 0.5 * system.bond * max((n / 0.74) ** (1 / 3) - 0.5, 0.3)


def joined_halves(
    system: PlacedAtoms, child: Floats, lifted: Bools, up: Floats, apart: float, unit: float = 1.0
) -> Iterator[Proposal | Failure]:
    """Proposals with the placed atoms of `child`, unless all come from one parent.

    The lifted half of a cluster is moved along `up` in steps, by up to `apart` times `unit` (Å).
    """
    if lifted.all() or not lifted.any():
        yield Failure("the cut gave no new structure")
        return
    x, _ = system.start()
    for step in range(5 if system.free else 1):
        x[system.n_fixed :] = child
        x[system.n_fixed :][lifted] += up * (step / 4 * apart * unit)
        yield Proposal(x)


def fill_ball(
    rng: np.random.Generator, system: PlacedAtoms, x: Floats, present: Bools, order: Ints,
    centre: Floats, stretch: Floats,
) -> bool:  # fmt: skip
    """Place the atoms of `order` in a ball that grows when needed; False if one does not fit.

    Each atom is bonded to one that is present. `x` and `present` are changed in place.
    """
    radius = compact_radius(system)
    limit = 4.0 * radius + 2.0 * system.bond
    bank = (in_ball(rng, CHUNK * len(order), 1.0) * stretch).reshape(len(order), CHUNK, 3)
    for i, unit in zip(order, bank, strict=True):
        need = 1 if present.any() else 0
        while True:
            points = centre + radius * unit
            k = system.fit(points, int(i), x, present, need)
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
    rng: np.random.Generator, system: PlacedAtoms, x: Floats, present: Bools, order: Ints,
    chunk: int, chunks: int,
) -> bool:  # fmt: skip
    """Place atoms as `fill_ball`, in the region; `chunks` times `chunk` points for each atom."""
    assert system.region is not None  # only free clusters may have none
    for i in order:
        for _ in range(chunks):
            points = system.region.sample(rng, chunk)
            k = system.fit(points, int(i), x, present, 1 if present.any() else 0)
            if k >= 0:
                x[i] = points[k]
                present[i] = True
                break
        else:
            return False
    return True
