"""The projected process: the closed-form uncertainty of a sparse Gaussian process.

σ² = k_ss − κ[K_mm⁻¹ − (K_mm + AᵀΣ⁻¹A)⁻¹]κᵀ, where κ is a row of k_sum. With B = Σ^{-1/2}AU⁻¹ the
bracket is VVᵀ with V = U⁻¹BᵀS⁻¹ and SᵀS = I + BBᵀ, one thin matrix instead of two inverses. So σ²
is the difference of two accurate numbers, and the gradient is exactly that of the computed value.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.linalg import compress, compress_gram, inverse_gram, right_solve, solve, update_qr
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.base import EnvironmentRows, LinearUncertainty
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered

# Dropping directions of UV smaller than this adds at most (TOLERANCE·N)²θ₀ to σ², 1e-6 of the prior
# standard deviation of the structure.
TOLERANCE = 1e-6


@registered("uncertainty")
@dataclass(frozen=True)
class ProjectedProcess:
    """The observations on which the process is conditioned.

    "structures" are the fitted labels. "environments" is one observation per local environment,
    with rows k_m(x_i) and the noise σ_n each (the equation as printed in the paper).
    """

    observations: str = "structures"

    def __post_init__(self) -> None:
        if self.observations not in ("structures", "environments"):
            raise NuggetError(
                f"ProjectedProcess observations is {self.observations!r}; "
                "use 'structures' or 'environments'."
            )

    def fit(
        self,
        regression: SparseRegression,
        rng: np.random.Generator | None = None,
        environments: EnvironmentRows | None = None,
        noise: float | None = None,
    ) -> Projected:
        """Fit; `environments` and their `noise` are used for "environments" only."""
        upper = regression.upper
        if self.observations == "environments":
            if environments is None or noise is None:
                raise NuggetError(
                    "ProjectedProcess('environments') needs the kernel rows of all training "
                    "environments and their noise."
                )
            m, b = len(upper), right_solve(environments() / noise, upper)
            r, _ = update_qr(np.eye(m), np.zeros((m, 0)), b, np.zeros((len(b), 0)))
            whitened = compress_gram(np.eye(m) - inverse_gram(r), TOLERANCE)
        elif regression.few:
            b, s = regression.whitened, regression.s
            whitened = compress(solve(s, b, transposed=True).T, TOLERANCE)  # BᵀS⁻¹
        else:
            r = regression.r
            whitened = compress_gram(np.eye(len(r)) - inverse_gram(r), TOLERANCE)
        return Projected(self, np.ascontiguousarray(solve(upper, whitened)))

    def from_state(self, state: dict[str, Floats]) -> Projected:
        """A fit from the arrays of `Projected.state`, bit for bit."""
        return Projected(self, np.ascontiguousarray(state["v"], float), float(state["scale"]))

    def state_shapes(self) -> dict[str, tuple[str | int, ...]]:
        """Shapes of the arrays of `Projected.state`; "m" is the number of inducing points."""
        return {"v": ("m", "rank"), "scale": ()}


@dataclass(frozen=True)
class Projected(LinearUncertainty):
    """Fitted V (m, r); `scale` multiplies every std (a change of θ₀ at fixed θ₀/σ_n²)."""

    settings: ProjectedProcess
    v: Floats
    scale: float = 1.0

    uses_prior_variance: ClassVar[bool] = True

    def with_scale(self, scale: float) -> Projected:
        """The same fit with every std multiplied by `scale`."""
        return replace(self, scale=float(scale))

    @cached_property
    def weights(self) -> tuple[Floats, Floats]:
        """(V, 0), scale included."""
        return self.scale * self.v, np.zeros(self.v.shape[1])

    def deviations(self, rows: Floats, sizes: Floats | Ints) -> Floats:
        """rows·V; a projected process has no shift per atom."""
        delta: Floats = rows @ self.weights[0]
        return delta

    def state(self) -> dict[str, Floats]:
        """Plain arrays from which `ProjectedProcess.from_state` restores the same fit."""
        return {"v": self.v, "scale": np.array(self.scale)}
