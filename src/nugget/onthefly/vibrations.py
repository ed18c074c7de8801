"""Vibrations on the model: a saddle has exactly one mode that falls."""

from __future__ import annotations

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats
from nugget.onthefly.calculator import free_components
from nugget.potential.potential import Potential

_STEP = 0.01  # Å
# Translations and rotations are zero but for round-off and for what is left of the forces.
_SMALL = 0.5  # eV/Å²


def hessian(atoms: Atoms, potential: Potential) -> Floats:
    """Second derivatives of the model by free coordinates, from central differences, eV/Å²."""
    places = np.argwhere(free_components(atoms))
    moved = []
    for atom, axis in places:
        for sign in (1.0, -1.0):
            copy = atoms.copy()
            copy.positions[atom, axis] += sign * _STEP
            moved.append(copy)
    found = potential.predict(moved, uncertainty=False).forces
    assert found is not None
    rows, columns = places.T
    flat = np.array([forces[rows, columns] for forces in found])
    matrix = (flat[1::2] - flat[::2]) / (2 * _STEP)
    return np.asarray(0.5 * (matrix + matrix.T))


def imaginary_modes(atoms: Atoms, potential: Potential) -> int:
    """How many modes fall."""
    return int(np.sum(np.linalg.eigvalsh(hessian(atoms, potential)) < -_SMALL))
