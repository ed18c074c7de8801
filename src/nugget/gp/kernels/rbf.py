"""The squared-exponential kernel k(x, x') = θ₀ exp(−|x−x'|²/2l²), in compiled loops."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, cast

import numpy as np

from nugget.gp.kernels.base import (
    NOTHING,
    Block,
    Columns,
    Derivatives,
    Forward,
    Inducing,
    SelfSum,
    no_columns,
)
from nugget.gp.kernels.rbf_loops import (
    LOG2E,
    Pack,
    exponentials,
    exponentials_symmetric,
    fused_value_and_grad,
    kernel_rows,
    kernel_rows_vjp,
    scaled,
    self_sums,
    self_sums_vjp,
)
from nugget.gp.kernels.stationary import StationaryKernel
from nugget.gp.points import Points
from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.simd import aligned
from nugget.numerics.tiles import WIDTH, packed
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
    the three terms are no larger than the spread of the data.
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
        """The same points in the layout of the tiles."""
        return pack_of({0: self})

    def forward(self, x: Floats, offsets: Ints) -> Forward:
        xs, k, k_sum = kernel_rows(x, offsets, self.pack)
        return Forward(k, k_sum, (xs, k))

    def vjp(self, saved: Any, offsets: Ints, weights: Floats) -> Floats:
        """Σ_j w_j k_ij (z̃_j − x̃_i)/l for weights (m,) or (R, B, m): (n, f) or (R, n, f)."""
        xs, k = saved
        n, m = k.shape
        if weights.ndim == 1:
            return self.vjp(saved, np.array([0, n]), weights.reshape(1, 1, m))[0]
        pulled: Floats = kernel_rows_vjp(k, xs, offsets, weights, self.pack)
        return pulled

    def derivatives(self, saved: Any, tangents: Floats, rows: Ints) -> Derivatives:
        """k_ij v·(z̃_j − x̃_i)/l in factors: one matrix product of all tangents with z̃."""
        xs, k = saved
        p, axes, f = tangents.shape
        product = (tangents.reshape(p * axes, f) @ self.zt).reshape(p, axes, len(self.columns))
        return Derivatives(product, np.einsum("pcf,pf->pc", tangents, xs[rows]), k, self.scale)


class RBFInducing(Inducing):
    """Inducing points whose forward and backward passes are one compiled call for all groups."""

    @cached_property
    def pack(self) -> Pack:
        """The points of all groups in the layout of the tiles."""
        blocks = {g: cast(RBFBlock, parts[0][1]) for g, parts in self._blocks.items()}
        if len(blocks) > 1:
            return pack_of(blocks)
        return next(iter(blocks.values())).pack._replace(labels=np.array(list(blocks)))

    def value_and_grad(
        self,
        points: Points,
        sizes: Ints,
        alpha: Floats,
        coefficients: Floats,
        columns: Columns | None = None,
        variance: Floats | None = None,
        sign: float = 1.0,
    ) -> tuple[Floats, Floats, Floats]:
        self._check(points.x)
        fused: tuple[Floats, Floats, Floats] = fused_value_and_grad(
            points.x, points.group, points.offsets, sizes, alpha, coefficients,
            *(columns or no_columns(len(self))),
            NOTHING if variance is None else variance, sign, *self.pack,
        )  # fmt: skip
        return fused


def pack_of(blocks: dict[int, RBFBlock]) -> Pack:
    """The blocks of a kernel, one per group, in the layout of the tiles.

    A single block is packed with its own columns only.
    """
    parts = list(blocks.values())
    columns = [part.columns for part in parts]
    if len(parts) == 1:
        columns = [np.arange(len(columns[0]))]
    f, m = parts[0].zt.shape[0], sum(len(own) for own in columns)
    forward = [packed(part.zt) for part in parts]
    panels = np.concatenate([[0], np.cumsum([len(part) for part in forward])])
    half = np.zeros(panels[-1] * WIDTH)
    rows = np.zeros((panels[-1] * WIDTH, f + 1))
    place = np.empty(m, dtype=np.int64)
    for start, part, own in zip(panels[:-1] * WIDTH, parts, columns, strict=True):
        mine = slice(start, start + len(own))
        half[mine] = LOG2E * part.half
        rows[mine, :f], rows[mine, f] = part.zt.T, 1.0
        place[own] = np.arange(mine.start, mine.stop)
    return Pack(
        labels=np.array(list(blocks), dtype=np.int64),
        centre=np.array([part.centre for part in parts]),
        scale=parts[0].scale,
        amplitude=parts[0].amplitude,
        forward=aligned(np.concatenate(forward)),
        half=half,
        panels=panels.astype(np.int64),
        counts=np.array([len(own) for own in columns], dtype=np.int64),
        place=place,
        backward=packed(rows),
    )
