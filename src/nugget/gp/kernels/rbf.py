"""The squared-exponential kernel, forward and back.

k(x, x') = θ₀ exp(−|x−x'|²/2l²) within a group, 0 between groups. `RBF.inducing(z, gz)` precomputes
what depends on the inducing points only; its `forward(points)` gives the kernel rows and their sums
per structure, and `KernelRows.pullback` takes weights on those sums back to the features.
`Inducing.roads` is both ways and the committee in between, without keeping k.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from nugget._compiled.simd import aligned
from nugget.errors import NuggetError
from nugget.gp._std_loops import sigma_roads
from nugget.gp.kernels._exponential import exponentials, exponentials_symmetric
from nugget.gp.kernels._fused import there_and_back
from nugget.gp.kernels._loops import (
    all_equal,
    forward_rows,
    scaled,
    self_sums,
    self_sums_pullback,
)
from nugget.gp.kernels._tiles import pullback_rows
from nugget.gp.points import Points

Array = NDArray[np.float64]
Ints = NDArray[np.int64]

_NOTHING = np.empty(0)


@dataclass(frozen=True)
class RBF:
    """k(x, x') = amplitude · exp(−|x−x'|²/2 length_scale²); the amplitude θ₀ is a variance."""

    length_scale: float = 20.0
    amplitude: float = 1.0

    def __post_init__(self) -> None:
        for name in ("length_scale", "amplitude"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise NuggetError(f"RBF {name} is {value}; it must be a positive number.")

    def inducing(self, z: Array, gz: Ints) -> "Inducing":
        """Inducing points, made ready for many calls of `forward`."""
        return Inducing(self, np.ascontiguousarray(z, float), np.ascontiguousarray(gz, np.int64))

    def forward(self, points: Points, z: Array, gz: Ints) -> "KernelRows":
        """Kernel rows of all points and their sums per structure (see `Inducing.forward`)."""
        return self.inducing(z, gz).forward(points)

    def matrix(self, x: Array, gx: Ints, z: Array, gz: Ints) -> Array:
        """The plain kernel matrix (n, m), zero across groups."""
        return self.inducing(z, gz).matrix(x, gx)

    def gram(self, z: Array, gz: Ints) -> Array:
        """K_mm: symmetric to the last bit, with exactly θ₀ on the diagonal."""
        return self.inducing(z, gz).gram

    def log_length_gradient(self, k: Array) -> Array:
        """∂K/∂log l = K∘d²/l², from K itself (d²/2l² = log θ₀ − log K; 0 where K is 0)."""
        with np.errstate(divide="ignore", invalid="ignore"):
            gradient = 2.0 * k * (np.log(self.amplitude) - np.log(k))
        return np.where(k > 0.0, np.maximum(gradient, 0.0), 0.0)

    def log_amplitude_gradient(self, k: Array) -> Array:
        """∂K/∂log θ₀ = K."""
        return k

    def self_sum(self, points: Points) -> "SelfSum":
        """Σ_{i,j∈s} k(x_i, x_j) of every structure, with its way back (by direct differences)."""
        value = np.empty(len(points))
        scale = 1.0 / self.length_scale
        self_sums(points.x, points.group, points.offsets, scale, self.amplitude, value)
        return SelfSum(value, points, self)


@dataclass(frozen=True)
class SelfSum:
    """k_ss = Σ_{i,j∈s} k(x_i, x_j): `value` (B,), and its adjoint."""

    value: Array
    points: Points
    kernel: RBF

    def pullback(self, weights: Array) -> Array:
        """Gradient (n, f) of Σ_s weights_s k_ss with respect to the features."""
        p, kernel = self.points, self.kernel
        out = np.zeros_like(p.x)
        weights = np.ascontiguousarray(weights, float)
        scale = 1.0 / kernel.length_scale
        self_sums_pullback(p.x, p.group, p.offsets, scale, kernel.amplitude, weights, out)
        return out


class _Block:
    """The inducing points of one group, centred on their mean and divided by l.

    |x−z|² = |x|² + |z|² − 2x·z loses digits when features are large and close together; centred,
    the three terms are no larger than the spread of the data.
    """

    def __init__(self, kernel: RBF, z: Array, columns: Ints) -> None:
        self.columns = columns
        self.amplitude = kernel.amplitude
        self.scale = 1.0 / kernel.length_scale
        self.centre = z.mean(axis=0)
        self.zt = aligned(((z - self.centre) * self.scale).T)
        self.half = 0.5 * np.einsum("ij,ij->j", self.zt, self.zt)

    def scaled(self, x: Array) -> tuple[Array, Array]:
        """x in the block's coordinates, and |x|²/2 there."""
        xs, half = np.empty_like(x), np.empty(x.shape[0])
        scaled(x, self.centre, self.scale, xs, half)
        return xs, half

    def matrix(self, x: Array) -> Array:
        xs, half = self.scaled(x)
        k = xs @ self.zt
        exponentials(k, half, self.half, self.amplitude)
        return k

    def gram(self) -> Array:
        k = self.zt.T @ self.zt
        exponentials_symmetric(k, self.half, self.amplitude)
        return k

    def forward(self, x: Array, offsets: Ints) -> tuple[Array, Array, Array]:
        rows: tuple[Array, Array, Array] = forward_rows(
            x, self.centre, self.scale, self.zt, self.half, self.amplitude, offsets
        )
        return rows

    def pullback(self, xs: Array, k: Array, offsets: Ints, weights: Array) -> Array:
        """Σ_j w_j k_ij (z_j − x_i)/l² for weights (m,) or (R, B, m): (n, f) or (R, n, f)."""
        n, m = k.shape
        if weights.ndim == 1:
            return self.pullback(xs, k, np.array([0, n]), weights.reshape(1, 1, m))[0]
        found = np.empty((len(weights), *xs.shape))
        pullback_rows(k, weights, offsets, self.zt, xs, self.scale, found, 0)
        return found


