"""Relax many crystals in lockstep, atoms and cells together, on E + pV.

>>> results = relax_cells(images, surface, fmax=0.05, pressure=5 * GPa)

`surface` is any function of a batch that gives values, gradients by positions and derivatives by
strain: `potential.lcb(2.0).on_cells` for E − κσ, `cells_on_calculator` for an ASE calculator.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.relax._state import initial_state
from nugget.relax.cell_coordinates import CellCoordinates, CellLimits
from nugget.relax.run import Relaxed, as_results, minimise
from nugget.structures.batch import Batch
from nugget.structures.cell_lists import CellLists
from nugget.structures.neighbours import Pairs

CellSurface = Callable[[Batch, Pairs | None], tuple[Floats, Floats, Floats]]
"""batch, neighbours -> values (B,), gradients by positions (N, 3), derivatives by strain (B, 3, 3).

Neighbours are given when the surface's cutoff is known; a surface without one takes no notice.
"""

FREE = CellLimits()


@dataclass(frozen=True, eq=False)
class CellEvaluator:
    """A surface plus pV and walls, as a function of the coordinates of atoms and cells."""

    surface: CellSurface
    coordinates: CellCoordinates
    pressure: float = 0.0  # eV/Å³
    limits: CellLimits = FREE
    cell: bool = True  # False: cells stay as they are
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
            rows = batch.offsets[1:] + 2 * np.arange(len(batch))
            full[rows] = full[rows + 1] = 0.0
        return values + work + push, full


def enthalpy_terms(batch: Batch, pressure: float) -> tuple[Floats, Floats]:
    """pV (B,) and its derivative by strain, pV·1."""
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
    # Atoms may move far together with the cell: no distance is a run-away here.
    minimise(st, evaluate, fmax, steps, max_step, memory, runaway=1e6)
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
    """∂E/∂ε (3, 3) from a stress in Voigt's order."""
    xx, yy, zz, yz, xz, xy = np.asarray(stress, dtype=float) * volume
    return np.array([[xx, xy, xz], [xy, yy, yz], [xz, yz, zz]])
