"""The posterior of the inducing points' weights, calibrated by leave-one-out residuals.

Given the labels, the weights have the covariance (K_mm + AᵀΣ⁻¹A)⁻¹ = WWᵀ with W = U⁻¹R⁻¹, so that a
prediction κα has the variance |κW|². It grows with the distance from the training set. Its size
depends on noise and amplitude, which are chosen for small errors and not for calibrated error bars.
It is therefore multiplied by a factor, and a floor and the error of the mean function are added:

σ² = energy²·|κW|² + N²·energy_floor² + prior²·(N − κCn)².

The last term is that of the label-noise ensemble. Far from all inducing points it is the only one
besides the floor, and measures the error of the mean function. Force and stress components have
factors and floors of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import ClassVar

import numpy as np

from nugget.gp.labels import FORCE, STRESS
from nugget.gp.linalg import solve
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.base import EnvironmentRows, LinearUncertainty, check_levels
from nugget.numerics.arrays import Floats
from nugget.registry import registered


@registered("uncertainty")
@dataclass(frozen=True)
class Posterior:
    """Factors on the posterior's standard deviation, and floors.

    `energy_floor` and `prior` are in eV/atom, `force_floor` in eV/Å, `stress_floor` in eV/Å³.
    `Potential.fit(calibrate="loo")` sets all of them.
    """

    energy: float = 1.0
    energy_floor: float = 0.0
    prior: float = 0.05
    force: float = 1.0
    force_floor: float = 0.0
    stress: float = 1.0
    stress_floor: float = 0.0

    floor_kinds: ClassVar[tuple[str, ...]] = ("energy", "force", "stress")
    needs_label_rows: ClassVar[bool] = False
    needs_calibration: ClassVar[bool] = True

    def __post_init__(self) -> None:
        check_levels(self)

    def fit(
        self,
        regression: SparseRegression,
        rng: np.random.Generator | None = None,
        environments: EnvironmentRows | None = None,
        noise: float | None = None,
    ) -> WeightPosterior:
        """The posterior of a fitted regression."""
        reg = regression
        w = solve(reg.upper, solve(reg.r, np.eye(reg.n_inducing)))  # upper triangular
        shift = -reg.smooth_counts()  # −UCn
        return WeightPosterior(self, np.triu(w), solve(reg.upper, shift)[:, 0])

    def state_shapes(self) -> dict[str, tuple[str, ...]]:
        """Shapes of the arrays of `WeightPosterior.state`; m is the number of inducing points."""
        return {"packed": ("m(m + 1)/2",), "shift": ("m",), "scale": ()}

    def from_state(self, state: dict[str, Floats]) -> WeightPosterior:
        """A fit from the arrays of `WeightPosterior.state`, bit for bit."""
        packed, shift = (np.ascontiguousarray(state[name], float) for name in ("packed", "shift"))
        w = np.zeros((shift.size, shift.size))
        w[np.triu_indices(shift.size)] = packed
        return WeightPosterior(self, w, shift, float(state["scale"]))


@dataclass(frozen=True)
class WeightPosterior(LinearUncertainty):
    """Fitted W (m, m), −Cn (m,), and the settings that they are used with."""

    settings: Posterior
    w: Floats
    shift: Floats
    scale: float = 1.0

    has_members: ClassVar[bool] = True
    level_names: ClassVar[tuple[str, ...]] = ("energy", "energy_floor", "prior")

    def with_scale(self, scale: float) -> WeightPosterior:
        """The same fit with every standard deviation multiplied by `scale`."""
        return replace(self, scale=float(scale))

    def with_levels(self, **levels: float) -> WeightPosterior:
        """The same fit with other factors and floors; no refit."""
        return replace(self, settings=replace(self.settings, **levels))

    def calibrated_as(self, old: WeightPosterior) -> WeightPosterior:
        """This fit with the factors and floors of an older one."""
        return replace(self, settings=old.settings, scale=old.scale)

    @cached_property
    def weights(self) -> tuple[Floats, Floats]:
        """(W, ρ) of energies; the last two columns are the floor and the prior."""
        s = self.settings
        columns = [s.energy * self.w, np.zeros((len(self.w), 1)), s.prior * self.shift[:, None]]
        rho = np.zeros(self.w.shape[1] + 2)
        rho[-2:] = s.energy_floor, s.prior
        return self.scale * np.concatenate(columns, axis=1), self.scale * rho

    def force_probes(self, rng: np.random.Generator, n: int) -> Floats:
        """Weights (n + 1, m) of n draws from the posterior, then −Cn."""
        draws = rng.standard_normal((self.w.shape[1], n))
        return np.vstack([(self.w @ draws).T, self.shift])

    def force_variance(self, squares: Floats) -> tuple[Floats, Floats]:
        """factor²·⟨g²⟩ over the draws, and floor² + prior²·g² of the shift, for forces g."""
        s, square = self.settings, self.scale**2
        drawn: Floats = square * s.force**2 * squares[:-1].mean(axis=0)
        return drawn, square * (s.force_floor**2 + s.prior**2 * squares[-1])

    def derivative_std(
        self, rows: Floats, kind: int, prior_variance: Floats | None = None
    ) -> Floats:
        """Standard deviations (p,) of force or stress components."""
        s = self.settings
        factor, floor = {FORCE: (s.force, s.force_floor), STRESS: (s.stress, s.stress_floor)}[kind]
        square = factor**2 * self.variance(rows) + floor**2 + (s.prior * (rows @ self.shift)) ** 2
        return self.scale * np.sqrt(square)

    def variance(self, rows: Floats) -> Floats:
        """|rows·W|² (p,), before factors and floors."""
        delta = rows @ self.w
        square: Floats = np.einsum("ij,ij->i", delta, delta)
        return square

    def unit_gram(self, k_sum: Floats, sizes: Floats) -> Floats:
        """(B, 3, 3), diagonal, with σ² = scale²·sᵀGs for s in the order of `level_names`."""
        gram = np.zeros((len(k_sum), 3, 3))
        gram[:, 0, 0] = self.variance(k_sum)
        gram[:, 1, 1] = sizes**2
        gram[:, 2, 2] = (sizes + k_sum @ self.shift) ** 2
        return gram

    def members(
        self, alpha: Floats, rng: np.random.Generator, n: int | None = None
    ) -> tuple[Floats, Floats]:
        """Weights (n, m) and shifts per atom (n,) of surfaces drawn from the posterior.

        The floor has no surface; it is the error that no surface of this model can follow.
        """
        w, rho = self.weights
        kept = np.arange(len(rho)) != len(rho) - 2
        draws = rng.standard_normal((10 if n is None else n, len(rho) - 1))
        return alpha + draws @ w[:, kept].T, draws @ rho[kept]

    def state(self) -> dict[str, Floats]:
        """Plain arrays from which `Posterior.from_state` restores the same fit."""
        packed = self.w[np.triu_indices(len(self.w))]  # half of W is zero
        return {"packed": packed, "shift": self.shift, "scale": np.array(self.scale)}
