"""The projected process: the closed-form uncertainty of a sparse Gaussian process.

σ² = k_ss − κ[K_mm⁻¹ − (K_mm + AᵀΣ⁻¹A)⁻¹]κᵀ, where κ is a row of k_sum. With B = Σ^{-1/2}AU⁻¹ the
bracket is VVᵀ with V = U⁻¹BᵀS⁻¹ and SᵀS = I + BBᵀ, one thin matrix instead of two inverses. So σ²
is the difference of two accurate numbers, and the gradient is exactly that of the computed value.

Noise and amplitude are chosen for small errors, so that σ² is multiplied by a factor, and a floor
is added, as for the posterior (`gp.uncertainty.posterior`): energy²·σ² + N²·energy_floor².
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.labels import FORCE
from nugget.gp.linalg import compress, compress_gram, inverse_gram, right_solve, solve, update_qr
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.base import EnvironmentRows, LinearUncertainty, check_levels
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered

# Dropping directions of UV smaller than this adds at most (TOLERANCE·N)²θ₀ to σ², 1e-6 of the prior
# standard deviation of the structure.
TOLERANCE = 1e-6


@registered("uncertainty")
@dataclass(frozen=True)
class ProjectedProcess:
    """The observations on which the process is conditioned, factors on its σ, and floors.

    "structures" are the fitted labels. "environments" is one observation per local environment,
    with rows k_m(x_i) and the noise σ_n each (the equation as printed in the paper).
    `energy_floor` is in eV/atom, `force_floor` in eV/Å. `Potential.fit(calibrate="loo")` sets
    factors and floors for "structures".
    """

    observations: str = "structures"
    energy: float = 1.0
    energy_floor: float = 0.0
    force: float = 1.0
    force_floor: float = 0.0

    @property
    def floor_kinds(self) -> tuple[str, ...]:
        """None for "environments", whose leave-one-out residuals have no closed form."""
        return ("energy", "force") if self.observations == "structures" else ()

    def __post_init__(self) -> None:
        check_levels(self)
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

    def with_levels(self, **levels: float) -> Projected:
        """The same fit with other factors and floors; no refit."""
        changed: dict[str, Any] = dict(levels)
        return replace(self, settings=replace(self.settings, **changed))

    def calibrated_as(self, old: Projected) -> Projected:
        """This fit with the factors and floors of an older one."""
        return replace(self, settings=old.settings, scale=old.scale)

    @property
    def prior_factor(self) -> float:
        """Factor on the prior variance."""
        return (self.scale * self.settings.energy) ** 2

    def prior_part(self, prior_variance: Floats, sizes: Floats | Ints) -> Floats:
        """The prior variance with factor and floor."""
        floor = self.scale * self.settings.energy_floor * np.asarray(sizes, float)
        part: Floats = self.prior_factor * prior_variance + floor**2
        return part

    def derivative_std(self, rows: Floats, kind: int, prior_variance: Floats | None) -> Floats:
        """Standard deviations (p,) of force components."""
        if prior_variance is None or kind != FORCE:
            raise NuggetError("ProjectedProcess has a σ of energies and forces only.")
        s, delta = self.settings, rows @ self.v
        square = np.maximum(prior_variance - np.einsum("ij,ij->i", delta, delta), 0.0)
        return self.scale * np.sqrt(s.force**2 * square + s.force_floor**2)

    @cached_property
    def weights(self) -> tuple[Floats, Floats]:
        """(V, 0), factors included."""
        return np.sqrt(self.prior_factor) * self.v, np.zeros(self.v.shape[1])

    def deviations(self, rows: Floats, sizes: Floats | Ints) -> Floats:
        """rows·V; a projected process has no shift per atom."""
        delta: Floats = rows @ self.weights[0]
        return delta

    def state(self) -> dict[str, Floats]:
        """Plain arrays from which `ProjectedProcess.from_state` restores the same fit."""
        return {"v": self.v, "scale": np.array(self.scale)}
