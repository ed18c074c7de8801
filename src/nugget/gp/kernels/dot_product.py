"""The dot-product kernel of GAP: k(x, x') = δ² (x·x')^ζ.

With features of unit length (`nugget.descriptors.combined.UnitLength`), as in GAP, k(x, x) = δ².
ζ = 1 is a linear model of the features.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.kernels.base import KernelBase
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered


@registered("kernel")
@dataclass(frozen=True)
class DotProduct(KernelBase):
    """k(x, x') = amplitude · (x·x')^power; the amplitude δ² is a variance."""

    power: int = 4
    amplitude: float = 1.0

    def __post_init__(self) -> None:
        if self.power != int(self.power) or self.power < 1:
            raise NuggetError(f"DotProduct power is {self.power}; it must be a whole number ≥ 1.")
        if not (np.isfinite(self.amplitude) and self.amplitude > 0):
            raise NuggetError(
                f"DotProduct amplitude is {self.amplitude}; it must be a positive number."
            )
        object.__setattr__(self, "power", int(self.power))
        object.__setattr__(self, "amplitude", float(self.amplitude))

    def covariance(self, x: Floats, z: Floats) -> Floats:
        return self.amplitude * (x @ z.T) ** self.power

    def diagonal(self, x: Floats) -> Floats:
        return np.asarray(self.amplitude * np.einsum("if,if->i", x, x) ** self.power)

    def pullback(self, x: Floats, z: Floats, weights: Floats) -> Floats:
        """∂k/∂x = δ²ζ(x·z)^(ζ−1) z."""
        return (weights * self._slopes(x @ z.T)) @ z

    def derivatives(self, x: Floats, z: Floats, tangents: Floats) -> Floats:
        return self._slopes(x @ z.T)[:, None, :] * (tangents @ z.T)

    def second_derivatives(self, x: Floats, tangents: Floats) -> Iterator[Floats]:
        """∂²k/∂x∂x' = δ²ζ(x·x')^(ζ−1) + δ²ζ(ζ−1)(x·x')^(ζ−2) x' xᵀ, between v_i and v_j."""
        dot = x @ x.T
        first = self._slopes(dot)
        second = np.zeros_like(dot)
        if self.power > 1:
            second = self.amplitude * self.power * (self.power - 1) * dot ** (self.power - 2)
        for v in tangents:
            along = v @ x.T
            yield first * (v @ v.T) + second * along * along.T

    def log_gradients(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> dict[str, Floats]:
        """∂k/∂log δ² = k."""
        return {"amplitude": (gx[:, None] == gz[None, :]) * self.covariance(x, z)}

    def _slopes(self, dot: Floats) -> Floats:
        return np.asarray(self.amplitude * self.power * dot ** (self.power - 1))
