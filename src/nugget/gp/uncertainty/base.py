"""What an uncertainty is: settings that are fitted to a regression, and what the fit can tell.

Every uncertainty here is linear: deviations δ = k_sum·W + N·ρ of a structure with N atoms. A
committee has std = |δ|; the projected process has std² = prior variance − |δ|². `LinearUncertainty`
turns (W, ρ) into everything that predictions need; such fits share one compiled pass with the
kernel. A fit without `columns` may compute its std from k_sum in any other way: it then writes
`std` and `std_and_weights` itself.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.simd import aligned
from nugget.errors import NuggetError
from nugget.gp._std_loops import std_and_weights
from nugget.gp.regression import SparseRegression

EnvironmentRows = Callable[[], Floats]
_NOTHING = np.empty(0)


class Uncertainty(Protocol):
    """Settings of an uncertainty: a frozen dataclass, so that a model file can keep them.

    It may have a method `state_shapes()`: the shapes of the arrays of a fit's `state`, which
    are compared when a model file is loaded ("m" is the number of inducing points, other names are
    any numbers). Without it, only the shapes of `columns` are compared.
    """

    def fit(
        self,
        regression: SparseRegression,
        rng: np.random.Generator,
        environments: EnvironmentRows,
        noise: float,
    ) -> FittedUncertainty:
        """The uncertainty of a fitted regression.

        `environments()` gives the kernel rows (n, m) of all training environments, for those that
        need them; `noise` is σ_n in eV/atom.
        """

    def from_state(self, state: dict[str, Floats]) -> FittedUncertainty:
        """A fit made again from what `FittedUncertainty.state` gave, bit for bit."""


class FittedUncertainty(Protocol):
    """The standard deviation of linear functions of the kernel sums."""

    @property
    def settings(self) -> Uncertainty:
        """The settings that describe this fit."""

    @property
    def scale(self) -> float:
        """Factor on every standard deviation."""

    @property
    def uses_prior_variance(self) -> bool:
        """Whether std² is a prior variance minus what observations took away."""

    @property
    def has_members(self) -> bool:
        """Whether `members` can draw single surfaces."""

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of the noise levels that a calibration may change without a refit."""

    @property
    def columns(self) -> tuple[Floats, Floats] | None:
        """(Wᵀ, ρ) of a linear uncertainty; None for any other."""

    def with_scale(self, scale: float) -> Self:
        """The same fit with every standard deviation multiplied by `scale` (not by the old one)."""

    def calibrated_as(self, old: Self) -> Self:
        """This fit with the calibration of an older one."""

    def std(self, rows: Floats, sizes: Floats | Ints, prior_variance: Floats | None) -> Floats:
        """Standard deviations (p,) of rows·α + sizes·shift.

        Energies have rows k_sum and their numbers of atoms as sizes, energies of single atoms k and
        1.
        """

    def derivative_std(self, rows: Floats, kind: int, prior_variance: Floats | None) -> Floats:
        """Standard deviations (p,) of force components (rows −∂k_sum/∂r) or stress components.

        `kind` is FORCE or STRESS of `nugget.gp.regression`.
        """

    def std_and_weights(
        self,
        k_sum: Floats,
        sizes: Ints,
        alpha: Floats,
        coefficients: Floats,
        prior_variance: Floats | None,
    ) -> tuple[Floats, Floats, Floats]:
        """Means k_sum·α (B,), stds (B,) and weights (R, B, m) on ∇k_sum of c_E·mean + c_σ·std."""

    def prior_variance_slope(self, std: Floats) -> Floats:
        """∂std/∂prior variance (B,)."""

    def members(
        self, alpha: Floats, rng: np.random.Generator, n: int | None = None
    ) -> tuple[Floats, Floats]:
        """Weights (n, m) and shifts per atom (n,) of single surfaces, if `has_members`."""

    def state(self) -> dict[str, Floats]:
        """Plain arrays that `Uncertainty.from_state` turns back into the same fit."""


class LinearUncertainty:
    """A fit given by (W, ρ): inherit from this and write `weights`, `with_scale` and `state`."""

    scale: float
    uses_prior_variance: ClassVar[bool] = False
    has_members: ClassVar[bool] = False
    level_names: ClassVar[tuple[str, ...]] = ()

    @property
    def weights(self) -> tuple[Floats, Floats]:
        """(W, ρ), with the scale in it."""
        raise NotImplementedError

    def with_scale(self, scale: float) -> Self:
        raise NotImplementedError

    @cached_property
    def columns(self) -> tuple[Floats, Floats]:
        """(Wᵀ, ρ), as the compiled loops read them."""
        w, rho = self.weights
        return aligned(w.T), rho

    def calibrated_as(self, old: Any) -> Self:
        """This fit with the factor of an older one."""
        return self.with_scale(old.scale)

    def deviations(self, rows: Floats, sizes: Floats | Ints) -> Floats:
        """δ = rows·W + Nρ (p, q)."""
        w, rho = self.weights
        delta: Floats = rows @ w
        delta += np.multiply.outer(sizes, rho)
        return delta

    def std(
        self, rows: Floats, sizes: Floats | Ints, prior_variance: Floats | None = None
    ) -> Floats:
        """|δ|, or √(prior variance − |δ|²); round-off below zero says "known"."""
        delta = self.deviations(rows, sizes)
        square = np.einsum("ij,ij->i", delta, delta)
        if prior_variance is None:
            return np.sqrt(square)
        return np.sqrt(np.maximum(self.scale**2 * prior_variance - square, 0.0))

    def derivative_std(
        self, rows: Floats, kind: int, prior_variance: Floats | None = None
    ) -> Floats:
        """|rows·W|: a shift per atom has no derivative."""
        return self.std(rows, np.zeros(len(rows)), prior_variance)

    def std_and_weights(
        self,
        k_sum: Floats,
        sizes: Floats | Ints,
        alpha: Floats,
        coefficients: Floats,
        prior_variance: Floats | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        """Means, stds and weights, as in `FittedUncertainty`; weights are 0 where the std is."""
        own = _NOTHING if prior_variance is None else self.scale**2 * prior_variance
        found: tuple[Floats, Floats, Floats] = std_and_weights(
            k_sum, sizes, alpha, coefficients, *self.columns, own
        )
        return found

    def prior_variance_slope(self, std: Floats) -> Floats:
        """∂std/∂prior variance = scale²/(2 std), 0 where the std is 0."""
        safe = np.where(std > 0.0, std, 1.0)
        return np.where(std > 0.0, 0.5 * self.scale**2 / safe, 0.0)

    def members(
        self, alpha: Floats, rng: np.random.Generator, n: int | None = None
    ) -> tuple[Floats, Floats]:
        raise NuggetError(f"{type(self).__name__} has no members; use LabelNoise.")
