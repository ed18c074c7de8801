"""Kernels of the distance alone: a new one writes its profile, everything else is here.

k(x, x') = θ₀ p(|x−x'|²/l²). `profile(u)` gives p, p′ and p″ at u = |x−x'|²/l², with p(0) = 1. The
loops are NumPy's; `RBF` shows how a kernel replaces them by compiled ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.gp.kernels.base import Block, KernelBase, SelfSum
from nugget.gp.points import Points


@dataclass(frozen=True)
class StationaryKernel(KernelBase):
    """A kernel of |x−x'|/length_scale; the amplitude θ₀ is a variance."""

    length_scale: float = 20.0
    amplitude: float = 1.0

    def __post_init__(self) -> None:
        for name in ("length_scale", "amplitude"):
            value = getattr(self, name)
            if not (np.isfinite(value) and value > 0):
                raise NuggetError(
                    f"{type(self).__name__} {name} is {value}; it must be a positive number."
                )
            object.__setattr__(self, name, float(value))

    def profile(self, u: Floats) -> tuple[Floats, Floats, Floats]:
        """p, p′ and p″ at u = |x−x'|²/l², with p(0) = 1."""
        raise NotImplementedError

    def block(self, z: Floats, columns: Ints) -> Block:
        return StationaryBlock(self, z, columns)

    def self_sum(self, points: Points) -> SelfSum:
        """Σ_{i,j∈s} k(x_i, x_j) of every structure."""
        return StationarySelfSum(self, points)

    def tangent_variance(self, x: Floats, group: Ints, tangents: Floats) -> Floats:
        """Σ_ij v_i·(∂²k/∂x_i∂x_j)·v_j, where ∂²k/∂x∂x' = −(2θ₀/l²)(p′ + 2p″ ddᵀ/l²), d = x − x'."""
        l2 = self.length_scale**2
        _, first, second = self.profile(_squares(x, x) / l2)
        same = (group[:, None] == group[None, :]) * self.amplitude / l2
        first, second = -2.0 * same * first, 4.0 * same * second / l2
        out = np.empty(len(tangents))
        for t, v in enumerate(tangents):
            along = v @ x.T  # v_i·x_j
            d = np.diagonal(along)[:, None] - along  # v_i·(x_i − x_j)
            out[t] = np.sum(first * (v @ v.T) + second * d * d.T)
        return out

    def log_gradients(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> dict[str, Floats]:
        """∂k/∂log l = −2θ₀ u p′ and ∂k/∂log θ₀ = k."""
        u = _squares(x, z) / self.length_scale**2
        value, first, _ = self.profile(u)
        same = (gx[:, None] == gz[None, :]) * self.amplitude
        return {"length_scale": -2.0 * same * u * first, "amplitude": same * value}


def _squares(x: Floats, z: Floats) -> Floats:
    """|x_i − z_j|² by direct differences, row by row: no digits are lost, no (n, m, f) is made."""
    out = np.empty((len(x), len(z)))
    for i, row in enumerate(x):
        d = z - row
        out[i] = np.einsum("jf,jf->j", d, d)
    return out


class StationaryBlock:
    """The inducing points of one group, centred on their mean and divided by l.

    |x−z|² = |x|² + |z|² − 2x·z loses digits when features are large and close together; centred,
    the three terms are no larger than the spread of the data.
    """

    def __init__(self, kernel: StationaryKernel, z: Floats, columns: Ints) -> None:
        self.kernel, self.columns = kernel, columns
        self.scale = 1.0 / kernel.length_scale
        self.centre = z.mean(axis=0)
        self.zt = np.ascontiguousarray(((z - self.centre) * self.scale).T)

    def _evaluate(self, x: Floats) -> tuple[Floats, Floats, Floats]:
        """x̃, k and the slopes g = −2θ₀p′."""
        xs = (x - self.centre) * self.scale
        square = np.einsum("ij,ij->i", xs, xs)[:, None] + np.einsum("fj,fj->j", self.zt, self.zt)
        value, first, _ = self.kernel.profile(np.maximum(square - 2.0 * xs @ self.zt, 0.0))
        theta = self.kernel.amplitude
        return xs, theta * value, -2.0 * theta * first

    def matrix(self, x: Floats) -> Floats:
        return self._evaluate(x)[1]

    def gram(self) -> Floats:
        k = self.matrix(self.zt.T / self.scale + self.centre)
        k = 0.5 * (k + k.T)
        np.fill_diagonal(k, self.kernel.amplitude)
        return k

    def forward(self, x: Floats, offsets: Ints) -> tuple[Floats, Floats, Floats, Floats]:
        xs, k, slopes = self._evaluate(x)
        k_sum = np.array([k[a:b].sum(axis=0) for a, b in pairwise(offsets)])
        return xs, k, k_sum.reshape(len(offsets) - 1, k.shape[1]), slopes

    def vjp(self, xs: Floats, slopes: Floats, offsets: Ints, weights: Floats) -> Floats:
        """Σ_j w_j g_ij (z̃_j − x̃_i)/l."""
        if weights.ndim == 1:
            weighted = slopes * weights
            return self._products(weighted, xs)
        owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
        return np.array([self._products(slopes * one[owner], xs) for one in weights]).reshape(
            len(weights), *xs.shape
        )

    def _products(self, weighted: Floats, xs: Floats) -> Floats:
        return self.scale * (weighted @ self.zt.T - weighted.sum(axis=1)[:, None] * xs)


class StationarySelfSum:
    """k_ss = Σ_{i,j∈s} k(x_i, x_j): `value` (B,), and its vector-Jacobian product."""

    def __init__(self, kernel: StationaryKernel, points: Points) -> None:
        self.points = points
        self._slopes: list[Floats] = []
        values = []
        for a, b in pairwise(points.offsets):
            x, group = points.x[a:b], points.group[a:b]
            value, first, _ = kernel.profile(_squares(x, x) / kernel.length_scale**2)
            same = (group[:, None] == group[None, :]) * kernel.amplitude
            values.append(float(np.sum(same * value)))
            self._slopes.append(-4.0 * same * first / kernel.length_scale**2)
        self.value = np.array(values)

    def vjp(self, weights: Floats) -> Floats:
        """Gradient (n, f) of Σ_s weights_s k_ss with respect to the features."""
        p = self.points
        out = np.zeros_like(p.x)
        for s, slopes in enumerate(self._slopes):
            rows = slice(p.offsets[s], p.offsets[s + 1])
            x = p.x[rows]
            out[rows] = weights[s] * (slopes @ x - slopes.sum(axis=1)[:, None] * x)
        return out
