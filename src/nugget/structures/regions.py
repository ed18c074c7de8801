"""Regions of space that atoms may fill, and the soft walls that keep them there.

A wall is a half parabola, E = ½ k d², with d the distance that an atom sticks out. Value and
gradient are continuous, so a quasi-Newton method crosses it like any other part of the surface.
(Clipping positions back into a box would spoil the curvature pairs of L-BFGS.) An atom that is
pulled outwards by a force F comes to rest F/k outside.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats
from nugget.structures.batch import Batch

Vector = tuple[float, float, float]
WALL = 10.0  # eV per atom and squared logarithm of a volume, or Å² of a thickness
STIFFNESS = 10.0  # eV/Å²: about as stiff as a metal bond, so the wall costs no extra steps


def _positive(name: str, value: float) -> None:
    if not (np.isfinite(value) and value > 0):
        raise NuggetError(f"The {name} of a confinement is {value!r}; give a positive number.")


@dataclass(frozen=True)
class Sphere:
    """All atoms within `radius` Å of `centre` (None: the mean position of the confined atoms).

    The first `skip` atoms (a template) do not feel the wall.
    """

    radius: float
    centre: Vector | None = None
    stiffness: float = STIFFNESS
    skip: int = 0

    def __post_init__(self) -> None:
        _positive("radius", self.radius)
        _positive("stiffness", self.stiffness)

    @property
    def middle(self) -> Floats | None:
        """The centre; None when it follows the atoms."""
        return None if self.centre is None else np.asarray(self.centre, dtype=float)

    def planes(self, positions: Floats) -> tuple[int, Floats, Floats]:
        """(kind, centre, radius and padding) in the form that the compiled loop reads."""
        inside = positions[self.skip :]
        centre = self.middle
        if centre is None:
            centre = inside.mean(axis=0) if len(inside) else np.zeros(3)
        shape = np.zeros((3, 4))
        shape[0, 0] = self.radius
        return 1, centre, shape

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        """n points, uniform in the sphere (around the origin when there is no centre)."""
        v = rng.normal(size=(n, 3))
        v *= (self.radius * rng.random(n) ** (1 / 3) / np.linalg.norm(v, axis=1))[:, None]
        return v + (np.zeros(3) if self.centre is None else np.asarray(self.centre))

    def inside(self, positions: Floats, margin: float = 0.0) -> Bools:
        """Which of these atoms (template not among them) are inside."""
        if len(positions) == 0:
            return np.zeros(0, dtype=bool)
        centre = positions.mean(axis=0) if self.centre is None else np.asarray(self.centre)
        d2 = ((positions - centre) ** 2).sum(axis=1)
        return np.asarray(d2 <= (self.radius + margin) ** 2)


@dataclass(frozen=True)
class Box:
    """A parallelepiped: `origin` and three edge vectors (rows of `cell`), with walls on all faces.

    Axes marked in `periodic` have no walls. The first `skip` atoms (a template) feel none.
    """

    origin: Vector
    cell: tuple[Vector, Vector, Vector]
    periodic: tuple[bool, bool, bool] = (False, False, False)
    stiffness: float = STIFFNESS
    skip: int = 0

    def __post_init__(self) -> None:
        _positive("stiffness", self.stiffness)
        if abs(np.linalg.det(np.asarray(self.cell, dtype=float))) < 1e-9:
            raise NuggetError("The confinement box has no volume; give three independent edges.")

    @property
    def middle(self) -> Floats:
        """The centre."""
        return np.asarray(self.origin) + 0.5 * np.asarray(self.cell, dtype=float).sum(axis=0)

    def _inverse(self) -> Floats:
        return np.asarray(np.linalg.inv(np.asarray(self.cell, dtype=float)))

    def planes(self, positions: Floats) -> tuple[int, Floats, Floats]:
        """(kind, origin, per axis the unit normal and the height; height 0 means no wall)."""
        inverse = self._inverse()
        lengths = np.linalg.norm(inverse, axis=0)
        shape = np.zeros((3, 4))
        shape[:, :3] = (inverse / lengths).T
        shape[:, 3] = np.where(self.periodic, 0.0, 1.0 / lengths)
        return 2, np.asarray(self.origin, dtype=float), shape

    def sample(self, rng: np.random.Generator, n: int) -> Floats:
        """n points, uniform in the box."""
        points: Floats = np.asarray(self.origin) + rng.random((n, 3)) @ np.asarray(self.cell)
        return points

    def inside(self, positions: Floats, margin: float = 0.0) -> Bools:
        """Which of these atoms (template not among them) are inside."""
        inverse = self._inverse()
        fractional = (positions - np.asarray(self.origin)) @ inverse
        slack = margin * np.linalg.norm(inverse, axis=0)
        outside = (fractional < -slack) | (fractional > 1 + slack)
        return np.asarray(~(outside & ~np.asarray(self.periodic)).any(axis=1))


Confinement = Sphere | Box


@dataclass(frozen=True)
class CellLimits:
    """Soft walls: volume per atom (Å³) within a range, and every thickness at least so much (Å)."""

    volume: tuple[float, float] = (0.0, np.inf)
    thickness: float = 0.0

    def push(self, batch: Batch) -> tuple[Floats, Floats]:
        """Energies (B,) of the walls and their strain derivatives (B, 3, 3)."""
        sizes = batch.sizes.astype(float)
        inverse = np.linalg.inv(batch.cells)  # columns are reciprocal vectors
        per_atom = np.abs(np.linalg.det(batch.cells)) / sizes
        low, high = self.volume
        out = np.log(per_atom / np.clip(per_atom, low, high))
        energy = 0.5 * WALL * sizes * out**2
        strain = (WALL * sizes * out)[:, None, None] * np.eye(3)
        # The thickness is 1/|b|, and d(1/|b|) = (1/|b|) n·ε·n with n = b/|b|.
        thick = 1.0 / np.linalg.norm(inverse, axis=1)
        normal = inverse * thick[:, None, :]
        lacking = np.maximum(self.thickness - thick, 0.0)
        energy += 0.5 * WALL * sizes * np.sum(lacking**2, axis=1)
        weight = -WALL * sizes[:, None] * lacking * thick
        strain += np.einsum("bk,bik,bjk->bij", weight, normal, normal)
        return energy, strain
