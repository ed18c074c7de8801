"""A potential as a function of the free coordinates of one structure, with Hessian and modes."""

from __future__ import annotations

import numpy as np
from ase import Atoms
from scipy.linalg import eigh

from nugget.numerics.arrays import Floats
from nugget.onthefly.saddle_surface import Modes, internal_space, modes_of
from nugget.potential.potential import Potential
from nugget.relax.local_surrogate import PairFeatures
from nugget.relax.lockstep import movable

_STEP = 0.01  # Å, of finite differences


class PotentialSurface:
    """A potential in the free coordinates of a structure."""

    def __init__(self, atoms: Atoms, potential: Potential) -> None:
        self.atoms, self.free, self.potential = atoms.copy(), movable(atoms), potential
        self.features = PairFeatures(atoms, self.free)

    def placed(self, x: Floats) -> Atoms:
        atoms = self.atoms.copy()
        atoms.positions[self.free] = x
        return atoms

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        predicted = self.potential.predict(self.placed(x), uncertainty=False)
        assert predicted.forces is not None
        return float(predicted.energy[0]), -predicted.forces[0][self.free]

    def std(self, x: Floats) -> float:
        """σ of the energy, eV."""
        predicted = self.potential.predict(self.placed(x), forces=False)
        assert predicted.energy_uncertainty is not None
        return float(predicted.energy_uncertainty[0])

    def hessian(self, x: Floats) -> Floats:
        """From central differences in one batch, eV/Å²."""
        steps = _STEP * np.eye(len(x))
        images = [self.placed(x + step) for step in (*steps, *-steps)]
        forces = self.potential.predict(images, uncertainty=False).forces
        assert forces is not None
        rows = np.array([force[self.free] for force in forces])
        matrix = (rows[len(x) :] - rows[: len(x)]) / (2 * _STEP)
        return np.asarray(0.5 * (matrix + matrix.T))

    def modes(self, x: Floats, hessian: Floats) -> Modes:
        return modes_of(hessian, internal_space(self.features, x))

    def squared_frequencies(self, x: Floats) -> Floats:
        """Eigenvalues of the mass-weighted Hessian, ascending, eV/Å²/amu."""
        masses = np.repeat(self.atoms.get_masses()[:, None], 3, axis=1)[self.free]
        space = internal_space(self.features, x, masses)
        matrix, metric = space.T @ self.hessian(x) @ space, space.T @ (masses[:, None] * space)
        return np.asarray(eigh(matrix, metric, eigvals_only=True))
