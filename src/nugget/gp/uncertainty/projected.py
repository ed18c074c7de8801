"""The projected process: the closed-form uncertainty of a sparse Gaussian process.

σ² = k_ss − κ[K_mm⁻¹ − (K_mm + AᵀΣ⁻¹A)⁻¹]κᵀ. With B = Σ^{-1/2}AU⁻¹ the bracket is VVᵀ with
V = U⁻¹BᵀS⁻¹, SᵀS = I + BBᵀ: one thin matrix instead of two explicit inverses, so that σ² is the
difference of two accurate numbers and its gradient is that of the very function evaluated.
"""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from nugget._compiled.simd import aligned
from nugget.errors import NuggetError
from nugget.gp._std_loops import SIGMA_ROAD, sigma_roads
from nugget.gp.linalg import (
    compress,
    compress_gram,
    inverse_gram,
    right_solve,
    solve,
    update_qr,
)
from nugget.gp.regression import SparseRegression

Array = NDArray[np.float64]
Numbers = NDArray[np.float64] | NDArray[np.int64]

# Directions of U V smaller than this add at most (TOLERANCE·N)²θ₀ to σ²: a millionth of the prior
# standard deviation of the structure.
TOLERANCE = 1e-6


@dataclass(frozen=True)
class ProjectedProcess:
    """Which observations the posterior is conditioned on.

    "structures": the labels that were fitted. "environments": one observation per environment, with
    the rows k_m(x_i) and a noise each (the equation as the paper prints it).
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
        environments: Array | None = None,
        noise: float | None = None,
    ) -> "Projected":
        """Fit; `environments` (n_env, m) kernel rows and their `noise` only for "environments"."""
        upper = regression.upper
        if self.observations == "environments":
            if environments is None or noise is None:
                raise NuggetError(
                    "ProjectedProcess('environments') needs the kernel rows of all training "
                    "environments and their noise."
                )
            m, b = len(upper), right_solve(environments / noise, upper)
            r, _ = update_qr(np.eye(m), np.zeros((m, 0)), b, np.zeros((len(b), 0)))
            whitened = compress_gram(np.eye(m) - inverse_gram(r), TOLERANCE)
        elif regression.few:
            b, s = regression.whitened, regression.s
            whitened = compress(solve(s, b, transposed=True).T, TOLERANCE)  # BᵀS⁻¹
        else:
            r = regression.r
            whitened = compress_gram(np.eye(len(r)) - inverse_gram(r), TOLERANCE)
        return Projected(self, np.ascontiguousarray(solve(upper, whitened)), regression.amplitude)


@dataclass(frozen=True)
class Projected:
    """Fitted V (m, r); `scale` multiplies every σ (a change of θ₀ at fixed θ₀/σ_n²)."""

    settings: ProjectedProcess
    v: Array
    amplitude: float
    scale: float = 1.0

    def with_scale(self, scale: float) -> "Projected":
        """The same fit with every σ multiplied by `scale`."""
        return replace(self, scale=float(scale))

    @cached_property
    def columns(self) -> tuple[Array, Array]:
        """(Vᵀ, 0) with the scale in it, as the compiled loops want them."""
        return aligned(self.scale * self.v.T), np.zeros(self.v.shape[1])

    def own(self, self_sum: Array) -> Array:
        """Prior variances (B,) of structures, from k_ss."""
        return self.scale**2 * self_sum

    def own_slope(self, sigma: Array) -> Array:
        """∂σ/∂k_ss (B,), 0 where σ is 0."""
        safe = np.where(sigma > 0.0, sigma, 1.0)
        return np.where(sigma > 0.0, 0.5 * self.scale**2 / safe, 0.0)

    def sigma_alone(self, kappa: Array, sizes: Numbers, self_sum: Array) -> Array:
        """σ (B,) for those who do not go on to its gradient."""
        return self.rows_sigma(kappa, self_sum)

    def sigma(self, kappa: Array, sizes: Numbers, self_sum: Array) -> tuple[Array, Array, Array]:
        """σ (B,), b (B, m) and w (B,) with ∇σ = b·∇κ + w·∇k_ss; both 0 where σ is 0."""
        nothing = np.zeros(kappa.shape[1])
        _, sigma, b = sigma_roads(
            kappa, sizes, nothing, SIGMA_ROAD, *self.columns, self.own(self_sum)
        )
        return sigma, b[0], self.own_slope(sigma)

    def local(self, k_rows: Array) -> Array:
        """σ of each environment's own energy (n,), from kernel rows (n, m)."""
        return self.rows_sigma(k_rows, np.full(k_rows.shape[0], self.amplitude))

    def rows_sigma(self, rows: Array, prior_variance: Array) -> Array:
        """σ of linear labels (force components, say): what V leaves of their prior variances."""
        projected: Array = rows @ self.v
        variance = prior_variance - np.einsum("br,br->b", projected, projected)
        # σ² >= 0 in exact arithmetic; what is below zero is round-off and says "known".
        return self.scale * np.sqrt(np.maximum(variance, 0.0))

    def state(self) -> dict[str, Array]:
        """Plain arrays that `from_state` turns back into the same fit, bit for bit."""
        environments = float(self.settings.observations == "environments")
        return {"v": self.v, "settings": np.array([environments, self.amplitude, self.scale])}

    @classmethod
    def from_state(cls, state: dict[str, Array]) -> "Projected":
        environments, amplitude, scale = (float(value) for value in state["settings"])
        settings = ProjectedProcess("environments" if environments else "structures")
        return cls(settings, np.ascontiguousarray(state["v"], float), amplitude, scale)
