"""Relax many crystals in lockstep, atoms and cells together, on E + pV.

>>> results = relax_cells(images, surface, fmax=0.05, pressure=5 * GPa)

`surface` is any function of a batch that gives values, gradients with respect to positions and
derivatives with respect to strain, such as `potential.lcb(2.0).on_cells` for E − κσ.

The deformation gradient is F = exp(S) with S symmetric, so that no rotation is a coordinate. Atoms
are y with x = F y, cells h₀ with h = h₀F (rows are vectors). For a strain derivative T = ∂E/∂ε at
the current structure,

    ∂E/∂y = F ∂E/∂x,    ∂E/∂S = Q [Φ ∘ (Qᵀ T F⁻¹ Q)] Qᵀ,    Φ_ij = (e^λi − e^λj)/(λi − λj),

with S = QΛQᵀ (the Fréchet derivative of the exponential; ASE's FrechetCellFilter has the same
coordinates). The six numbers of S, times a length, follow the atoms as two more rows, which the
minimiser of `nugget.relax.lockstep` treats like two more atoms.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.relax.lockstep import Limits, initial_state
from nugget.relax.relaxation import Relaxed, as_results, minimise
from nugget.structures.batch import Batch, as_batch, offsets_of
from nugget.structures.neighbours import CellLists, Pairs
from nugget.structures.regions import CellLimits

ROWS = 2  # rows of the strain
LENGTH = 1.0  # Å: S is multiplied by LENGTH·√N, so that cell and atoms are about equally stiff
_I, _J = np.array([0, 1, 2, 1, 0, 0]), np.array([0, 1, 2, 2, 2, 1])  # Voigt order
_WEIGHT = np.array([1.0, 1.0, 1.0, np.sqrt(2.0), np.sqrt(2.0), np.sqrt(2.0)])


@dataclass(frozen=True, eq=False)
class CellCoordinates:
    """Coordinates relative to reference crystals: their atoms, then two strain rows each."""

    batch: Batch  # the reference
    offsets: Ints  # (B + 1,) rows of the vectors

    @classmethod
    def of(cls, images: Sequence[Atoms]) -> CellCoordinates:
        """With these crystals as references, where the strain is zero."""
        batch = as_batch(images)
        for s in np.flatnonzero(~batch.pbc.all(axis=1)):
            raise NuggetError(
                f"Structure {s} is not periodic along all three axes: its cell cannot be relaxed."
            )
        return cls(batch, offsets_of(batch.sizes + ROWS))

    @property
    def lengths(self) -> Floats:
        """Factors of S, (B,)."""
        return np.asarray(LENGTH * np.sqrt(self.batch.sizes))

    def start(self) -> list[Atoms]:
        """Structures with two more atoms, for the minimiser."""
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
        """The gradient with respect to the coordinates, from ∂E/∂x (N, 3) and ∂E/∂ε (B, 3, 3)."""
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


CellSurface = Callable[[Batch, Pairs | None], tuple[Floats, Floats, Floats]]

"""batch, neighbours -> values (B,), gradients ∂E/∂x (N, 3), strain derivatives ∂E/∂ε (B, 3, 3).

Neighbours are None unless `relax_cells` is called with a cutoff.
"""


FREE = CellLimits()


@dataclass(frozen=True, eq=False)
class CellEvaluator:
    """A surface plus pV and limits of the cell, as a function of the coordinates."""

    surface: CellSurface
    coordinates: CellCoordinates
    pressure: float = 0.0  # eV/Å³
    limits: CellLimits = FREE
    cell: bool = True  # False keeps the cells
    lists: CellLists | None = None

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]:
        here = self.coordinates.decode(positions, active)
        batch = here.batch
        pairs = None if self.lists is None else self.lists.pairs(batch, active)
        values, gradient, strain = self.surface(batch, pairs)
        work, by_strain = enthalpy_terms(batch, self.pressure)
        push, by_push = self.limits.push(batch)
        full = here.gradient(gradient, strain + by_strain + by_push)
        if not self.cell:
            rows = batch.offsets[1:] + ROWS * np.arange(len(batch))
            full[rows] = full[rows + 1] = 0.0
        return values + work + push, full


def enthalpy_terms(batch: Batch, pressure: float) -> tuple[Floats, Floats]:
    """pV (B,) and its strain derivative, pV·1."""
    work = pressure * np.abs(np.linalg.det(batch.cells))
    return work, work[:, None, None] * np.eye(3)


def relax_cells(
    images: Sequence[Atoms],
    surface: CellSurface,
    fmax: float = 0.05,
    steps: int = 200,
    *,
    pressure: float = 0.0,
    limits: CellLimits = FREE,
    cell: bool = True,
    cutoff: float | None = None,
    max_step: float = 0.2,
    memory: int = 20,
) -> list[Relaxed]:
    """Relax crystals until all forces and the cells' generalised forces are below `fmax` (eV/Å).

    The energy of a result is E + pV on the surface, `pressure` in eV/Å³. A cell's force is V·σ
    (p included) divided by LENGTH·√N. Results do not depend on the other crystals of the batch.
    With the surface's `cutoff`, lists of neighbours are kept from step to step.
    """
    if not images:
        return []
    for atoms in images:
        if atoms.constraints:
            raise NuggetError("A crystal with constraints cannot be relaxed with its cell.")
    coordinates = CellCoordinates.of(images)
    st = initial_state(coordinates.start(), None, memory, precondition_up_to=0)
    lists = None if cutoff is None else CellLists(cutoff)
    evaluate = CellEvaluator(surface, coordinates, pressure, limits, cell, lists)
    # Atoms may move far together with the cell, so that no displacement counts as running away.
    minimise(st, evaluate, Limits(fmax, steps, max_step, memory, runaway=1e6))
    x = st.x.copy()
    x[st.atom, st.axis] = st.here
    end = coordinates.decode(x, np.arange(len(images))).batch
    relaxed = []
    for image, positions, h in zip(images, end.split(end.positions), end.cells, strict=True):
        atoms = image.copy()
        atoms.set_cell(h)
        atoms.positions = positions
        relaxed.append(atoms)
    return as_results(relaxed, st)


def cells_on_calculator(calculator: Any) -> CellSurface:
    """An ASE calculator with stress, one structure after the other."""

    def surface(batch: Batch, pairs: Pairs | None = None) -> tuple[Floats, Floats, Floats]:
        values, gradients, strains = [], [], []
        for s, positions in enumerate(batch.split(batch.positions)):
            rows = slice(batch.offsets[s], batch.offsets[s + 1])
            atoms = Atoms(batch.numbers[rows], positions, cell=batch.cells[s], pbc=True)
            values.append(calculator.get_potential_energy(atoms))
            gradients.append(-calculator.get_forces(atoms))
            strains.append(strain_of(calculator.get_stress(atoms), atoms.get_volume()))
        return np.array(values), np.concatenate(gradients), np.array(strains)

    return surface


def strain_of(stress: Floats, volume: float) -> Floats:
    """∂E/∂ε (3, 3) from a stress in Voigt order."""
    xx, yy, zz, yz, xz, xy = np.asarray(stress, dtype=float) * volume
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
