"""What a kernel is, and what all kernels share: groups, inducing points, sums per structure.

A kernel gives the covariance of two environments of the same group; between groups it is zero. Its
`block(z, columns)` prepares the inducing points of one group and owns the kernel's derivatives. The
classes here take care of groups and structures, so that a new kernel writes its block only, or, if
it depends on distances alone, one function (see `nugget.gp.kernels.stationary`).
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Protocol

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.gp.kernels._loops import all_equal
from nugget.gp.kernels.rows import (
    ALL_FEATURES,
    Columns,
    KernelRows,
    Part,
    sum_of,
    take,
)
from nugget.gp.points import Points


class Block(Protocol):
    """The inducing points of one group, ready for many calls.

    `zt` (f, m) and `scaled(x)` are features in the block's own coordinates x̃ = (x − centre)·scale.
    """

    columns: Ints  # where this group's inducing points stand among all
    zt: Floats
    scale: float

    def matrix(self, x: Floats) -> Floats:
        """k (n, m)."""

    def gram(self) -> Floats:
        """K_mm, symmetric to the last bit."""

    def forward(self, x: Floats, offsets: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        """x̃ (n, f), k (n, m), sums of k per structure (B, m), and slopes g (n, m).

        The slopes are the derivative: ∂k_ij/∂x̃_i = g_ij (z̃_j − x̃_i).
        """

    def vjp(self, xs: Floats, slopes: Floats, offsets: Ints, weights: Floats) -> Floats:
        """Σ_j w_j ∂k_ij/∂x_i for weights (m,) or (R, B, m): (n, f) or (R, n, f)."""


Blocks = list[tuple[slice, Block]]


class Kernel(Protocol):
    """Covariance of two environments of the same group."""

    @property
    def amplitude(self) -> float:
        """θ₀ = k(x, x), the prior variance of one environment's energy."""

    def block(self, z: Floats, columns: Ints) -> Block:
        """The inducing points z (m, f) of one group, prepared."""

    def inducing(self, z: Floats, group: Ints) -> Inducing:
        """Inducing points of all groups, prepared."""

    def matrix(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> Floats:
        """The plain kernel matrix (n, m), zero across groups."""

    def self_sum(self, points: Points) -> SelfSum:
        """Σ_{i,j∈s} k(x_i, x_j) of every structure."""

    def tangent_variance(self, x: Floats, group: Ints, tangents: Floats) -> Floats:
        """Prior variances (t,) of the derivatives along `tangents` (t, n, f) of all rows at once.

        Σ_ij v_i·(∂²k/∂x_i∂x_j)·v_j for the tangent v of each row.
        """

    def log_gradients(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> dict[str, Floats]:
        """∂k/∂log θ (n, m) of every hyper-parameter θ, by name."""


class KernelBase:
    """Everything that follows from `block`: inherit from this."""

    def block(self, z: Floats, columns: Ints) -> Block:
        raise NotImplementedError

    def blocks(self, z: Floats, columns: Ints) -> Blocks:
        """The blocks whose sum is the kernel, each with the features that it takes."""
        return [(ALL_FEATURES, self.block(z, columns))]

    def inducing(self, z: Floats, group: Ints) -> Inducing:
        """Inducing points, made ready for many calls of `forward`."""
        return Inducing(
            self.blocks, np.ascontiguousarray(z, float), np.ascontiguousarray(group, np.int64)
        )

    def forward(self, points: Points, z: Floats, gz: Ints) -> KernelRows:
        """Kernel rows of all points and their sums per structure (see `Inducing.forward`)."""
        return self.inducing(z, gz).forward(points)

    def matrix(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> Floats:
        """The plain kernel matrix (n, m), zero across groups."""
        return self.inducing(z, gz).matrix(x, gx)

    def gram(self, z: Floats, gz: Ints) -> Floats:
        """K_mm: symmetric to the last bit."""
        return self.inducing(z, gz).gram


class SelfSum(Protocol):
    """k_ss = Σ_{i,j∈s} k(x_i, x_j) of every structure."""

    @property
    def value(self) -> Floats:
        """(B,)."""

    def vjp(self, weights: Floats) -> Floats:
        """Gradient (n, f) of Σ_s weights_s k_ss with respect to the features."""


class Inducing:
    """Inducing points z (m, f) with groups (m,), prepared blocks of each group."""

    def __init__(self, blocks: Callable[[Floats, Ints], Blocks], z: Floats, group: Ints) -> None:
        if z.ndim != 2 or group.shape != z.shape[:1]:
            raise NuggetError(
                f"Inducing points have shape {z.shape} and groups {group.shape}; "
                "give one row of features and one group number per inducing point."
            )
        self.z, self.group = z, group
        labels = np.unique(group)
        self._blocks: dict[int, Blocks] = {
            int(g): blocks(z[group == g], np.flatnonzero(group == g)) for g in labels
        }
        self._only = int(labels[0]) if labels.size == 1 else None

    def __len__(self) -> int:
        return int(self.z.shape[0])

    @cached_property
    def gram(self) -> Floats:
        """K_mm: symmetric to the last bit."""
        if self._only is not None:
            return sum_of([block.gram() for _, block in self._blocks[self._only]])
        k = np.zeros((len(self), len(self)))
        for blocks in self._blocks.values():
            columns = blocks[0][1].columns
            k[np.ix_(columns, columns)] = sum_of([block.gram() for _, block in blocks])
        return k

    def _check(self, x: Floats) -> None:
        if x.ndim != 2 or x.shape[1] != self.z.shape[1]:
            raise NuggetError(
                f"Features have shape {x.shape}, but the inducing points have {self.z.shape[1]} "
                "features; use the descriptor that the model was trained with."
            )

    def _whole(self, gx: Ints) -> Blocks | None:
        """The only group's blocks, when all rows and all inducing points belong to it."""
        if self._only is None or not all_equal(gx, self._only):
            return None
        return self._blocks[self._only]

    def matrix(self, x: Floats, gx: Ints) -> Floats:
        """The plain kernel matrix (n, m), zero across groups."""
        x = np.ascontiguousarray(x, float)
        self._check(x)
        if (whole := self._whole(gx)) is not None:
            return _matrix(whole, x)
        k = np.zeros((x.shape[0], len(self)))
        for g, blocks in self._blocks.items():
            rows = np.flatnonzero(gx == g)
            if rows.size:
                k[np.ix_(rows, blocks[0][1].columns)] = _matrix(blocks, x[rows])
        return k

    def forward(self, points: Points) -> KernelRows:
        """Kernel rows k (n, m) and their sums per structure (B, m) in one pass."""
        self._check(points.x)
        if (whole := self._whole(points.group)) is not None:
            found = [(_part(one, points.x, None, points.offsets)) for one in whole]
            k_sum = sum_of([partial for partial, _ in found])
            return KernelRows(k_sum, points, len(self), [part for _, part in found])
        parts, k_sum = [], np.zeros((len(points), len(self)))
        for g, blocks in self._blocks.items():
            mask = points.group == g
            rows = np.flatnonzero(mask)
            offsets = np.concatenate([[0], np.cumsum(mask)])[points.offsets]
            for one in blocks:
                partial, part = _part(one, points.x[rows], rows, offsets)
                k_sum[:, part.block.columns] += partial
                parts.append(part)
        return KernelRows(k_sum, points, len(self), parts)

    def value_and_grad(
        self,
        points: Points,
        sizes: Ints,
        alpha: Floats,
        coefficients: Floats,
        columns: Columns | None = None,
        prior_variance: Floats | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        """Means k_sum·α (B,), stds (B,), and gradients (R, n, f) by features of c_E·mean + c_σ·std.

        `coefficients` (R, 2) holds one pair (c_E, c_σ) per gradient: (1, 0) for the mean, (0, 1)
        for the std, (1, −κ) for the lower confidence bound. The std is |k_sum W + Nρ| with
        `columns` (Wᵀ, ρ), or the root of `prior_variance` − |k_sum W + Nρ|², whose own share of the
        gradients is left to the caller; without columns it is 0.
        """
        rows = self.forward(points)
        return rows.value_and_grad(sizes, alpha, coefficients, columns, prior_variance)


def _matrix(blocks: Blocks, x: Floats) -> Floats:
    return sum_of([block.matrix(take(x, features)) for features, block in blocks])


def _part(
    one: tuple[slice, Block], x: Floats, rows: Ints | None, offsets: Ints
) -> tuple[Floats, Part]:
    """One block's share of a forward pass: its sums per structure, and what backward needs."""
    features, block = one
    xs, k, k_sum, slopes = block.forward(take(x, features), offsets)
    return k_sum, Part(block, rows, offsets, xs, k, slopes, features)
