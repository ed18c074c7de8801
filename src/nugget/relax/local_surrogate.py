"""A Gaussian process for one structure near a minimum, from energies and gradients.

    E(x) = c + Σ_p V_kind(p)(r_p) + f(q(x))

V is one pair function per pair of elements, shared by all bonds of its kind. f describes the
structure as a whole: a Matérn 5/2 process in the inverse distances q, k(q, q') =
(3l²/5)(1 + s + s²/3)e^{-s}, s = √5|q − q'|/l, so that ∂∂'k(q, q) = 1. With enough data f alone
reproduces the labels; V makes the first steps long and accurate. The prior variances are ρ·A for V
and A for f. A follows from the data in closed form; l and ρ maximise the marginal likelihood.

Every pair of neighbours p, with distance r_p and sum of covalent radii b_p, gives a coordinate
q_p = b_p/r_p, and the values of Gaussians in r_p/b_p, from which the pair functions are built. The
list of pairs stays the same during a relaxation, so that coordinates remain comparable.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple, Protocol

import numpy as np
from ase import Atoms
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import block_diag, csr_matrix, hstack

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.structures.batch import as_batch
from nugget.structures.geometry import radii_of
from nugget.structures.neighbours import find_pairs

REACH, SKIN = 2.5, 1.0  # pairs up to REACH·b + SKIN (Å)
SMALL = 40  # atoms of a molecule of which all pairs are used
_GRID = np.linspace(0.6, REACH, 20)  # centres of the Gaussians, r/b
_WIDTH = float(_GRID[1] - _GRID[0])


def _pair_function_factor() -> Floats:
    """L with LLᵀ = covariance of a smooth pair function on the grid, larger at short distance."""
    size = np.exp(-2.0 * (_GRID - 1.0))
    smooth = np.exp(-0.5 * ((_GRID[:, None] - _GRID) / 0.25) ** 2)
    covariance = size[:, None] * smooth * size
    covariance.flat[:: len(_GRID) + 1] += 1e-10
    return np.asarray(np.linalg.cholesky(covariance))


class PairFeatures:
    """The pairs of one structure with a free atom; `x` are its free coordinates, flat.

    All pairs of a molecule with at most SMALL atoms are used. Hydrogen atoms are neighbours up to
    2.6 Å only; without the pairs beyond, distances need not determine a torsion, a second molecule,
    or a leaving atom.
    """

    factor = _pair_function_factor()
    n_basis = len(_GRID)

    def __init__(self, atoms: Atoms, free: Bools) -> None:
        self.positions, self.free = atoms.positions.copy(), free
        radii = radii_of(atoms.numbers)
        unlimited = len(atoms) <= SMALL and not atoms.pbc.any()
        widest = float(np.linalg.norm(np.ptp(self.positions, axis=0))) if unlimited else 0.0
        pairs = find_pairs(as_batch(atoms), max(2 * REACH * float(radii.max()), widest) + SKIN)
        i, j = pairs.i, pairs.j
        bond = radii[i] + radii[j]
        distance = np.linalg.norm(self.positions[j] + pairs.shift - self.positions[i], axis=1)
        movable = np.asarray(free.any(axis=1))
        # The distance between an atom and its own image is constant.
        used = (movable[i] | movable[j]) & (i != j)
        used &= unlimited | (distance < REACH * bond + SKIN)
        self.i, self.j, self.shift, self.bond = i[used], j[used], pairs.shift[used], bond[used]
        elements = np.sort(np.column_stack([atoms.numbers[self.i], atoms.numbers[self.j]]), axis=1)
        kinds, self.kind = np.unique(elements, axis=0, return_inverse=True)
        self.kind = self.kind.reshape(-1)
        self.n_pairs, self.n_kinds, self.n_free = len(self.i), len(kinds), int(free.sum())
        self._end_j = self._columns(self.j)
        self._end_i = self._columns(self.i)
        self._at: dict[bytes, tuple[Floats, csr_matrix, Floats]] = {}

    def at(self, x: Floats) -> tuple[Floats, csr_matrix, Floats]:
        """q (P,), ∂q/∂x and the rows of all pair functions at a labelled point; computed once."""
        key = x.tobytes()
        if key not in self._at:
            r, unit = self.distances(x)
            q, slope = self.coordinates(r)
            self._at[key] = (q, self.jacobian(unit, slope), _pair_rows(self, r, unit))
        return self._at[key]

    def _columns(self, atom: Ints) -> tuple[Ints, Ints, Ints]:
        """Pair, axis and free coordinate of every end of a pair that can move."""
        number = np.full(self.free.shape, -1, dtype=np.int64)
        number[self.free] = np.arange(self.n_free)
        pair, axis = np.nonzero(self.free[atom])
        return pair, axis, number[atom[pair], axis]

    def distances(self, x: Floats) -> tuple[Floats, Floats]:
        """r (P,) and the unit vectors from i to j (P, 3)."""
        positions = self.positions.copy()
        positions[self.free] = x
        d = positions[self.j] + self.shift - positions[self.i]
        r = np.sqrt(np.sum(d * d, axis=1))
        return r, d / r[:, None]

    def coordinates(self, r: Floats) -> tuple[Floats, Floats]:
        """q = b/r and dq/dr."""
        return self.bond / r, -self.bond / (r * r)

    def basis(self, r: Floats) -> tuple[Floats, Floats]:
        """Gaussians (P, n_basis), smoothly zero from r = REACH·b on, and their slopes d/dr."""
        t = r / self.bond
        s = np.minimum(t / REACH, 1.0)
        cut, slope = (1 - s * s) ** 2, -4 * s * (1 - s * s) / REACH
        value = np.exp(-0.5 * ((t[:, None] - _GRID) / _WIDTH) ** 2)
        grad = -(t[:, None] - _GRID) / _WIDTH**2 * value
        return value * cut[:, None], (grad * cut[:, None] + value * slope[:, None]) / self.bond[
            :, None
        ]

    def jacobian(self, unit: Floats, weight: Floats) -> csr_matrix:
        """weight_p · ∂r_p/∂x, (P, n_free), sparse."""
        rows, columns, values = [], [], []
        for sign, (pair, axis, column) in ((1.0, self._end_j), (-1.0, self._end_i)):
            rows.append(pair)
            columns.append(column)
            values.append(sign * weight[pair] * unit[pair, axis])
        entries = (np.concatenate(values), (np.concatenate(rows), np.concatenate(columns)))
        return csr_matrix(entries, shape=(len(self.i), self.n_free))

    def gradient(self, unit: Floats, weight: Floats) -> Floats:
        """Σ_p weight_p ∂r_p/∂x, (n_free,)."""
        total = np.zeros(self.n_free)
        for sign, (pair, axis, column) in ((1.0, self._end_j), (-1.0, self._end_i)):
            values = sign * weight[pair] * unit[pair, axis]
            total += np.bincount(column, values, self.n_free)
        return total


LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
RATIOS = (0.0, 0.1, 1.0, 10.0, 100.0)
ENERGY_NOISE, GRADIENT_NOISE = 1e-3, 3e-3  # eV, eV/Å: round-off of an engine with a margin
_JITTER = 1e-9  # of A on the diagonal
_LARGEST = 1e5  # of A; beyond, the jitter would pass for noise, and the data would not be fitted


class Point(NamedTuple):
    """Labels of the engine at x."""

    x: Floats  # (n_free,)
    energy: float
    gradient: Floats  # (n_free,)


class Choice(NamedTuple):
    """Indices of the length scale l and of the weight ρ of the pair functions."""

    length: int  # of LENGTHS
    ratio: int  # of RATIOS


FIRST_CHOICE = Choice(2, 2)


def _matern(square: Floats, length: float) -> tuple[Floats, Floats, Floats]:
    """k, c₁, c₂ with ∂k/∂q' = c₁(q − q') and ∂²k/∂q∂q' = c₁ − c₂(q − q')(q − q')ᵀ."""
    s = np.sqrt(5 * square) / length
    decay = np.exp(-s)
    return 0.6 * length**2 * (1 + s + s * s / 3) * decay, (1 + s) * decay, 5 / length**2 * decay


@dataclass(frozen=True, eq=False)
class _Data:
    """All points as arrays: n points, P pairs, d free coordinates, K pair-function weights."""

    q: Floats  # (n, P)
    jacobians: csr_matrix  # ∂q/∂x, (n·P, n·d), one block per point
    products: Floats  # JₐᵀJ_b, (n, d, n, d)
    along: Floats  # Jₐᵀ(q_a − q_b), (n, n, d)
    square: Floats  # |q_a − q_b|², (n, n)
    phi: Floats  # pair-function rows, (n·(1+d), K)
    y: Floats  # (n·(1+d),)
    constant: float

    @classmethod
    def of(cls, features: PairFeatures, points: Sequence[Point]) -> _Data:
        n, d = len(points), features.n_free
        q, jacobians, rows = zip(*(features.at(point.x) for point in points), strict=True)
        matrix = np.array(q)
        side_by_side = hstack(jacobians, format="csc")  # (P, n·d)
        products = (side_by_side.T @ side_by_side).toarray().reshape(n, d, n, d)
        projected = (side_by_side.T @ matrix.T).reshape(n, d, n).transpose(0, 2, 1)  # Jₐᵀq_b
        own = projected[np.arange(n), np.arange(n)]
        square = np.sum((matrix[:, None] - matrix) ** 2, axis=-1)
        constant = min(point.energy for point in points)
        y = np.concatenate([[p.energy - constant, *p.gradient] for p in points])
        blocks = block_diag(jacobians, format="csr")
        along = own[:, None] - projected
        return cls(matrix, blocks, products, along, square, np.concatenate(rows), y, constant)

    def covariance(self, length: float) -> Floats:
        """Of all energies and gradients under f with A = 1."""
        n, d = len(self.q), self.products.shape[1]
        k, c1, c2 = _matern(self.square, length)
        full = np.empty((n, 1 + d, n, 1 + d))
        full[:, 0, :, 0] = k
        # with Δ = q_a − q_b: `along[a, b]` is JₐᵀΔ and −`along[b, a]` is J_bᵀΔ
        full[:, 1:, :, 0] = (-c1[:, :, None] * self.along).transpose(0, 2, 1)
        full[:, 0, :, 1:] = -c1[:, :, None] * self.along.transpose(1, 0, 2)
        outer = (
            self.along.transpose(0, 2, 1)[:, :, :, None] * self.along.transpose(1, 0, 2)[:, None]
        )
        outer *= c2[:, None, :, None]
        block = full[:, 1:, :, 1:]
        np.multiply(c1[:, None, :, None], self.products, out=block)
        block += outer
        return full.reshape(n * (1 + d), n * (1 + d))


def _pair_rows(features: PairFeatures, r: Floats, unit: Floats) -> Floats:
    """Energy and gradient of all pair functions with unit weights, (1 + d, K)."""
    value, slope = features.basis(r)
    jacobian = features.jacobian(unit, np.ones(len(r)))
    parts = []
    for kind in range(features.n_kinds):
        mine = np.flatnonzero(features.kind == kind)
        parts.append(
            np.vstack([value[mine].sum(axis=0), jacobian[mine].T @ slope[mine]]) @ features.factor
        )
    return np.hstack(parts)


class Surrogate:
    """The fitted process; `surrogate(x, kappa)` gives E + κσ and its gradient.

    σ is the standard deviation of the energy. It grows with the square of the distance from a
    labelled point, so that E + κσ curves upwards where the curvature is unknown.
    """

    def __init__(
        self, features: PairFeatures, points: Sequence[Point], choice: Choice | None = None
    ) -> None:
        """Fit with this `choice` of l and ρ; None: that of the largest marginal likelihood."""
        self.features = features
        self._data = _Data.of(features, points)
        shared = self._data.phi @ self._data.phi.T
        if choice is not None and np.isfinite(self._fit(choice, shared)):
            self.choice = choice
            self._keep(choice, self._state)
        else:
            self.choice = self._climb(FIRST_CHOICE, shared)

    def _climb(self, choice: Choice, shared: Floats) -> Choice:
        """Move to neighbours of (l, ρ) while the marginal likelihood increases."""
        tried: dict[Choice, float] = {}
        best = -np.inf
        while True:
            steps = product((0, -1, 1), repeat=2)
            near = [Choice(choice.length + a, choice.ratio + b) for a, b in steps if a * b == 0]
            for other in near:
                inside = 0 <= other.length < len(LENGTHS) and 0 <= other.ratio < len(RATIOS)
                if inside and other not in tried:
                    tried[other] = likelihood = self._fit(other, shared)
                    if likelihood > best:
                        best, kept = likelihood, (other, self._state)
            if kept[0] == choice:
                break
            choice = kept[0]
        self._keep(*kept)
        return choice

    def _fit(self, choice: Choice, shared: Floats) -> float:
        """Solve for the weights; the log marginal likelihood, −∞ if the matrix is not definite."""
        data = self._data
        n, p = len(data.q), len(data.y)
        covariance = data.covariance(LENGTHS[choice.length]) + RATIOS[choice.ratio] * shared
        amplitude = 1.0
        noise = np.tile(np.r_[ENERGY_NOISE, np.full(p // n - 1, GRADIENT_NOISE)], n)
        # Noise in units of A and A itself depend on each other; two iterations suffice.
        for _ in range(2):
            matrix = covariance.copy()
            matrix.flat[:: p + 1] += noise**2 / amplitude + _JITTER
            try:
                cholesky = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
            except LinAlgError:
                return -np.inf
            weights = cho_solve(cholesky, data.y, check_finite=False)
            square = float(data.y @ weights)
            amplitude = min(max(square / p, 1e-8), _LARGEST)
        self._state = (cholesky, weights, amplitude)
        misfit = 0.5 * (square / amplitude + p * np.log(amplitude))
        return float(-misfit - np.log(np.diagonal(cholesky[0])).sum())

    def _keep(self, choice: Choice, state: tuple[tuple[Floats, bool], Floats, float]) -> None:
        self._cholesky, weights, self._amplitude = state
        self._length, self._ratio = LENGTHS[choice.length], RATIOS[choice.ratio]
        self._energy_weights, self._q_weights = self._split(weights)
        self._pair_weights = self._pair_function(self._data.phi.T @ weights)

    def _split(self, weights: Floats) -> tuple[Floats, Floats]:
        """Weights of energies (n,), and those of gradients in the coordinates q, (n, P)."""
        n = len(self._data.q)
        table = weights.reshape(n, -1)
        return table[:, 0], (self._data.jacobians @ table[:, 1:].ravel()).reshape(n, -1)

    def _pair_function(self, coefficients: Floats) -> Floats:
        """Weights of the Gaussians for every pair, (P, n_basis)."""
        features = self.features
        table = self._ratio * coefficients.reshape(features.n_kinds, -1) @ features.factor.T
        return np.asarray(table[features.kind])

    def __call__(self, x: Floats, kappa: float = 0.0) -> tuple[float, Floats]:
        features, data = self.features, self._data
        r, unit = features.distances(x)
        q, slope = features.coordinates(r)
        value, value_slope = features.basis(r)
        apart = q - data.q  # (n, P)
        k, c1, c2 = _matern(np.sum(apart * apart, axis=1), self._length)

        def local(energies: Floats, gradients: Floats) -> tuple[float, Floats]:
            """Σ of energies·k and of gradients·∂k/∂q', and its derivative with respect to q."""
            inner = np.sum(apart * gradients, axis=1)
            return energies @ k + c1 @ inner, c1 @ gradients - (energies * c1 + c2 * inner) @ apart

        energy, by_q = local(self._energy_weights, self._q_weights)
        energy += data.constant + float(np.sum(value * self._pair_weights))
        by_r = by_q * slope + np.sum(value_slope * self._pair_weights, axis=1)
        if kappa == 0.0:
            return energy, features.gradient(unit, by_r)

        # σ²/A = k(x, x) − κᵀK⁻¹κ; its gradient is that of a mean with the weights K⁻¹κ.
        sums = np.zeros((features.n_kinds, features.n_basis))
        np.add.at(sums, features.kind, value)
        phi = (sums @ features.factor).ravel()
        to_points = data.jacobians.T @ (c1[:, None] * apart).ravel()
        row = np.column_stack([k, to_points.reshape(len(k), -1)]).ravel()
        row += self._ratio * (data.phi @ phi)
        solved = cho_solve(self._cholesky, row, check_finite=False)
        before = 0.6 * self._length**2 + self._ratio * float(phi @ phi)
        std = float(np.sqrt(self._amplitude * max(before - float(row @ solved), 1e-12)))
        _, solved_by_q = local(*self._split(solved))
        shared = self._pair_function(phi - data.phi.T @ solved)
        half_slope = np.sum(value_slope * shared, axis=1) - solved_by_q * slope
        by_r += kappa * self._amplitude / std * half_slope
        return energy + kappa * std, features.gradient(unit, by_r)


class Baseline(Protocol):
    """Energy and gradient (N, 3) of a mean function at positions (N, 3); NaN where it fails."""

    def __call__(self, positions: Floats) -> tuple[float, Floats]: ...


class CorrectedSurrogate:
    """A baseline, plus the process fitted to the differences of the points from it."""

    def __init__(
        self,
        features: PairFeatures,
        points: Sequence[Point],
        baseline: Baseline,
        choice: Choice | None = None,
    ) -> None:
        self.features, self._baseline = features, baseline
        differences = []
        for point in points:
            energy, gradient = self._mean(point.x)
            if not np.isfinite(energy):
                raise NuggetError(
                    "The mean function failed on a structure that the engine evaluated; choose "
                    "another one, or none."
                )
            differences.append(Point(point.x, point.energy - energy, point.gradient - gradient))
        self._difference = Surrogate(features, differences, choice)
        self.choice = self._difference.choice

    def _mean(self, x: Floats) -> tuple[float, Floats]:
        positions = self.features.positions.copy()
        positions[self.features.free] = x
        energy, gradient = self._baseline(positions)
        return energy, gradient[self.features.free]

    def __call__(self, x: Floats, kappa: float = 0.0) -> tuple[float, Floats]:
        mean, mean_gradient = self._mean(x)
        energy, gradient = self._difference(x, kappa)
        return mean + energy, mean_gradient + gradient


_STEP = 0.02  # Å, of finite differences


def softest_mode(model: Surrogate | CorrectedSurrogate, x: Floats) -> Floats:
    """Unit eigenvector of the lowest eigenvalue of the Hessian.

    Motions that keep all distances (translations and rotations of a cluster) are excluded.
    """
    d = len(x)
    hessian = np.empty((d, d))
    for k in range(d):
        step = np.zeros(d)
        step[k] = _STEP
        hessian[k] = (model(x + step)[1] - model(x - step)[1]) / (2 * _STEP)
    r, unit = model.features.distances(x)
    jacobian = model.features.jacobian(unit, np.ones(len(r))).toarray()
    stretch, motions = np.linalg.eigh(jacobian.T @ jacobian)
    rigid = motions[:, stretch < 1e-6]
    modes = np.linalg.eigh(0.5 * (hessian + hessian.T) + 1e4 * rigid @ rigid.T)[1]
    return np.asarray(modes[:, 0])
