"""The contract of kernels, and what all kernels share: groups, inducing points, sums per structure.

A kernel k(x, x') is the covariance of the energies of two local environments of the same group;
between groups it is zero. A new kernel inherits from `KernelBase` and writes six short methods:
`covariance`, `diagonal`, the first derivative contracted from either side (`pullback` and
`derivatives`), `second_derivatives`, and `log_gradients` if its hyper-parameters can be optimised.
Kernels of the distance alone write one function instead (`nugget.gp.kernels.stationary`).

`Inducing` holds the inducing points of all groups, each group prepared as a `Block`. Its forward
pass returns `KernelRows`, which also runs the backward pass. A kernel with compiled loops, such as
`RBF`, replaces the general block by its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple, Protocol

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.loops import all_equal, std_and_weights
from nugget.gp.points import Points
from nugget.numerics.arrays import Floats, Ints

Columns = tuple[Floats, Floats]  # (Wᵀ, ρ) of a linear uncertainty
ALL_FEATURES = slice(None)
NOTHING = np.empty(0)


def sum_of(terms: list[Floats]) -> Floats:
    """The sum of all terms; a single term is returned without a copy."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def take(x: Floats, features: slice) -> Floats:
    """Columns of x as the contiguous array that the compiled loops read."""
    return x if features == ALL_FEATURES else np.ascontiguousarray(x[:, features])


def no_columns(m: int) -> Columns:
    """The columns of an uncertainty that is zero everywhere."""
    return np.empty((0, m)), NOTHING


# --- Contracts ------------------------------------------------------------------------------------


