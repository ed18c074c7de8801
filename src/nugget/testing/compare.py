"""Comparisons that all conformance checks share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import is_dataclass
from typing import Any

import numpy as np
from ase import Atoms

from nugget.numerics.arrays import Floats
from nugget.structures.labels import VOIGT, voigt

_STENCIL = ((2.0, -1.0 / 12), (1.0, 8.0 / 12), (-1.0, -8.0 / 12), (-2.0, 1.0 / 12))  # O(h⁴)


class ConformanceError(AssertionError):
    """A part does not fulfil its contract."""


def require(holds: bool, sentence: str) -> None:
    """Raise unless the sentence holds."""
    if not holds:
        raise ConformanceError(sentence)


def close(found: Any, expected: Any, sentence: str, tolerance: float = 1e-6) -> None:
    """Arrays equal up to `tolerance` times the largest expected number."""
    a, b = np.asarray(found, float), np.asarray(expected, float)
    require(a.shape == b.shape, f"{sentence} (shape {a.shape} instead of {b.shape})")
    require(bool(np.isfinite(a).all()), f"{sentence} (not finite)")
    scale = max(float(np.max(np.abs(b), initial=0.0)), 1e-9)
    off = float(np.max(np.abs(a - b), initial=0.0)) / scale
    require(off <= tolerance, f"{sentence} (off by {off:.1e} of the largest number)")


def same(found: Any, expected: Any, sentence: str) -> None:
    """Arrays equal to the last bit."""
    require(np.array_equal(np.asarray(found), np.asarray(expected)), sentence)


def derivative(function: Callable[[float], Floats | float], step: float = 1e-3) -> Floats:
    """d function(t)/dt at t = 0 by central differences of fourth order."""
    return np.asarray(sum(w * np.asarray(function(a * step)) for a, w in _STENCIL) / step)


def moved(atoms: Atoms, direction: Floats, t: float) -> Atoms:
    """The structure displaced along a direction (N, 3)."""
    other = atoms.copy()
    other.positions += t * direction
    return other


def strained(atoms: Atoms, component: int, t: float) -> Atoms:
    """The structure under a symmetric strain along one of Voigt's six components."""
    a, b = VOIGT[component]
    strain = np.eye(3)
    strain[a, b] += 0.5 * t
    strain[b, a] += 0.5 * t
    other = atoms.copy()
    other.set_cell(other.cell.array @ strain, scale_atoms=True)
    return other


def strain_derivatives(energy: Callable[[Atoms], float], atoms: Atoms, step: float) -> Floats:
    """Derivatives of an energy by Voigt's six components of the strain."""

    def along(component: int) -> Floats:
        return derivative(lambda t: energy(strained(atoms, component, t)), step)

    return np.array([along(component) for component in range(6)])


def check_gradients(
    energy: Callable[[Atoms], float], atoms: Atoms, gradient: Floats, strain: Floats | None,
    name: str, rng: np.random.Generator,
) -> None:  # fmt: skip
    """Compare the derivatives of an energy by positions and by strain with finite differences."""
    direction = rng.normal(size=atoms.positions.shape)
    slope = derivative(lambda t: energy(moved(atoms, direction, t)))
    close(np.sum(gradient * direction), slope, f"{name} is the gradient by positions", 1e-5)
    if strain is not None and atoms.pbc.all():
        slopes = strain_derivatives(energy, atoms, 5e-4)
        close(voigt(strain), slopes, f"{name} has the derivatives by strain", 1e-5)


def random_structures(species: Sequence[str], seed: int = 0) -> dict[str, Atoms]:
    """A mixed cluster, a small periodic cell and a slab-like one, all of these species."""
    rng = np.random.default_rng(seed)

    def placed(n: int, box: Floats, room: float) -> Floats:
        chosen: list[Floats] = []
        while len(chosen) < n:
            x = rng.random(3) @ box
            if all(np.linalg.norm(x - y) > room for y in chosen):
                chosen.append(x)
        return np.array(chosen)

    def symbols(n: int) -> list[str]:
        return [species[k % len(species)] for k in range(n)]

    cube = 5.5 * np.eye(3)
    skewed = np.array([[4.1, 0.0, 0.0], [0.9, 4.3, 0.0], [0.4, -0.6, 4.6]])
    flat = np.array([[4.4, 0.3, 0.0], [0.0, 4.8, 0.0], [0.0, 0.0, 14.0]])
    return {
        "cluster": Atoms(symbols(7), placed(7, cube, 1.7)),
        "small periodic cell": Atoms(symbols(3), placed(3, skewed, 1.7), cell=skewed, pbc=True),
        "slab": Atoms(
            symbols(5), placed(5, flat * [[1], [1], [0.4]], 1.7), cell=flat, pbc=(1, 1, 0)
        ),
    }


def require_plain_settings(part: Any, kind: str) -> None:
    """A part must be a frozen dataclass, so that model files can store its settings."""
    frozen = is_dataclass(part) and getattr(type(part), "__dataclass_params__").frozen  # noqa: B009
    require(frozen, f"A {kind} is a frozen dataclass of plain settings: a model file keeps these.")
