"""Compare the gradients of a potential with finite differences of its values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget.display import Progress
from nugget.errors import NuggetError
from nugget.potential.potential import Potential
from nugget.structures.labels import VOIGT

Floats = NDArray[np.float64]


Function = Callable[[list[Atoms]], Floats]


# A correct gradient agrees with differences at one of these steps. The long step suppresses the
# round-off of models with large weights (1e-7 eV), the short one resolves strong curvature.
STEPS = (2e-2, 1e-3)  # Å


STRAINS = (4e-3, 2e-4)

# Deviations are relative to at least this gradient (eV/Å, eV), so that round-off of the energies
# divided by the step does not count as an error.
FLOOR = 0.01

_HALF = ((1.0, 45.0 / 60), (2.0, -9.0 / 60), (3.0, 1.0 / 60))

_STENCIL = _HALF + tuple((-distance, -weight) for distance, weight in _HALF)  # O(h⁶)


_TOGETHER = 64  # structures per prediction


@dataclass(frozen=True)
class Check:
    """One kind of gradient over all structures; deviations are relative to the largest component.

    `where` names the structure and the component that deviate most. `tolerance` is the requested
    one plus the round-off of the model's values.
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
    results: dict[str, list[_Comparison]] = {}
    for s, atoms in enumerate(images):
        for name, one in _one(potential, atoms, s, kappa, tolerance):
            results.setdefault(name, []).append(one)
        if progress is not None:
            progress(s + 1, len(images))
    return [_merged(name, parts) for name, parts in results.items()]


@dataclass(frozen=True)
class _Comparison:
    components: int
    largest: float
    deviation: float
    tolerance: float
    where: str


def _one(
    potential: Potential, atoms: Atoms, s: int, kappa: float, tolerance: float
) -> Iterator[tuple[str, _Comparison]]:
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
        slopes = {step: _slopes(function, _displaced(atoms, step), step) for step in STEPS}
        digits = _round_off(function, atoms)
        yield (
            name,
            _compare(gradient.ravel(), slopes, digits, tolerance, lambda c: _name_atom(s, c)),
        )
    if atoms.pbc.any() and atoms.cell.rank == 3:
        stress = potential.predict([atoms], uncertainty=False, stress=True).stress
        assert stress is not None
        slopes = {step: _slopes(energy, _strained(atoms, step), step) for step in STRAINS}
        virial, digits = stress[0] * atoms.get_volume(), _round_off(energy, atoms)
        yield (
            "E → stress",
            _compare(virial, slopes, digits, tolerance, lambda c: _name_strain(s, c)),
        )


def _name_atom(s: int, component: int) -> str:
    return f"#{s} atom {component // 3} {'xyz'[component % 3]}"


def _name_strain(s: int, component: int) -> str:
    a, b = VOIGT[component]
    return f"#{s} {'xyz'[a]}{'xyz'[b]}"


def _displaced(atoms: Atoms, step: float) -> list[Atoms]:
    """Six structures for every component of every position."""
    images = []
    for i in range(len(atoms)):
        for axis in range(3):
            for distance, _ in _STENCIL:
                moved = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
                moved.positions[i, axis] += distance * step
                images.append(moved)
    return images


def _strained(atoms: Atoms, step: float) -> list[Atoms]:
    """Six structures for each of the six components of strain."""
    images = []
    for a, b in VOIGT:
        for distance, _ in _STENCIL:
            strain = np.eye(3)
            strain[a, b] += 0.5 * distance * step
            strain[b, a] += 0.5 * distance * step
            bent = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
            bent.set_cell(bent.cell.array @ strain, scale_atoms=True)
            images.append(bent)
    return images


def _slopes(function: Function, images: list[Atoms], step: float) -> Floats:
    values = np.concatenate(
        [function(images[a : a + _TOGETHER]) for a in range(0, len(images), _TOGETHER)]
    )
    # Subtracting the mean first avoids the loss of digits in large energies.
    values = (values - values.mean()).reshape(-1, len(_STENCIL))
    return values @ np.array([weight for _, weight in _STENCIL]) / step


def _round_off(function: Function, atoms: Atoms) -> float:
    """Scatter of the values around a straight line over tiny displacements."""
    steps = np.arange(16.0)
    images = []
    for step in steps:
        moved = Atoms(atoms.numbers, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
        moved.positions *= 1.0 + 1e-12 * step
        images.append(moved)
    values = function(images)
    values = values - values.mean()
    return float(np.std(values - np.polyval(np.polyfit(steps, values, 1), steps)))


def _compare(
    gradient: Floats,
    slopes: dict[float, Floats],
    digits: float,
    tolerance: float,
    name: Callable[[int], str],
) -> _Comparison:
    """The worst component; five times the round-off `digits` of the values is allowed."""
    largest = float(np.max(np.abs(gradient), initial=0.0, where=np.isfinite(gradient)))
    scale = max(largest, FLOOR)
    spread = 5.0 * digits * float(np.linalg.norm([weight for _, weight in _STENCIL])) / scale
    allowed = np.array([[tolerance + spread / step] for step in slopes])
    deviation = np.abs([gradient - slope for slope in slopes.values()]) / scale
    ratio = np.min(deviation / allowed, axis=0)  # the step that agrees best
    worst = int(np.argmax(np.where(np.isnan(ratio), np.inf, ratio)))
    step = int(np.argmin(deviation[:, worst] / allowed[:, 0]))
    return _Comparison(
        gradient.size, largest, float(deviation[step, worst]), float(allowed[step, 0]), name(worst)
    )


def _merged(name: str, parts: list[_Comparison]) -> Check:
    worst = max(parts, key=lambda part: np.nan_to_num(part.deviation, nan=np.inf) / part.tolerance)
    return Check(
        name,
        sum(part.components for part in parts),
        max(part.largest for part in parts),
        worst.deviation,
        worst.tolerance,
        worst.where,
    )