class Kernel(Protocol):
    """What models use of a kernel."""

    @property
    def n_features(self) -> int | None:
        """The number of features that the kernel takes; None if it takes any number."""

    def diagonal(self, x: Floats) -> Floats:
        """k(x_i, x_i) (n,): the prior variance of each environment's energy."""

    def block(self, z: Floats, columns: Ints) -> Block:
        """The inducing points z (m, f) of one group, prepared."""

    def inducing(self, z: Floats, group: Ints) -> Inducing:
        """Inducing points of all groups, prepared for many calls."""

    def matrix(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> Floats:
        """The kernel matrix (n, m), zero between groups."""

    def self_sum(self, points: Points) -> SelfSum:
        """Σ_{i,j∈s} k(x_i, x_j) of every structure."""

    def tangent_variance(self, x: Floats, group: Ints, tangents: Floats) -> Floats:
        """Σ_ij v_i·(∂²k/∂x_i∂x_j)·v_j (t,) for each tangent v (n, f) of `tangents` (t, n, f).

        This is the prior variance of the derivative of Σ_i E(x_i) along v.
        """

    def log_gradients(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> dict[str, Floats]:
        """∂k/∂log θ (n, m) of every hyper-parameter θ that can be optimised, by name."""


class Block(Protocol):
    """The inducing points of one group, prepared for many calls."""

    columns: Ints  # indices of this group's inducing points among all

    def matrix(self, x: Floats) -> Floats:
        """k (n, m)."""

    def gram(self) -> Floats:
        """K_mm, symmetric to the last bit."""

    def forward(self, x: Floats, offsets: Ints) -> Forward:
        """Kernel rows, their sums per structure, and the block's own data for the backward pass."""

    def vjp(self, saved: Any, offsets: Ints, weights: Floats) -> Floats:
        """Σ_j w_j ∂k_ij/∂x_i for weights (m,) or (R, B, m): (n, f) or (R, n, f)."""

    def derivatives(self, saved: Any, tangents: Floats, rows: Ints) -> Derivatives:
        """v·∂k_ij/∂x_i for tangents v (P, 3, f) of the environments i = rows (P,)."""


class Forward(NamedTuple):
    """A block's forward pass."""

    k: Floats  # (n, m)
    k_sum: Floats  # (B, m)
    saved: Any  # whatever the block's `vjp` and `derivatives` need


class Derivatives(NamedTuple):
    """Directional derivatives (P, 3, m) in factors: (product − own)·slopes[rows]·scale.

    The factors of an RBF kernel are cheaper than the array itself, which large training sets with
    forces would otherwise hold in memory.
    """

    product: Floats  # (P, 3, m)
    own: Floats  # (P, 3)
    slopes: Floats  # (n, m)
    scale: float


class SelfSum(Protocol):
    """k_ss = Σ_{i,j∈s} k(x_i, x_j) of every structure."""

    @property
    def value(self) -> Floats:
        """(B,)."""

    def vjp(self, weights: Floats) -> Floats:
        """Gradient (n, f) of Σ_s weights_s k_ss with respect to the features."""


Blocks = list[tuple[slice, Block]]


class KernelBase:
    """Everything that follows from k, its derivatives and its diagonal. New kernels inherit it."""

    @property
    def n_features(self) -> int | None:
        """Any number of features, unless a kernel overrides this."""
        return None

    def covariance(self, x: Floats, z: Floats) -> Floats:
        """k(x_i, z_j) (n, m) within one group."""
        raise NotImplementedError

    def diagonal(self, x: Floats) -> Floats:
        """k(x_i, x_i) (n,)."""
        raise NotImplementedError

    def pullback(self, x: Floats, z: Floats, weights: Floats) -> Floats:
        """Σ_j w_ij ∂k(x_i, z_j)/∂x_i (n, f) for weights (n, m)."""
        raise NotImplementedError

    def derivatives(self, x: Floats, z: Floats, tangents: Floats) -> Floats:
        """v_ic·∂k(x_i, z_j)/∂x_i (n, c, m) for tangents v (n, c, f)."""
        raise NotImplementedError

    def second_derivatives(self, x: Floats, tangents: Floats) -> Iterable[Floats]:
        """v_i·(∂²k(x_i, x_j)/∂x_i∂x_j)·v_j (n, n), one matrix per tangent v (n, f)."""
        raise NotImplementedError

    def log_gradients(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> dict[str, Floats]:
        """No hyper-parameter can be optimised, unless a kernel overrides this."""
        return {}

    def block(self, z: Floats, columns: Ints) -> Block:
        return GeneralBlock(self, z, columns)

    def blocks(self, z: Floats, columns: Ints) -> Blocks:
        """The blocks whose sum is the kernel, each with the features that it takes."""
        return [(ALL_FEATURES, self.block(z, columns))]

    def inducing(self, z: Floats, group: Ints) -> Inducing:
        return Inducing(self.blocks, z, group)

    def matrix(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> Floats:
        return self.inducing(z, gz).matrix(x, gx)

    def self_sum(self, points: Points) -> SelfSum:
        return GeneralSelfSum(self, points)

    def tangent_variance(self, x: Floats, group: Ints, tangents: Floats) -> Floats:
        same = group[:, None] == group[None, :]
        return np.array([np.sum(same * one) for one in self.second_derivatives(x, tangents)])


# --- General blocks: any kernel, in NumPy ---------------------------------------------------------


class GeneralBlock:
    """Inducing points of one group for a kernel without loops of its own."""

    def __init__(self, kernel: KernelBase, z: Floats, columns: Ints) -> None:
        self.kernel, self.z, self.columns = kernel, z, columns

    def matrix(self, x: Floats) -> Floats:
        return self.kernel.covariance(x, self.z)

    def gram(self) -> Floats:
        k = self.matrix(self.z)
        k = 0.5 * (k + k.T)
        np.fill_diagonal(k, self.kernel.diagonal(self.z))
        return k

    def forward(self, x: Floats, offsets: Ints) -> Forward:
        k = self.matrix(x)
        k_sum = np.array([k[a:b].sum(axis=0) for a, b in pairwise(offsets)])
        return Forward(k, k_sum.reshape(len(offsets) - 1, k.shape[1]), x)

    def vjp(self, saved: Any, offsets: Ints, weights: Floats) -> Floats:
        x: Floats = saved
        if weights.ndim == 1:
            return self.kernel.pullback(x, self.z, np.broadcast_to(weights, (len(x), len(self.z))))
        owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        pulled = [self.kernel.pullback(x, self.z, one[owner]) for one in weights]
        return np.array(pulled).reshape(len(weights), *x.shape)

    def derivatives(self, saved: Any, tangents: Floats, rows: Ints) -> Derivatives:
        product = self.kernel.derivatives(saved[rows], self.z, tangents)
        slopes = np.ones((len(saved), len(self.z)))
        return Derivatives(product, np.zeros(product.shape[:2]), slopes, 1.0)


class GeneralSelfSum:
    """Self sums of a kernel without loops of its own, structure by structure."""

    def __init__(self, kernel: KernelBase, points: Points) -> None:
        self.kernel, self.points = kernel, points

    @cached_property
    def value(self) -> Floats:
        """(B,)."""
        return np.array(
            [np.sum(same * self.kernel.covariance(x, x)) for _, x, same in self._structures()]
        )

    def vjp(self, weights: Floats) -> Floats:
        """Gradient (n, f) of Σ_s weights_s k_ss; k is symmetric, hence the factor 2."""
        out = np.zeros_like(self.points.x)
        for s, (rows, x, same) in enumerate(self._structures()):
            out[rows] = 2.0 * weights[s] * self.kernel.pullback(x, x, same)
        return out

    def _structures(self) -> Iterable[tuple[slice, Floats, Floats]]:
        """Rows, features and equality of groups (1.0 or 0.0) of each structure."""
        for a, b in pairwise(self.points.offsets):
            group = self.points.group[a:b]
            yield slice(a, b), self.points.x[a:b], np.equal.outer(group, group).astype(float)


# --- Forward and backward passes over all groups --------------------------------------------------


class Part(NamedTuple):
    """One block's share of a forward pass; `rows` is None when there is only one group."""

    block: Block
    rows: Ints | None
    offsets: Ints
    k: Floats
    saved: Any
    features: slice = ALL_FEATURES

    def derivatives(self, tangents: Floats, rows: Ints) -> Derivatives:
        """Derivatives of k along tangents (P, 3, f) of all features, for local rows (P,)."""
        return self.block.derivatives(self.saved, tangents[:, :, self.features], rows)


class KernelRows(NamedTuple):
    """A forward pass: `k_sum` (B, m), `k` (n, m), and its vector-Jacobian product."""

    k_sum: Floats
    points: Points
    n_inducing: int
    parts: list[Part]

    @property
    def k(self) -> Floats:
        """Kernel rows (n, m), zero between groups."""
        if self.parts and self.parts[0].rows is None:
            return sum_of([part.k for part in self.parts])
        k = np.zeros((self.points.x.shape[0], self.n_inducing))
        for part in self.parts:
            if part.rows is not None:
                k[np.ix_(part.rows, part.block.columns)] += part.k
        return k

    def vjp(self, weights: Floats) -> Floats:
        """Gradient of Σ_s weights_s·k_sum_s with respect to the features.

        Weights (m,) are common to all structures and (B, m) belong to one each: the result is
        (n, f). Weights (R, B, m) are R cotangents at once: the result is (R, n, f).
        """
        weights = np.ascontiguousarray(weights, float)
        if weights.ndim == 2:
            return self.vjp(weights[None])[0]
        first = self.parts[0] if self.parts else None
        if first is not None and first.rows is None and first.features == ALL_FEATURES:
            return first.block.vjp(first.saved, first.offsets, weights)
        out = np.zeros((*weights.shape[:-2], *self.points.x.shape))
        for part in self.parts:
            own = np.ascontiguousarray(weights[..., part.block.columns])
            rows = slice(None) if part.rows is None else part.rows
            out[..., rows, part.features] += part.block.vjp(part.saved, part.offsets, own)
        return out

    def value_and_grad(
        self,
        sizes: Ints,
        alpha: Floats,
        coefficients: Floats,
        columns: Columns | None = None,
        variance: Floats | None = None,
        sign: float = 1.0,
    ) -> tuple[Floats, Floats, Floats]:
        """`Inducing.value_and_grad` for kernel rows that were computed before."""
        wt, rho = columns or no_columns(self.n_inducing)
        mean, std, weights = std_and_weights(
            self.k_sum, sizes, alpha, coefficients, wt, rho,
            NOTHING if variance is None else variance, sign,
        )  # fmt: skip
        return mean, std, self.vjp(weights)


class Inducing:
    """Inducing points z (m, f) with groups (m,), prepared group by group."""

    def __init__(self, blocks: Callable[[Floats, Ints], Blocks], z: Floats, group: Ints) -> None:
        z, group = np.ascontiguousarray(z, float), np.ascontiguousarray(group, np.int64)
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
        """The blocks of the only group, if all rows and all inducing points belong to one."""
        if self._only is None or not all_equal(gx, self._only):
            return None
        return self._blocks[self._only]

    def matrix(self, x: Floats, gx: Ints) -> Floats:
        """The kernel matrix (n, m), zero between groups."""
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
            passes = [_part(one, points.x, None, points.offsets) for one in whole]
            k_sum = sum_of([partial for partial, _ in passes])
            return KernelRows(k_sum, points, len(self), [part for _, part in passes])
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
        variance: Floats | None = None,
        sign: float = 1.0,
    ) -> tuple[Floats, Floats, Floats]:
        """Means k_sum·α (B,), stds (B,), and gradients (R, n, f) by features of c_E·mean + c_σ·std.

        `coefficients` (R, 2) holds one pair (c_E, c_σ) per gradient: (1, 0) for the mean, (0, 1)
        for the std, (1, −κ) for the lower confidence bound. The std is |k_sum W + Nρ| with
        `columns` (Wᵀ, ρ), or the root of `variance` + `sign`·|k_sum W + Nρ|²; the caller adds the
        gradient of `variance`. Without columns the std is 0.
        """
        rows = self.forward(points)
        return rows.value_and_grad(sizes, alpha, coefficients, columns, variance, sign)


def _matrix(blocks: Blocks, x: Floats) -> Floats:
    return sum_of([block.matrix(take(x, features)) for features, block in blocks])


def _part(
    one: tuple[slice, Block], x: Floats, rows: Ints | None, offsets: Ints
) -> tuple[Floats, Part]:
    """One block's forward pass: its sums per structure, and its part of the rows."""
    features, block = one
    k, k_sum, saved = block.forward(take(x, features), offsets)
    return k_sum, Part(block, rows, offsets, k, saved, features)
