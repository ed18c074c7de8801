"""Every gradient of a potential against finite differences of the very function it belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget.errors import NuggetError
from nugget.potential.potential import Potential
from nugget.structures.labels import VOIGT

Floats = NDArray[np.float64]
Progress = Callable[[int, int], None]
Function = Callable[[list[Atoms]], Floats]

# A right gradient agrees with differences at one of these steps; a wrong one at none of them.
STEPS = (1e-3, 2e-4)  # Å
STRAINS = (2e-4, 5e-5)
# Gradients smaller than this (eV/Å, eV) are held to the tolerance of this one: round-off of the
# energies, divided by the step, must not count as a mistake.
FLOOR = 0.01
_STENCIL = ((2.0, -1.0 / 12), (1.0, 8.0 / 12), (-1.0, -8.0 / 12), (-2.0, 1.0 / 12))  # O(h⁴)
_TOGETHER = 64  # structures per prediction


@dataclass(frozen=True)
class Check:
    """One kind of gradient over all structures; deviations are relative to the largest component.

    `where` names the structure and the component that deviate most.
    """

    name: str
    components: int
    largest: float  # of |gradient|, eV/Å (eV per strain for the stress)
    deviation: float
    tolerance: float
    where: str

    @property
    def passed(self) -> bool:
        return bool(self.deviation <= self.tolerance)  # NaN does not pass


def check_gradients(
    potential: Potential,
    images: Sequence[Atoms],
    kappa: float = 2.0,
    tolerance: float = 1e-5,
    progress: Progress | None = None,
) -> list[Check]:
    """Forces, ∇σ and ∇(E − κσ) of all structures, and the stress of periodic ones."""
    if len(images) == 0:
        raise NuggetError("There are no structures: give at least one Atoms object.")
    if not tolerance > 0:
        raise NuggetError(f"The tolerance is {tolerance}; it must be positive.")
    found: dict[str, list[_Found]] = {}
    for s, atoms in enumerate(images):
        for name, one in _one(potential, atoms, s, kappa):
            found.setdefault(name, []).append(one)
        if progress is not None:
            progress(s + 1, len(images))
    return [_merged(name, parts, tolerance) for name, parts in found.items()]


@dataclass(frozen=True)
class _Found:
    components: int
    largest: float
    deviation: float
    where: str


def _one(potential: Potential, atoms: Atoms, s: int, kappa: float) -> Iterator[tuple[str, _Found]]:
    bound = potential.lcb(kappa)
    exact = potential.predict([atoms], uncertainty_gradient=True)
    assert exact.forces is not None
    assert exact.uncertainty_gradient is not None

    def energy(moved: list[Atoms]) -> Floats:
        return potential.predict(moved, forces=False, uncertainty=False).energy

    def sigma(moved: list[Atoms]) -> Floats:
        value = potential.predict(moved, forces=False).energy_uncertainty
        assert value is not None
        return value

    def lcb(moved: list[Atoms]) -> Floats:
        return bound(moved)[0]

    surfaces: tuple[tuple[str, Function, Floats], ...] = (
        ("E → forces", energy, -exact.forces[0]),
        ("σ → ∇σ", sigma, exact.uncertainty_gradient[0]),
        (f"E−{kappa:g}σ → gradient", lcb, bound([atoms])[1][0]),
    )
    for name, function, gradient in surfaces:
        slopes = [_slopes(function, *_displaced(atoms, step)) for step in STEPS]
        yield name, _compare(gradient.ravel(), slopes, lambda c: _name_atom(s, c))
    if atoms.pbc.any() and atoms.cell.rank == 3:
        stress = potential.predict([atoms], uncertainty=False, stress=True).stress
        assert stress is not None
        slopes = [_slopes(energy, *_strained(atoms, step)) for step in STRAINS]
        virial = stress[0] * atoms.get_volume()
        yield "E → stress", _compare(virial, slopes, lambda c: _name_strain(s, c))


def _name_atom(s: int, component: int) -> str:
    return f"#{s} atom {component // 3} {'xyz'[component % 3]}"


def _name_strain(s: int, component: int) -> str:
    a, b = VOIGT[component]
    return f"#{s} {'xyz'[a]}{'xyz'[b]}"


def _displaced(atoms: Atoms, step: float) -> tuple[list[Atoms], float]:
    """Four structures for every component of every position."""
    images = []
    for i in range(len(atoms)):
        for axis in range(3):
            for distance, _ in _STENCIL:
                moved = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
                moved.positions[i, axis] += distance * step
                images.append(moved)
    return images, step


def _strained(atoms: Atoms, step: float) -> tuple[list[Atoms], float]:
    """Four structures for each of the six components of strain."""
    images = []
    for a, b in VOIGT:
        for distance, _ in _STENCIL:
            strain = np.eye(3)
            strain[a, b] += 0.5 * distance * step
            strain[b, a] += 0.5 * distance * step
            bent = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
            bent.set_cell(bent.cell.array @ strain, scale_atoms=True)
            images.append(bent)
    return images, step


def _slopes(function: Function, images: list[Atoms], step: float) -> Floats:
    values = np.concatenate(
        [function(images[a : a + _TOGETHER]) for a in range(0, len(images), _TOGETHER)]
    )
    # Differences of values near their mean keep digits that sums of large energies lose.
    values = (values - values.mean()).reshape(-1, len(_STENCIL))
    return values @ np.array([weight for _, weight in _STENCIL]) / step


def _compare(gradient: Floats, slopes: list[Floats], name: Callable[[int], str]) -> _Found:
    largest = float(np.max(np.abs(gradient), initial=0.0, where=np.isfinite(gradient)))
    scale = max(largest, FLOOR)
    deviation = np.min([np.abs(gradient - slope) for slope in slopes], axis=0) / scale
    worst = int(np.argmax(np.where(np.isnan(deviation), np.inf, deviation)))
    return _Found(gradient.size, largest, float(deviation[worst]), name(worst))


def _merged(name: str, parts: list[_Found], tolerance: float) -> Check:
    worst = max(parts, key=lambda part: np.inf if np.isnan(part.deviation) else part.deviation)
    return Check(
        name,
        sum(part.components for part in parts),
        max(part.largest for part in parts),
        worst.deviation,
        tolerance,
        worst.where,
    )
