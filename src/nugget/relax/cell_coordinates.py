"""Atoms and cell of a crystal as one vector, with the exact gradient of the energy by it.

The deformation gradient is F = exp(S) with S symmetric, so that no rotation is a coordinate. Atoms
are y with x = F y, cells h₀ with h = h₀F (rows are vectors). For a strain derivative T = ∂E/∂ε at
the current structure,

    ∂E/∂y = F ∂E/∂x,    ∂E/∂S = Q [Φ ∘ (Qᵀ T F⁻¹ Q)] Qᵀ,    Φ_ij = (e^λi − e^λj)/(λi − λj),

with S = QΛQᵀ (the Fréchet derivative of the exponential; ASE's FrechetCellFilter has the same
coordinates). The six numbers of S, times a length, stand behind the atoms as two more rows, so that
the minimiser of `_lockstep` takes them for two more atoms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.structures.batch import Batch, as_batch, offsets_of

ROWS = 2  # rows that the strain takes
LENGTH = 1.0  # Å: S is multiplied by LENGTH·√N, so that cell and atoms are about equally stiff
WALL = 10.0  # eV per atom and squared logarithm of a volume, or Å² of a thickness

_I, _J = np.array([0, 1, 2, 1, 0, 0]), np.array([0, 1, 2, 2, 2, 1])  # Voigt's order
_WEIGHT = np.array([1.0, 1.0, 1.0, np.sqrt(2.0), np.sqrt(2.0), np.sqrt(2.0)])


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


@dataclass(frozen=True, eq=False)
class CellCoordinates:
    """Crystals around a reference; a vector has the atoms of a crystal, then two strain rows."""

    batch: Batch  # the reference
    offsets: Ints  # (B + 1,) rows of the vectors

    @classmethod
    def of(cls, images: Sequence[Atoms]) -> CellCoordinates:
        """Around these crystals, where the strain is zero."""
        batch = as_batch(images)
        for s in np.flatnonzero(~batch.pbc.all(axis=1)):
            raise NuggetError(
                f"Structure {s} is not periodic along all three axes: its cell cannot be relaxed."
            )
        return cls(batch, offsets_of(batch.sizes + ROWS))

    @property
    def lengths(self) -> Floats:
        """What S is multiplied by, (B,)."""
        return np.asarray(LENGTH * np.sqrt(self.batch.sizes))

    def start(self) -> list[Atoms]:
        """Stand-ins with two atoms more, for the minimiser."""
        return [
            Atoms(
                numbers=np.r_[self.batch.numbers[a:b], 0, 0],
                positions=np.concatenate([self.batch.positions[a:b], np.zeros((ROWS, 3))]),
            )
            for a, b in zip(self.batch.offsets[:-1], self.batch.offsets[1:], strict=True)
        ]

    def rows(self, active: Ints) -> tuple[Ints, Ints]:
        """Rows of the atoms, and of the first strain rows, in a vector of all crystals."""
        atoms = [np.arange(self.offsets[b], self.offsets[b + 1] - ROWS) for b in active]
        return np.concatenate(atoms), self.offsets[active + 1] - ROWS

    def decode(self, x: Floats, active: Ints) -> Deformed:
        """The crystals `active` at the coordinates x of all of them."""
        atoms, first = self.rows(active)
        lengths = self.lengths[active]
        numbers = np.concatenate([x[first], x[first + 1]], axis=1) / _WEIGHT / lengths[:, None]
        s = np.zeros((len(active), 3, 3))
        s[:, _I, _J] = numbers
        s[:, _J, _I] = numbers
        values, q = np.linalg.eigh(s)
        f = (q * np.exp(values)[:, None, :]) @ q.transpose(0, 2, 1)
        chosen = self.batch.select(active)
        moved = Batch(
            positions=np.einsum("ni,nij->nj", x[atoms], f[chosen.owner]),
            numbers=chosen.numbers,
            offsets=chosen.offsets,
            cells=chosen.cells @ f,
            pbc=chosen.pbc,
        )
        return Deformed(moved, f, values, q, lengths)


@dataclass(frozen=True, eq=False)
class Deformed:
    """Crystals at some coordinates."""

    batch: Batch
    f: Floats  # (B, 3, 3)
    values: Floats  # (B, 3) eigenvalues of S
    q: Floats  # (B, 3, 3) its eigenvectors
    lengths: Floats  # (B,)

    def gradient(self, by_positions: Floats, by_strain: Floats) -> Floats:
        """∂E by the coordinates, from ∂E/∂x (N, 3) and ∂E/∂ε (B, 3, 3)."""
        batch, q = self.batch, self.q
        out = np.zeros((len(batch.positions) + ROWS * len(batch), 3))
        atoms = np.arange(len(batch.positions)) + ROWS * batch.owner
        out[atoms] = np.einsum("ni,nij->nj", by_positions, self.f[batch.owner])
        a, b = self.values[:, :, None], self.values[:, None, :]
        half = 0.5 * (a - b)  # (e^a − e^b)/(a − b) = e^((a+b)/2) sinh(h)/h
        small = np.abs(half) < 1e-6
        safe = np.where(small, 1.0, half)
        phi = np.exp(0.5 * (a + b)) * np.where(small, 1.0 + half**2 / 6, np.sinh(safe) / safe)
        turned = q.transpose(0, 2, 1) @ (by_strain @ np.linalg.inv(self.f)) @ q
        by_s = q @ (phi * turned) @ q.transpose(0, 2, 1)
        by_s = 0.5 * (by_s + by_s.transpose(0, 2, 1))
        six = by_s[:, _I, _J] * _WEIGHT / self.lengths[:, None]  # off the diagonal 2·S_ij/√2
        first = batch.offsets[1:] + ROWS * np.arange(len(batch))
        out[first], out[first + 1] = six[:, :3], six[:, 3:]
        return out
