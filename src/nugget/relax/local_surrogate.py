"""A Gaussian process for one structure near a minimum, from energies and gradients.

    E(x) = c + Σ_p V_kind(p)(r_p) + f(q(x))

V is one pair function per pair of elements: what one bond teaches holds for all bonds of its kind.
f knows the structure as a whole: a Matérn 5/2 process in the inverse distances q, k(q, q') =
(3l²/5)(1 + s + s²/3)e^{-s}, s = √5|q − q'|/l, so that ∂∂'k(q, q) = 1. f alone reproduces all data
in the end; V makes the first steps long and right. Weights: V ~ ρ·A, f ~ A. A follows from the
data in closed form; l and ρ climb to the largest marginal likelihood.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

import numpy as np
from scipy.linalg import LinAlgError, cho_factor, cho_solve
from scipy.sparse import block_diag, csr_matrix, hstack

from nugget._compiled.arrays import Floats
from nugget.relax.pair_features import PairFeatures

LENGTHS = (0.5, 1.0, 2.0, 4.0, 8.0)
RATIOS = (0.0, 0.1, 1.0, 10.0, 100.0)
ENERGY_NOISE, GRADIENT_NOISE = 1e-3, 3e-3  # eV, eV/Å: an engine's round-off, with room
_JITTER = 1e-9


class Point(NamedTuple):
    """What the engine said at x."""

    x: Floats  # (n_free,)
    energy: float
    gradient: Floats  # (n_free,)


class Choice(NamedTuple):
    """Which length scale l and which weight ρ of the pair functions."""

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
        q, jacobians, rows = [], [], []
        for point in points:
            r, unit = features.distances(point.x)
            here, slope = features.coordinates(r)
            q.append(here)
            jacobians.append(features.jacobian(unit, slope))
            rows.append(_pair_rows(features, r, unit))
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
        full[:, 1:, :, 1:] = c1[:, None, :, None] * self.products + c2[:, None, :, None] * outer
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
    point whose gradient is known: E + κσ bends upwards where the curvature is not known yet.
    """

    def __init__(self, features: PairFeatures, points: Sequence[Point]) -> None:
        self.features = features
        self._data = _Data.of(features, points)
        self.choice = self._climb(FIRST_CHOICE)

    def _climb(self, choice: Choice) -> Choice:
        """Go to neighbours of (l, ρ) while the marginal likelihood rises."""
        phi = self._data.phi
        shared = phi @ phi.T
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
        # The noise in units of A needs A, and A needs the noise: twice is enough.
        for _ in range(2):
            matrix = covariance.copy()
            matrix.flat[:: p + 1] += noise**2 / amplitude + _JITTER
            try:
                cholesky = cho_factor(matrix, lower=True, overwrite_a=True, check_finite=False)
            except LinAlgError:
                return -np.inf
            weights = cho_solve(cholesky, data.y, check_finite=False)
            amplitude = max(float(data.y @ weights) / p, 1e-8)
        self._state = (cholesky, weights, amplitude)
        return float(-0.5 * p * np.log(amplitude) - np.log(np.diagonal(cholesky[0])).sum())

    def _keep(self, choice: Choice, state: tuple[tuple[Floats, bool], Floats, float]) -> None:
        self._cholesky, weights, self._amplitude = state
        self._length, self._ratio = LENGTHS[choice.length], RATIOS[choice.ratio]
        self._energy_weights, self._q_weights = self._split(weights)
        self._pair_weights = self._pair_function(self._data.phi.T @ weights)

    def _split(self, weights: Floats) -> tuple[Floats, Floats]:
        """Weights of energies (n,), and those of gradients taken to coordinates, (n, P)."""
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
            """Σ of energies·k and of gradients·∂k/∂q', and its slope by q."""
            inner = np.sum(apart * gradients, axis=1)
            return energies @ k + c1 @ inner, c1 @ gradients - (energies * c1 + c2 * inner) @ apart

        energy, by_q = local(self._energy_weights, self._q_weights)
        energy += data.constant + float(np.sum(value * self._pair_weights))
        by_r = by_q * slope + np.sum(value_slope * self._pair_weights, axis=1)
        if kappa == 0.0:
            return energy, features.gradient(unit, by_r)

        # σ²/A = k(x, x) − κᵀK⁻¹κ: its gradient is that of a mean with the weights K⁻¹κ.
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
