"""The contract of uncertainties: settings that are fitted to a regression, and the fit.

All built-in uncertainties are linear: a structure with N atoms has deviations δ = k_sum·W + N·ρ. A
label-noise ensemble has std = |δ|; the projected process has std² = prior variance − |δ|².
`LinearUncertainty` turns (W, ρ) into everything that predictions need, and such fits share one
compiled pass with the kernel. A fit without `columns` computes its std from k_sum in any other way;
it then writes `std` and `std_and_weights` itself.

Calibration and model files can do more for uncertainties that offer it. Each such capability is a
protocol of its own, below `FittedUncertainty`; an uncertainty takes part by having its methods.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cached_property
from typing import Any, ClassVar, Protocol, Self, runtime_checkable

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.loops import std_and_weights
from nugget.gp.regression import SparseRegression
from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.simd import aligned

EnvironmentRows = Callable[[], Floats]

_NOTHING = np.empty(0)


class Uncertainty(Protocol):
    """Settings of an uncertainty: a frozen dataclass, so that a model file can keep them."""

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
        """The fit that `FittedUncertainty.state` describes, bit for bit."""


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
        """Whether std² is the prior variance minus a reduction by the observations."""

    @property
    def has_members(self) -> bool:
        """Whether `members` can draw single surfaces."""

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
        1, force components −∂k_sum/∂r and 0 (see also `HasDerivativeStd`).
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

    def prior_part(self, prior_variance: Floats, sizes: Floats | Ints) -> Floats:
        """The part of std² (p,) that observations reduce, where the prior variance is used."""

    def prior_variance_slope(self, std: Floats) -> Floats:
        """∂std/∂prior variance (B,)."""

    def members(
        self, alpha: Floats, rng: np.random.Generator, n: int | None = None
    ) -> tuple[Floats, Floats]:
        """Weights (n, m) and shifts per atom (n,) of single surfaces, if `has_members`."""

    def state(self) -> dict[str, Floats]:
        """Plain arrays that `Uncertainty.from_state` turns back into the same fit."""


@runtime_checkable
class AdjustableLevels(Protocol):
    """A fit whose levels `nugget.calibration` can change without a refit."""

    def with_levels(self, **levels: float) -> Self:
        """The same fit with other levels."""


@runtime_checkable
class HasLevels(AdjustableLevels, Protocol):
    """A fit with noise levels that energies determine."""

    @property
    def level_names(self) -> tuple[str, ...]:
        """Names of the levels that energies determine; one of them is "prior"."""

    def unit_gram(self, k_sum: Floats, sizes: Floats) -> Floats:
        """G (B, L, L) with σ² = scale²·sᵀGs for levels s in the order of `level_names`."""


@runtime_checkable
class HasFloors(Protocol):
    """Settings with a factor `kind` and a floor `kind_floor` for each kind of label.

    Leave-one-out residuals can determine both for energies, forces and stresses alike. The fit of
    such settings has `AdjustableLevels`.
    """

    @property
    def floor_kinds(self) -> tuple[str, ...]:
        """Some of "energy", "force" and "stress"."""


@runtime_checkable
class NeedsCalibration(Protocol):
    """Settings whose default levels have no meaning before they are calibrated."""

    @property
    def needs_calibration(self) -> bool: ...


@runtime_checkable
class HasNoiseLevels(Protocol):
    """Settings of an ensemble with noise `label`, `force` and `prior` on its labels.

    Leave-one-out residuals determine them if the fit has `AdjustableLevels`.
    """

    @property
    def label(self) -> float: ...

    @property
    def force(self) -> float: ...

    @property
    def prior(self) -> float: ...


@runtime_checkable
class HasDerivativeStd(Protocol):
    """A fit that treats force and stress components differently from energies."""

    def derivative_std(self, rows: Floats, kind: int, prior_variance: Floats | None) -> Floats:
        """Standard deviations (p,); see the function `derivative_std`."""


@runtime_checkable
class HasForceProbes(Protocol):
    """A fit whose force variances can be estimated from a few random surfaces."""

    def force_probes(self, rng: np.random.Generator, n: int) -> Floats:
        """Weights (n + 1, m) of the surfaces; their force components squared estimate σ²."""

    def force_variance(self, squares: Floats) -> tuple[Floats, Floats]:
        """The random and the exact part of σ² (N, 3) from those squares (n + 1, N, 3)."""


@runtime_checkable
class HasStateShapes(Protocol):
    """Settings that know the shapes of the arrays of a fit's `state`.

    A model file is then checked against them when it is loaded; otherwise only `columns` are.
    """

    def state_shapes(self) -> Mapping[str, tuple[str | int, ...]]:
        """Shapes by name; "m" is the number of inducing points, other names are any numbers."""


@runtime_checkable
class Streamable(Protocol):
    """Settings that can be fitted when label rows are made and dropped piece by piece."""

    @property
    def needs_label_rows(self) -> bool:
        """Whether these settings need the rows of all labels after all."""


def check_levels(settings: Any) -> None:
    """Convert the numbers of a frozen dataclass of settings to finite floats of at least 0."""
    for item in fields(settings):
        value = getattr(settings, item.name)
        if isinstance(value, str):
            continue
        if not (np.isfinite(value) and value >= 0):
            name = f"{type(settings).__name__} {item.name}"
            raise NuggetError(f"{name} is {value}; it must be 0 or positive.")
        object.__setattr__(settings, item.name, float(value))


def derivative_std(
    fitted: FittedUncertainty, rows: Floats, kind: int, prior_variance: Floats | None
) -> Floats:
    """Standard deviations (p,) of force components (rows −∂k_sum/∂r) or of stress components.

    `kind` is FORCE or STRESS of `nugget.gp.labels`.
    """
    if isinstance(fitted, HasDerivativeStd):
        return fitted.derivative_std(rows, kind, prior_variance)
    return fitted.std(rows, np.zeros(len(rows)), prior_variance)


class LinearUncertainty:
    """A fit given by (W, ρ). Subclasses write `weights`, `with_scale` and `state`."""

    scale: float
    uses_prior_variance: ClassVar[bool] = False
    has_members: ClassVar[bool] = False

    @property
    def weights(self) -> tuple[Floats, Floats]:
        """(W, ρ), scale included."""
        raise NotImplementedError

    def with_scale(self, scale: float) -> Self:
        raise NotImplementedError

    @property
    def prior_factor(self) -> float:
        """Factor on the prior variance, for those that use it."""
        return self.scale**2

    def prior_part(self, prior_variance: Floats, sizes: Floats | Ints) -> Floats:
        """The part of std² that observations reduce."""
        return self.prior_factor * prior_variance

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
        """|δ|, or √(prior variance − |δ|²); negative round-off counts as 0."""
        delta = self.deviations(rows, sizes)
        square = np.einsum("ij,ij->i", delta, delta)
        if prior_variance is None:
            return np.sqrt(square)
        return np.sqrt(np.maximum(self.prior_part(prior_variance, sizes) - square, 0.0))

    def std_and_weights(
        self,
        k_sum: Floats,
        sizes: Floats | Ints,
        alpha: Floats,
        coefficients: Floats,
        prior_variance: Floats | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        """Means, stds and weights, as in `FittedUncertainty`; weights are 0 where the std is."""
        own, sign = _NOTHING, 1.0
        if prior_variance is not None:
            own, sign = self.prior_part(prior_variance, sizes), -1.0
        results: tuple[Floats, Floats, Floats] = std_and_weights(
            k_sum, sizes, alpha, coefficients, *self.columns, own, sign
        )
        return results

    def prior_variance_slope(self, std: Floats) -> Floats:
        """∂std/∂prior variance = factor/(2 std), 0 where the std is 0."""
        safe = np.where(std > 0.0, std, 1.0)
        return np.where(std > 0.0, 0.5 * self.prior_factor / safe, 0.0)

    def members(
        self, alpha: Floats, rng: np.random.Generator, n: int | None = None
    ) -> tuple[Floats, Floats]:
        raise NuggetError(f"{type(self).__name__} has no members; use LabelNoise.")
