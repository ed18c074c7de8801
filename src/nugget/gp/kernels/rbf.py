"""The squared-exponential kernel k(x, x') = θ₀ exp(−|x−x'|²/2l²), in compiled loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import cast

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.simd import aligned
from nugget.gp.kernels._exponential import exponentials, exponentials_symmetric
from nugget.gp.kernels._fused import value_and_grad
from nugget.gp.kernels._loops import (
    kernel_rows,
    kernel_rows_vjp,
    scaled,
    self_sums,
    self_sums_vjp,
)
from nugget.gp.kernels._tiles import Pack
from nugget.gp.kernels.base import Block, Inducing, SelfSum
from nugget.gp.kernels.rows import NOTHING, Columns, no_columns
from nugget.gp.kernels.stationary import StationaryKernel
from nugget.gp.points import Points
from nugget.registry import registered


@registered("kernel")
@dataclass(frozen=True)
class RBF(StationaryKernel):
    """k(x, x') = amplitude · exp(−|x−x'|²/2 length_scale²); the amplitude θ₀ is a variance."""

    def profile(self, u: Floats) -> tuple[Floats, Floats, Floats]:
        """e^{−u/2} and its derivatives."""
        value = np.exp(-0.5 * u)
        return value, -0.5 * value, 0.25 * value

    def block(self, z: Floats, columns: Ints) -> Block:
        return RBFBlock(self, z, columns)

    def inducing(self, z: Floats, group: Ints) -> Inducing:
        """Inducing points, made ready for many calls of `value_and_grad`."""
        z, group = np.ascontiguousarray(z, float), np.ascontiguousarray(group, np.int64)
        return RBFInducing(self.blocks, z, group)

    def self_sum(self, points: Points) -> SelfSum:
        """Σ_{i,j∈s} k(x_i, x_j) of every structure, by direct differences."""
        value = np.empty(len(points))
        scale = 1.0 / self.length_scale
        self_sums(points.x, points.group, points.offsets, scale, self.amplitude, value)
        return RBFSelfSum(value, points, self)


@dataclass(frozen=True)
class RBFSelfSum:
    """k_ss = Σ_{i,j∈s} k(x_i, x_j): `value` (B,), and its vector-Jacobian product."""

    value: Floats
    points: Points
    kernel: RBF

    def vjp(self, weights: Floats) -> Floats:
        """Gradient (n, f) of Σ_s weights_s k_ss with respect to the features."""
        p, kernel = self.points, self.kernel
        out = np.zeros_like(p.x)
        weights = np.ascontiguousarray(weights, float)
        scale = 1.0 / kernel.length_scale
        self_sums_vjp(p.x, p.group, p.offsets, scale, kernel.amplitude, weights, out)
        return out


class RBFBlock:
    """The inducing points of one group, centred on their mean and divided by l.

    |x−z|² = |x|² + |z|² − 2x·z loses digits when features are large and close together; centred,
    the three terms are no larger than the spread of the data. The slopes are k itself.
    """

    def __init__(self, kernel: RBF, z: Floats, columns: Ints) -> None:
        self.columns = columns
        self.amplitude = kernel.amplitude
        self.scale = 1.0 / kernel.length_scale
        self.centre = z.mean(axis=0)
        self.zt = aligned(((z - self.centre) * self.scale).T)
        self.half = 0.5 * np.einsum("ij,ij->j", self.zt, self.zt)

    def matrix(self, x: Floats) -> Floats:
        xs, half = np.empty_like(x), np.empty(x.shape[0])
        scaled(x, self.centre, self.scale, xs, half)
        k = xs @ self.zt
        exponentials(k, half, self.half, self.amplitude)
        return k

    def gram(self) -> Floats:
        k = self.zt.T @ self.zt
        exponentials_symmetric(k, self.half, self.amplitude)
        return k

    @cached_property
    def pack(self) -> Pack:
        """The same points as the tiles read them."""
        return Pack.of({0: self})

    def forward(self, x: Floats, offsets: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        xs, k, k_sum = kernel_rows(x, offsets, *self.pack)
        return xs, k, k_sum, k

    def vjp(self, xs: Floats, slopes: Floats, offsets: Ints, weights: Floats) -> Floats:
        """Σ_j w_j k_ij (z̃_j − x̃_i)/l for weights (m,) or (R, B, m): (n, f) or (R, n, f)."""
        n, m = slopes.shape
        if weights.ndim == 1:
            return self.vjp(xs, slopes, np.array([0, n]), weights.reshape(1, 1, m))[0]
        found: Floats = kernel_rows_vjp(slopes, xs, offsets, weights, *self.pack)
        return found


class RBFInducing(Inducing):
    """Inducing points whose forward and backward passes are one compiled call for all groups."""

    @cached_property
    def pack(self) -> Pack:
        """The points of all groups as the tiles read them."""
        blocks = {g: cast(RBFBlock, parts[0][1]) for g, parts in self._blocks.items()}
        if len(blocks) > 1:
            return Pack.of(blocks)
        return next(iter(blocks.values())).pack._replace(labels=np.array(list(blocks)))

    def value_and_grad(
        self,
        points: Points,
        sizes: Ints,
        alpha: Floats,
        coefficients: Floats,
        columns: Columns | None = None,
        prior_variance: Floats | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        self._check(points.x)
        fused: tuple[Floats, Floats, Floats] = value_and_grad(
            points.x, points.group, points.offsets, sizes, alpha, coefficients,
            *(columns or no_columns(len(self))),
            NOTHING if prior_variance is None else prior_variance, *self.pack,
        )  # fmt: skip
        return fused
