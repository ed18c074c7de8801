"""The conformance check of engines: any factory of ASE calculators."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator

from nugget.testing import _compare as ref


def check_engine(
    factory: Callable[[], Calculator], atoms: Atoms, step: float = 0.01, tolerance: float = 0.01
) -> None:
    """Raise ConformanceError unless the engine's forces and stress are derivatives of its energy.

    Every energy comes from a fresh calculator, as in a search. `tolerance` is relative to the
    largest force; engines that iterate to self-consistency need some.
    """
    rng = np.random.default_rng(0)

    def energy(other: Atoms) -> float:
        fresh = other.copy()
        fresh.calc = factory()
        return float(fresh.get_potential_energy())

    work = atoms.copy()
    work.calc = factory()
    ref.require(
        hasattr(work.calc, "get_potential_energy"), "The factory returns an ASE calculator."
    )
    value, forces = float(work.get_potential_energy()), work.get_forces(apply_constraint=False)
    ref.require(np.isfinite(value), "The energy is a finite number.")
    ref.require(np.shape(forces) == (len(atoms), 3), "There is a force on every atom.")
    ref.require(abs(energy(atoms) - value) <= 1e-5 * len(atoms), "Fresh calculators agree.")
    direction = rng.normal(size=(len(atoms), 3))
    direction /= np.linalg.norm(direction)
    slope = ref.derivative(lambda t: energy(ref.moved(atoms, direction, t)), step)
    scale = float(np.abs(forces).max())
    along = float(np.sum(-forces * direction))
    ref.require(
        abs(along - float(slope)) <= tolerance * max(scale, 0.1),
        f"Forces are minus the gradient of the energy ({along:.4f} against {float(slope):.4f} "
        "eV/Å along a random direction).",
    )
    if atoms.pbc.all() and "stress" in work.calc.implemented_properties:
        slopes = [
            ref.derivative(lambda t, c=c: energy(ref.strained(atoms, c, t)), 0.2 * step)  # type: ignore[misc]
            for c in range(6)
        ]
        found = work.get_stress() * atoms.get_volume()
        ref.close(
            found, np.array(slopes), "Stress is the strain derivative per volume", 10 * tolerance
        )
