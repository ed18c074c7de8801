"""Kernels of the distance alone: k(x, x') = θ₀ p(|x−x'|²/l²).

A new one writes `profile(u)`, which gives p, p′ and p″ at u = |x−x'|²/l², with p(0) = 1. `RBF`
shows how a kernel replaces the NumPy loops here by compiled ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.kernels.base import KernelBase
from nugget.numerics.arrays import Floats, Ints


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

    def covariance(self, x: Floats, z: Floats) -> Floats:
        return self.amplitude * self.profile(_products(x, z, 1.0 / self.length_scale)[2])[0]

    def diagonal(self, x: Floats) -> Floats:
        return np.full(len(x), self.amplitude)

    def pullback(self, x: Floats, z: Floats, weights: Floats) -> Floats:
        """Σ_j w_ij g_ij (z_j − x_i), with slopes g = −2θ₀p′/l²."""
        xs, zs, slopes = self._slopes(x, z)
        weighted = weights * slopes
        return weighted @ zs - weighted.sum(axis=1)[:, None] * xs

    def derivatives(self, x: Floats, z: Floats, tangents: Floats) -> Floats:
        """g_ij v_ic·(z_j − x_i)."""
        xs, zs, slopes = self._slopes(x, z)
        along = tangents @ zs.T - np.einsum("icf,if->ic", tangents, xs)[:, :, None]
        return slopes[:, None, :] * along

    def _slopes(self, x: Floats, z: Floats) -> tuple[Floats, Floats, Floats]:
        """Centred x and z, and the slopes g."""
        xs, zs, u = _products(x, z, 1.0 / self.length_scale)
        first = self.profile(u)[1]
        length = self.length_scale
        return xs * length, zs * length, -2.0 * self.amplitude / length**2 * first

    def second_derivatives(self, x: Floats, tangents: Floats) -> Iterator[Floats]:
        """∂²k/∂x∂x' = −(2θ₀/l²)(p′ + 2p″ ddᵀ/l²) with d = x − x', between v_i and v_j."""
        l2 = self.length_scale**2
        _, first, second = self.profile(_squares(x, x) / l2)
        factor = self.amplitude / l2
        first, second = -2.0 * factor * first, 4.0 * factor * second / l2
        for v in tangents:
            along = v @ x.T  # v_i·x_j
            d = np.diagonal(along)[:, None] - along  # v_i·(x_i − x_j)
            yield first * (v @ v.T) + second * d * d.T

    def log_gradients(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> dict[str, Floats]:
        """∂k/∂log l = −2θ₀ u p′ and ∂k/∂log θ₀ = k."""
        u = _squares(x, z) / self.length_scale**2
        value, first, _ = self.profile(u)
        same = (gx[:, None] == gz[None, :]) * self.amplitude
        return {"length_scale": -2.0 * same * u * first, "amplitude": same * value}


def _squares(x: Floats, z: Floats) -> Floats:
    """|x_i − z_j|² by direct differences, row by row, without loss of digits or an (n, m, f)."""
    out = np.empty((len(x), len(z)))
    for i, row in enumerate(x):
        d = z - row
        out[i] = np.einsum("jf,jf->j", d, d)
    return out


def _products(x: Floats, z: Floats, scale: float) -> tuple[Floats, Floats, Floats]:
    """x̃ and z̃, centred on the mean of z and scaled, and |x̃_i − z̃_j|² from one matrix product.

    |x−z|² = |x|² + |z|² − 2x·z loses digits when features are large and close together; centred,
    the three terms are no larger than the spread of the data.
    """
    centre = z.mean(axis=0) if len(z) else np.zeros(z.shape[1])
    xs, zs = (x - centre) * scale, (z - centre) * scale
    square = np.einsum("ij,ij->i", xs, xs)[:, None] + np.einsum("ij,ij->i", zs, zs)
    return xs, zs, np.maximum(square - 2.0 * xs @ zs.T, 0.0)