class Inducing:
    """Inducing points z (m, f) with groups gz (m,), ready for the kernel `kernel`."""

    def __init__(self, kernel: RBF, z: Array, group: Ints) -> None:
        if z.ndim != 2 or group.shape != z.shape[:1]:
            raise NuggetError(
                f"Inducing points have shape {z.shape} and groups {group.shape}; "
                "give one row of features and one group number per inducing point."
            )
        self.kernel, self.z, self.group = kernel, z, group
        labels = np.unique(group)
        self._blocks = {
            int(g): _Block(kernel, z[group == g], np.flatnonzero(group == g)) for g in labels
        }
        self._only = int(labels[0]) if labels.size == 1 else None

    def __len__(self) -> int:
        return int(self.z.shape[0])

    @cached_property
    def gram(self) -> Array:
        """K_mm: symmetric to the last bit, with exactly θ₀ on the diagonal."""
        if self._only is not None:
            return self._blocks[self._only].gram()
        k = np.zeros((len(self), len(self)))
        for block in self._blocks.values():
            k[np.ix_(block.columns, block.columns)] = block.gram()
        return k

    def _check(self, x: Array) -> None:
        if x.ndim != 2 or x.shape[1] != self.z.shape[1]:
            raise NuggetError(
                f"Features have shape {x.shape}, but the inducing points have {self.z.shape[1]} "
                "features; use the descriptor that the model was trained with."
            )

    def _alone(self, gx: Ints) -> bool:
        """True when all rows and all inducing points are of one group: no copies needed."""
        return self._only is not None and bool(all_equal(gx, self._only))

    def matrix(self, x: Array, gx: Ints) -> Array:
        """The plain kernel matrix (n, m), zero across groups."""
        x = np.ascontiguousarray(x, float)
        self._check(x)
        if self._alone(gx):
            return self._blocks[int(self._only or 0)].matrix(x)
        k = np.zeros((x.shape[0], len(self)))
        for g, block in self._blocks.items():
            rows = np.flatnonzero(gx == g)
            if rows.size:
                k[np.ix_(rows, block.columns)] = block.matrix(x[rows])
        return k

    def forward(self, points: Points) -> "KernelRows":
        """Kernel rows k (n, m) and κ_s = Σ_{i∈s} k_i (B, m) in one pass."""
        self._check(points.x)
        if self._alone(points.group):
            block = self._blocks[int(self._only or 0)]
            xs, k, kappa = block.forward(points.x, points.offsets)
            return KernelRows(kappa, points, len(self), [_Part(block, None, points.offsets, xs, k)])
        parts, kappa = [], np.zeros((len(points), len(self)))
        for g, block in self._blocks.items():
            mask = points.group == g
            rows = np.flatnonzero(mask)
            offsets = np.concatenate([[0], np.cumsum(mask)])[points.offsets]
            xs, k, part = block.forward(points.x[rows], offsets)
            kappa[:, block.columns] = part
            parts.append(_Part(block, rows, offsets, xs, k))
        return KernelRows(kappa, points, len(self), parts)

    def roads(
        self,
        points: Points,
        sizes: Ints,
        alpha: Array,
        mixes: Array,
        columns: tuple[Array, Array] | None = None,
        own: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        """κα (B,), σ (B,), and gradients (R, n, f) by features of c_E·κα + c_σ·σ.

        `mixes` (R, 2) holds one pair (c_E, c_σ) per question. σ is |κW + Nρ| with `columns`
        (Wᵀ, ρ), or the root of `own` − |κW + Nρ|² if there are prior variances, whose share of the
        gradients is left to the caller; without columns it is 0.
        """
        self._check(points.x)
        if self._alone(points.group):
            wt, rho = columns or _no_columns(len(self))
            block = self._blocks[int(self._only or 0)]
            fused: tuple[Array, Array, Array] = there_and_back(
                points.x, block.centre, block.scale, block.zt, block.half, block.amplitude,
                points.offsets, sizes, alpha, mixes, wt, rho, _NOTHING if own is None else own,
            )  # fmt: skip
            return fused
        return self.forward(points).roads(sizes, alpha, mixes, columns, own)


def _no_columns(m: int) -> tuple[Array, Array]:
    return np.empty((0, m)), _NOTHING


class _Part(NamedTuple):
    """One group's share of a forward pass; `rows` is None when it is all of it."""

    block: _Block
    rows: Ints | None
    offsets: Ints
    xs: Array
    k: Array


class KernelRows(NamedTuple):
    """What went forward: `kappa` (B, m), `k` (n, m), and the way back to the features."""

    kappa: Array
    points: Points
    n_inducing: int
    parts: list[_Part]

    @property
    def k(self) -> Array:
        """Kernel rows (n, m), zero across groups."""
        if self.parts and self.parts[0].rows is None:
            return self.parts[0].k
        k = np.zeros((self.points.x.shape[0], self.n_inducing))
        for part in self.parts:
            if part.rows is not None:
                k[np.ix_(part.rows, part.block.columns)] = part.k
        return k

    def pullback(self, weights: Array) -> Array:
        """Gradient of Σ_s weights_s·κ_s with respect to the features.

        Weights (m,) are common to all structures and (B, m) belong to one each: the answer is
        (n, f). Weights (R, B, m) are R questions at once: the answer is (R, n, f).
        """
        weights = np.ascontiguousarray(weights, float)
        if weights.ndim == 2:
            return self.pullback(weights[None])[0]
        first = self.parts[0] if self.parts else None
        if first is not None and first.rows is None:
            return first.block.pullback(first.xs, first.k, first.offsets, weights)
        out = np.zeros((*weights.shape[:-2], *self.points.x.shape))
        for part in self.parts:
            own = np.ascontiguousarray(weights[..., part.block.columns])
            out[..., part.rows, :] = part.block.pullback(part.xs, part.k, part.offsets, own)
        return out

    def roads(
        self,
        sizes: Ints,
        alpha: Array,
        mixes: Array,
        columns: tuple[Array, Array] | None = None,
        own: Array | None = None,
    ) -> tuple[Array, Array, Array]:
        """`Inducing.roads`, from rows that are already there."""
        wt, rho = columns or _no_columns(self.n_inducing)
        mean, sigma, weights = sigma_roads(
            self.kappa, sizes, alpha, mixes, wt, rho, _NOTHING if own is None else own
        )
        return mean, sigma, self.pullback(weights)
