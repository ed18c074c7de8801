"""Minimum-mode following on a local surrogate, from one structure to a saddle point.

    E(x) = B(x) + c + Σ_p V_kind(p)(r_p) + f(q(x))

B is a cheap mean function (GFN2-xTB for molecules with an expensive engine) or zero; the Gaussian
process of `relax.local_surrogate` learns the difference between the engine and B from energies and
forces. After every engine call, the surrogate is fitted to all results, and partitioned
rational-function steps (P-RFO) on it climb along the followed mode and descend along all others:

    s₀ = −g₀/(h₀ − λ₊),  λ₊ = h₀/2 + √(h₀²/4 + g₀²);  s_i = −g_i/(h_i − λ₋),

with λ₋ the lowest eigenvalue of the Hessian of the other modes augmented by their gradient. The
steps end where the surrogate's forces vanish, or at the trust radius around the evaluated
structures; there the engine is called. Only the engine's forces decide about convergence: they
vanish at the saddle, and one more call at a displaced copy shows that the mode is negative.

The state depends on the engine's results alone, so that a search is resumed by repeating them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats
from nugget.relax.local_surrogate import SKIN, PairFeatures, Point, Surrogate
from nugget.relax.lockstep import movable

FIRST, LONGEST, SHORTEST = 0.5, 0.7, 0.1  # Å: trust radius, the displacement of one atom
GOOD, BAD = 0.1, 0.4  # eV: errors of the surrogate that enlarge and reduce the trust radius
MAX_STEP = 0.1  # Å: displacement of one atom in a step on the surrogate
MAX_STEPS = 200  # on the surrogate between two engine calls
TIGHT = 0.2  # of fmax: forces of the surrogate at which its steps end
NEGATIVE = 0.05  # eV/Å²: a mode counts as negative below minus this
PROBE = 0.1  # Å: displacement from a stationary point with a wrong number of negative modes
MAX_PROBES = 5
CONFIRM = 0.05  # Å: displacement along the mode with which the engine confirms its curvature
MAX_FAILURES = 4  # of the engine in a row
MAX_LABELS = 3000  # of the surrogate
_STEP = 0.02  # Å, of finite differences
_RIGID = 1e-6  # Å: smaller rotations are none, as those of a line about itself


class SaddleEnd(StrEnum):
    """Why a search ended; the values are the texts in files and messages."""

    RUNNING = "running"
    CONVERGED = "converged"
    CALLS = "all calls used"
    WRONG_MODES = "ended at a stationary point that has not exactly one negative mode"
    ENGINE_FAILED = "the engine failed too often"


class Baseline(Protocol):
    """Energy and gradient of a mean function; NaN where it fails."""

    def __call__(self, positions: Floats) -> tuple[float, Floats]: ...


class Modes(NamedTuple):
    """Eigenvalues (eV/Å², ascending) and eigenvectors (columns) without rigid motions."""

    values: Floats
    vectors: Floats

    @property
    def negative(self) -> int:
        """Number of negative modes; a saddle point has one."""
        return int(np.sum(self.values < -NEGATIVE))


class Surface:
    """The baseline with the correction of a Gaussian process, in the free coordinates x."""

    def __init__(
        self, features: PairFeatures, points: Sequence[Point], baseline: Baseline | None
    ) -> None:
        self.features, self.baseline = features, baseline
        differences = []
        for point in points:
            energy, gradient = self._mean(point.x)
            if not np.isfinite(energy):
                raise NuggetError(
                    "The baseline failed on a structure that the engine evaluated; choose another "
                    "baseline, or none."
                )
            differences.append(Point(point.x, point.energy - energy, point.gradient - gradient))
        self._difference = Surrogate(features, differences)

    def _mean(self, x: Floats) -> tuple[float, Floats]:
        if self.baseline is None:
            return 0.0, np.zeros_like(x)
        positions = self.features.positions.copy()
        positions[self.features.free] = x
        energy, gradient = self.baseline(positions)
        return energy, gradient[self.features.free]

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


def internal_space(features: PairFeatures, x: Floats) -> Floats:
    """Orthonormal columns that span all motions except free translations and rotations."""
    n = len(features.positions)
    if not features.free.all():
        return np.eye(len(x))
    rigid = [np.tile(axis, n) for axis in np.eye(3)]
    if not features.shift.any():  # not periodic
        centred = x.reshape(n, 3) - x.reshape(n, 3).mean(axis=0)
        rigid += [np.cross(axis, centred).ravel() for axis in np.eye(3)]
    vectors, sizes, _ = np.linalg.svd(np.array(rigid).T, full_matrices=True)
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


class SaddleSearch:
    """`propose` a structure, evaluate it with the engine, `observe` the result, until `done`.

    mode : displacements (N, 3) of the mode to follow; None follows the lowest mode.
    """

    def __init__(
        self,
        atoms: Atoms,
        fmax: float,
        max_calls: int,
        baseline: Baseline | None = None,
        mode: Floats | None = None,
    ) -> None:
        self.fmax, self.max_calls, self.baseline = fmax, max_calls, baseline
        self.free: Bools = movable(atoms)
        if self.free.sum() < 2:
            raise NuggetError("A saddle search needs at least two free coordinates.")
        self.best = atoms.copy()  # the last evaluated structure
        self.points: list[Point] = []
        self.calls = 0
        self.end = SaddleEnd.RUNNING
        self.miss = float("nan")  # eV, surrogate minus engine at the last call
        self.forecast: tuple[float, float] | None = None  # predicted energy and σ, eV
        self.modes: Modes | None = None  # of the surrogate at the end
        self._followed = None if mode is None else np.asarray(mode[self.free], dtype=float)
        self._features = PairFeatures(atoms, self.free)
        if not self._features.n_pairs:
            raise NuggetError("A saddle search needs atoms with neighbours.")
        self._reach = FIRST if baseline is not None else SHORTEST
        self._failures = self._probes = 0
        self._next: Floats | None = None
        self._stationary: tuple[Atoms, Point] | None = None  # waits for the engine's curvature

    @property
    def done(self) -> bool:
        return self.end is not SaddleEnd.RUNNING

    @property
    def converged(self) -> bool:
        return self.end is SaddleEnd.CONVERGED

    @property
    def mode(self) -> Floats | None:
        """The followed mode at the end, as displacements (N, 3) of unit length."""
        if self.modes is None:
            return None
        displacements = np.zeros(self.free.shape)
        displacements[self.free] = self.modes.vectors[:, 0]
        return displacements

    def propose(self) -> Atoms:
        """The structure to evaluate next, without results."""
        atoms = self.best.copy()
        atoms.calc = None
        if self.points:
            if self._next is None:
                self._next = self._displaced() if self._exploring else self._follow()
            atoms.positions[self.free] = self._next
        return atoms

    def observe(self, atoms: Atoms | None) -> None:
        """Use the engine's result for the last proposal; None if the evaluation failed."""
        self.calls += 1
        self._next = None
        if atoms is None:
            self._stationary = None
            self._failures += 1
            self._reach = max(0.5 * self._reach, 0.02)
            if not self.points or self._failures >= MAX_FAILURES:
                self.end = SaddleEnd.ENGINE_FAILED
        else:
            self._learn(atoms)
        if not self.done and self.calls >= self.max_calls:
            self.end = SaddleEnd.CALLS

    def largest(self, vector: Floats) -> float:
        """The largest norm of an atom's part of a vector in the free coordinates."""
        parts = np.zeros(self.free.shape)
        parts[self.free] = vector
        return float(np.sqrt(np.max(np.sum(parts**2, axis=1))))

    def surface(self) -> Surface:
        """The surrogate, fitted to the last results."""
        number = max(MAX_LABELS // (1 + int(self.free.sum())), 3)
        return Surface(self._features, self.points[-number:], self.baseline)

    def _learn(self, atoms: Atoms) -> None:
        self._failures = 0
        results = atoms.calc.results
        x = np.array(atoms.positions[self.free])
        point = Point(x, float(results["energy"]), -np.asarray(results["forces"])[self.free])
        self.points.append(point)
        self.best = atoms
        if self._stationary is not None and self._is_confirmed(*self._stationary, point):
            return
        if np.max(np.abs(self._features.positions[self.free] - x)) > 0.5 * SKIN:
            self._features = PairFeatures(atoms, self.free)
        if self.forecast is not None:
            self.miss = self.forecast[0] - point.energy
            if abs(self.miss) < GOOD:
                self._reach = min(1.2 * self._reach, LONGEST)
            elif abs(self.miss) > BAD:
                self._reach = max(0.7 * self._reach, SHORTEST)
        if self.largest(point.gradient) <= self.fmax and not self._exploring:
            self._judge(x)

    def _judge(self, x: Floats) -> None:
        """At small forces: let the engine confirm one negative mode, or leave along a mode."""
        surface = self.surface()
        self.modes = surface.modes(x, surface.hessian(x))
        negative = self.modes.negative
        if negative == 1:
            self._stationary = (self.best, self.points[-1])
            direction = self.modes.vectors[:, 0]
            self._next = x + CONFIRM / self.largest(direction) * direction
            self.forecast = None
        elif self._probes >= MAX_PROBES:
            self.end = SaddleEnd.WRONG_MODES
        else:
            # Too many negative modes: go down the second. None: climb the softest.
            self._probes += 1
            direction = self.modes.vectors[:, 1 if negative else 0]
            self._next = x + PROBE / self.largest(direction) * direction
            self.forecast = None

    def _is_confirmed(self, atoms: Atoms, stationary: Point, probe: Point) -> bool:
        """Whether the engine's forces show a negative curvature along the mode."""
        self._stationary = None
        step = probe.x - stationary.x
        curvature = float((probe.gradient - stationary.gradient) @ step / (step @ step))
        if curvature >= -NEGATIVE:
            return False
        self.best, self.end = atoms, SaddleEnd.CONVERGED
        return True

    @property
    def _exploring(self) -> bool:
        """Without a baseline, forces at displaced copies of the start give the first modes."""
        return self.baseline is None and self.calls <= int(self.free.sum())

    def _displaced(self) -> Floats:
        x = self.points[0].x.copy()
        x[self.calls - 1] += CONFIRM
        return x

    def _follow(self) -> Floats:
        """Steps on the surrogate from the last point, until its forces vanish or the trust ends."""
        x, surface = self.points[-1].x, self.surface()
        hessian, start = surface.hessian(x), x
        energy, gradient = surface(x)
        for _ in range(MAX_STEPS):
            if self.largest(gradient) < TIGHT * self.fmax:
                break
            modes = surface.modes(x, hessian)
            step = partitioned_step(gradient, modes, self._choose(modes))
            step *= min(1.0, MAX_STEP / self.largest(step))
            here = x + step
            energy_here, gradient_here = surface(here)
            if not np.isfinite(energy_here):
                break
            hessian = bofill(hessian, step, gradient_here - gradient)
            x, energy, gradient = here, energy_here, gradient_here
            if min(self.largest(x - point.x) for point in self.points) > self._reach:
                break
        if x is start:  # the surrogate has no smaller forces to offer, so test the softest mode
            modes = surface.modes(x, hessian)
            x = x + 0.01 / self.largest(modes.vectors[:, 0]) * modes.vectors[:, 0]
            energy = surface(x)[0]
        self.forecast = (energy, surface.std(x))
        return x

    def _choose(self, modes: Modes) -> int:
        """The mode to follow: the lowest, or the one most similar to the one before."""
        if self._followed is None:
            return 0
        number = int(np.argmax(np.abs(modes.vectors.T @ self._followed)))
        self._followed = modes.vectors[:, number]
        return number


Evaluate = Callable[[Atoms], Atoms | None]


def run_search(
    search: SaddleSearch, evaluate: Evaluate, watch: Callable[[SaddleSearch], None] | None = None
) -> SaddleSearch:
    """Run a search to its end; `evaluate` returns None after a failure."""
    while not search.done:
        search.observe(evaluate(search.propose()))
        if watch is not None:
            watch(search)
    return search
