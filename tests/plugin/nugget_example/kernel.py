"""Matérn-5/2: twice differentiable, rougher than the squared exponential."""

from dataclasses import dataclass

import numpy as np

from nugget.gp.kernels import StationaryKernel


@dataclass(frozen=True)
class Matern52(StationaryKernel):
    """k = θ₀ (1 + s + s²/3) e^{−s} with s = √5 |x−x'|/l."""

    def profile(self, u):
        s = np.sqrt(5.0 * u)
        decay = np.exp(-s)
        # With s² = 5u: p′ = −(5/6)(1 + s)e^{−s} and p″ = (25/12) e^{−s}.
        return (1.0 + s + s**2 / 3.0) * decay, -(5.0 / 6.0) * (1.0 + s) * decay, 25.0 / 12.0 * decay
