"""The surface of a saddle search: a mean function with the correction of a Gaussian process.

    E(x) = B(x) + c + Σ_p V_kind(p)(r_p) + f(q(x))

B is a cheap engine (GFN2-xTB for molecules with an expensive engine) or the springs below; the
Gaussian process of `relax.local_surrogate` learns the difference between the engine and B from
energies and forces. Modes are eigenvectors of the Hessian of E without rigid motions; P-RFO steps
climb along one of them and descend along all others:

    s₀ = −g₀/(h₀ − λ₊),  λ₊ = h₀/2 + √(h₀²/4 + g₀²);  s_i = −g_i/(h_i − λ₋),

with λ₋ the lowest eigenvalue of the Hessian of the other modes augmented by their gradient.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np
from ase import Atoms
from scipy.linalg import eigh

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.potential.potential import Potential
from nugget.relax.local_surrogate import PairFeatures, Point, Surrogate
from nugget.relax.lockstep import movable

NEGATIVE = 0.05  # eV/Å²: a mode counts as negative below minus this
MAX_STEP = 0.1  # Å: displacement of one atom in a step on the surface
MAX_STEPS = 200  # on the surface between two engine calls
_STEP = 0.02  # Å, of finite differences
_BATCH_STEP = 0.01  # Å, of finite differences of a potential
_RIGID = 1e-6  # Å: smaller rotations are none, as those of a line about itself

_STIFFNESS = 10.0  # eV/Å²: springs of bonds before the engine's forces show how stiff they are
_DECAY = 4.0  # of springs with the distance in units of the bond length
_SOFTEST = 0.01  # of _STIFFNESS: a lower limit for springs between negative curvatures


class BaselineFailed(NuggetError):
    """The mean function has no value where the engine has one."""


class Baseline(Protocol):
    """Energy and gradient of a mean function; NaN where it fails."""

    def __call__(self, positions: Floats) -> tuple[float, Floats]: ...


class SpringMean:
    """SpringMean between neighbours that are relaxed at one structure.

        B = Σ_p k_p r_p0²(1 − r_p0/r_p)²/2,  k_p = K exp(−4(r_p0/b_p − 1))

    They are a guess of the Hessian: bonds are stiffer than angles, and angles than torsions. K
    follows from the change of the engine's gradient between the first two points.
    """

    def __init__(self, features: PairFeatures, points: Sequence[Point], centre: Floats) -> None:
        self.features = features
        self._relaxed = features.distances(centre)[0]
        self._stiffness = np.exp(-_DECAY * (self._relaxed / features.bond - 1.0))
        self._scale = _STIFFNESS
        if len(points) > 1:
            step = points[1].x - points[0].x
            mine = float((self(points[1].x)[1] - self(points[0].x)[1]) @ step)
            engine = float((points[1].gradient - points[0].gradient) @ step)
            self._scale *= max(engine / mine, _SOFTEST) if mine > 0 else 1.0

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        r, unit = self.features.distances(x)
        stretch = 1.0 - self._relaxed / r
        size = self._scale * self._stiffness * self._relaxed**2
        slope = size * stretch * self._relaxed / (r * r)
        return 0.5 * float(size @ stretch**2), self.features.gradient(unit, slope)


class Modes(NamedTuple):
    """Eigenvalues (eV/Å², ascending) and eigenvectors (columns) without rigid motions."""

    values: Floats
    vectors: Floats

    @property
    def negative(self) -> int:
        """Number of negative modes; a saddle point has one."""
        return int(np.sum(self.values < -NEGATIVE))


Mean = Callable[[Floats], tuple[float, Floats]]


class BaselineMean:
    """A baseline as a function of the free coordinates."""

    def __init__(self, baseline: Baseline, features: PairFeatures) -> None:
        self._baseline, self._features = baseline, features

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        positions = self._features.positions.copy()
        positions[self._features.free] = x
        energy, gradient = self._baseline(positions)
        return energy, gradient[self._features.free]


class Surface:
    """The mean function with the correction of a Gaussian process, in the free coordinates x."""

    def __init__(self, features: PairFeatures, points: Sequence[Point], mean: Mean) -> None:
        self.features, self.points, self._mean = features, points, mean
        differences = []
        for point in points:
            energy, gradient = mean(point.x)
            if not np.isfinite(energy):
                raise BaselineFailed(
                    "The baseline failed on a structure that the engine evaluated."
                )
            differences.append(Point(point.x, point.energy - energy, point.gradient - gradient))
        self._difference = Surrogate(features, differences)

    def __call__(self, x: Floats) -> tuple[float, Floats]:
        mean, mean_gradient = self._mean(x)
        energy, gradient = self._difference(x)
        return mean + energy, mean_gradient + gradient

    def std(self, x: Floats) -> float:
        """σ of the energy, eV."""
        return float(self._difference(x, 1.0)[0] - self._difference(x)[0])

    def hessian(self, x: Floats) -> Floats:
        """From central differences, eV/Å²."""
        matrix = np.empty((len(x), len(x)))
        for k in range(len(x)):
            step = np.zeros(len(x))
            step[k] = _STEP
            matrix[k] = (self(x + step)[1] - self(x - step)[1]) / (2 * _STEP)
        return np.asarray(0.5 * (matrix + matrix.T))

    def modes(self, x: Floats, hessian: Floats) -> Modes:
        return modes_of(hessian, internal_space(self.features, x))


def internal_space(features: PairFeatures, x: Floats, masses: Floats | None = None) -> Floats:
    """Orthonormal columns that span all motions except free translations and rotations.

    With masses (of the free coordinates), these motions are orthogonal to the rigid ones in the
    metric of the masses, as those of vibrations are.
    """
    n = len(features.positions)
    if not features.free.all():
        return np.eye(len(x))
    rigid = [np.tile(axis, n) for axis in np.eye(3)]
    if not features.shift.any():  # not periodic
        centred = x.reshape(n, 3) - x.reshape(n, 3).mean(axis=0)
        rigid += [np.cross(axis, centred).ravel() for axis in np.eye(3)]
    matrix = np.array(rigid).T if masses is None else np.array(rigid).T * masses[:, None]
    vectors, sizes, _ = np.linalg.svd(matrix, full_matrices=True)
    return np.asarray(vectors[:, int(np.sum(sizes > _RIGID)) :])


def modes_of(hessian: Floats, space: Floats) -> Modes:
    """Modes of the Hessian in a subspace."""
    values, vectors = np.linalg.eigh(space.T @ hessian @ space)
    return Modes(values, space @ vectors)


def partitioned_step(gradient: Floats, modes: Modes, followed: int) -> Floats:
    """P-RFO: uphill along one mode, downhill along the others."""
    h, g = modes.values, modes.vectors.T @ gradient
    step = np.zeros_like(h)
    up = h[followed] / 2 + np.sqrt(h[followed] ** 2 / 4 + g[followed] ** 2)
    step[followed] = -g[followed] / min(h[followed] - up, -1e-9)
    others = np.arange(len(h)) != followed
    n = len(h) - 1
    augmented = np.zeros((n + 1, n + 1))
    augmented.flat[: n * (n + 1) : n + 2] = h[others]
    augmented[n, :n] = augmented[:n, n] = g[others]
    down = np.linalg.eigvalsh(augmented)[0]
    step[others] = -g[others] / np.maximum(h[others] - down, 1e-6)
    return np.asarray(modes.vectors @ step)


def bofill(hessian: Floats, step: Floats, change: Floats) -> Floats:
    """The Hessian after a step that changed the gradient, by Bofill's update.

    It mixes the symmetric rank-one and Powell's updates and permits negative eigenvalues.
    """
    missing, square = change - hessian @ step, step @ step
    along, size = missing @ step, missing @ missing
    if square < 1e-16 or size < 1e-16:
        return hessian
    share = along**2 / (square * size)
    both = np.outer(missing, step)
    powell = (both + both.T) / square - along * np.outer(step, step) / square**2
    update = (1 - share) * powell
    if abs(along) > 1e-12:
        update = update + share * np.outer(missing, missing) / along
    return np.asarray(hessian + update)


class ModeSurface(Protocol):
    """A surface in the free coordinates with modes."""

    def __call__(self, x: Floats) -> tuple[float, Floats]: ...

    def hessian(self, x: Floats) -> Floats: ...

    def modes(self, x: Floats, hessian: Floats) -> Modes: ...


@dataclass(frozen=True, eq=False)
class Climb:
    """The end of P-RFO steps on a surface."""

    x: Floats
    energy: float
    gradient: Floats
    hessian: Floats  # by Bofill's updates


def climb(
    surface: ModeSurface,
    x: Floats,
    choose: Callable[[Modes], int],
    largest: Callable[[Floats], float],
    small: float,
    outside: Callable[[Floats], bool],
) -> Climb:
    """P-RFO steps until forces are below `small`, or until the structure is `outside`.

    `choose` returns the number of the mode to follow, `largest` the norm of an atom's part.
    """
    hessian = surface.hessian(x)
    energy, gradient = surface(x)
    for _ in range(MAX_STEPS):
        if largest(gradient) < small:
            break
        modes = surface.modes(x, hessian)
        step = partitioned_step(gradient, modes, choose(modes))
        step *= min(1.0, MAX_STEP / largest(step))
        here = x + step
        energy_here, gradient_here = surface(here)
        if not np.isfinite(energy_here):
            break
        hessian = bofill(hessian, step, gradient_here - gradient)
        x, energy, gradient = here, energy_here, gradient_here
        if outside(x):
            break
    return Climb(x, energy, gradient, hessian)


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
        steps = _BATCH_STEP * np.eye(len(x))
        images = [self.placed(x + step) for step in (*steps, *-steps)]
        forces = self.potential.predict(images, uncertainty=False).forces
        assert forces is not None
        rows = np.array([force[self.free] for force in forces])
        matrix = (rows[len(x) :] - rows[: len(x)]) / (2 * _BATCH_STEP)
        return np.asarray(0.5 * (matrix + matrix.T))

    def modes(self, x: Floats, hessian: Floats) -> Modes:
        return modes_of(hessian, internal_space(self.features, x))

    def squared_frequencies(self, x: Floats) -> Floats:
        """Eigenvalues of the mass-weighted Hessian, ascending, eV/Å²/amu."""
        masses = np.repeat(self.atoms.get_masses()[:, None], 3, axis=1)[self.free]
        space = internal_space(self.features, x, masses)
        matrix, metric = space.T @ self.hessian(x) @ space, space.T @ (masses[:, None] * space)
        return np.asarray(eigh(matrix, metric, eigvals_only=True))
