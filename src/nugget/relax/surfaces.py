"""Surfaces that structures are relaxed on: values and gradients of many structures at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.structures.batch import offsets_of

PlainSurface = Callable[[Sequence[Atoms]], tuple[Floats, Sequence[Floats]]]
"""images -> (values (B,), gradients: one (N,3) per image). Gradients, not forces."""


class BatchEvaluator(Protocol):
    """A surface bound to its structures: only positions change from call to call.

    Called with all positions (N_total, 3) and the indices of the structures still running; gives
    their values (B_active,) and the gradients of their atoms, one structure after the other.
    """

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]: ...


@runtime_checkable
class BatchSurface(Protocol):
    """A surface with `start(images)`: no Atoms are built at every step, and lists are kept."""

    def start(self, images: Sequence[Atoms]) -> BatchEvaluator: ...


class ImageEvaluator:
    """A plain surface as a BatchEvaluator: writes the positions into copies of the images."""

    def __init__(self, surface: PlainSurface, images: Sequence[Atoms]) -> None:
        self.surface = surface
        self.images = [atoms.copy() for atoms in images]
        self.offsets = offsets_of([len(atoms) for atoms in images])

    def __call__(self, positions: Floats, active: Ints) -> tuple[Floats, Floats]:
        batch = [self.images[b] for b in active]
        for atoms, b in zip(batch, active, strict=True):
            atoms.positions = positions[self.offsets[b] : self.offsets[b + 1]]
        values, gradients = self.surface(batch)
        return np.asarray(values, dtype=float), np.concatenate(list(gradients))


def start(surface: PlainSurface | BatchSurface, images: Sequence[Atoms]) -> BatchEvaluator:
    """The surface bound to these structures."""
    if isinstance(surface, BatchSurface):
        return surface.start(images)
    return ImageEvaluator(surface, images)


def concurrent(surface: PlainSurface | BatchSurface) -> bool:
    """Whether several evaluators of this surface may work at the same time.

    A surface says so by an attribute of this name; a calculator may not be asked by two threads.
    """
    return bool(getattr(surface, "concurrent", False))


def on_calculator(calculator: Any) -> PlainSurface:
    """An ASE calculator's energy surface, one structure after the other."""

    def surface(images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        values, gradients = np.empty(len(images)), []
        for k, atoms in enumerate(images):
            values[k] = calculator.get_potential_energy(atoms)
            gradients.append(-calculator.get_forces(atoms))
        return values, gradients

    return surface
