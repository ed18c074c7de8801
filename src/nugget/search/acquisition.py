"""Acquisitions decide which candidate gets the next evaluation.

An acquisition is a frozen dataclass that inherits from `Acquisition`. It owns four decisions: the
exploration weight κ (`kappa_at`), the surface on which candidates relax (`surface`), the order of
relaxed candidates (`score`), and what happens when none of them is expected to improve on the best
structure (`is_worthwhile`, `explores`, `explore_score`). A κ schedule overrides `kappa_at` alone.

The classes below are registered with `@registered("acquisition")`; another package registers its
own through the entry point `nugget.acquisitions`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import erfcx, ndtr

from nugget import registry
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.potential.potential import Potential
from nugget.potential.surface import Surface
from nugget.registry import registered
from nugget.search.search_settings import SearchConfig


@dataclass(frozen=True)
class AcquisitionContext:
    """The state of the search at the time of a decision.

    `budget` is that of the settings. A schedule that depends on it proposes other structures after
    the budget was changed, so such a search replays only with its original budget.
    """

    evaluations: int  # completed
    budget: int
    best: float  # lowest value so far: eV, or eV/atom for crystals; infinite before the first
    std_scale: float = 1.0  # calibration factor on σ
    exploration_scale: float = 1.0  # calibration factor on σ for exploring, at least 1
    in_flight: int = 0  # evaluations that have not finished


@dataclass(frozen=True)
class Acquisition:
    """Base class; `score` is the only method that a subclass must define.

    All methods are functions of their arguments alone, so that a search can be repeated. Energies
    are in eV (eV/atom for crystals). The `std` of `score`, `is_worthwhile` and `explore_score` is
    calibrated: it is already multiplied by the factor of the context.
    """

    kappa: float = 2.0  # set to search.kappa

    name: ClassVar[str]
    requires_members: ClassVar[bool] = False  # needs an uncertainty with `has_members`

    def kappa_at(self, context: AcquisitionContext) -> float:
        """The exploration weight κ; the same at all times unless a schedule overrides this."""
        return self.kappa

    def surface(
        self, potential: Potential, rng: np.random.Generator, context: AcquisitionContext
    ) -> Surface:
        """The surface that candidates relax on, by default the lower confidence bound E − κσ."""
        return potential.lcb(self.kappa_at(context) * context.std_scale)

    def score(self, energy: Floats, std: Floats, context: AcquisitionContext) -> Floats:
        """Scores (n,) of relaxed candidates; the lowest is evaluated."""
        raise NotImplementedError

    def is_worthwhile(
        self, energy: float, std: float, gain: float, context: AcquisitionContext
    ) -> bool:
        """Is this candidate worth an evaluation, or should the search explore instead?

        By default E − κσ must lie below the best value by more than `gain`.
        """
        return energy - (self.kappa_at(context) * std - gain) < context.best

    def explores(self, context: AcquisitionContext) -> bool:
        """Does the search explore at all? By default not when κ is zero."""
        return self.kappa_at(context) > 0

    def explore_score(self, energy: Floats, std: Floats, context: AcquisitionContext) -> Floats:
        """Scores (n,) for exploration, where `std` is multiplied by `exploration_scale`.

        Walkers minimise them too. By default minus the logarithm of the expected improvement.
        """
        return -log_expected_improvement(energy, std, context.best)


@registered("acquisition")
@dataclass(frozen=True)
class LowerConfidenceBound(Acquisition):
    """The lower confidence bound E − κσ, both as surface and as score."""

    name: ClassVar[str] = "lcb"

    def score(self, energy: Floats, std: Floats, context: AcquisitionContext) -> Floats:
        return energy - self.kappa_at(context) * std


_SQRT_2PI = np.sqrt(2 * np.pi)


def log_expected_improvement(energy: Floats, std: Floats, best: float) -> Floats:
    """ln of the expected improvement σ(zΦ(z) + φ(z)) with z = (best − E)/σ.

    For z < −1 the factor φ(z) is taken out of the logarithm, because it underflows.
    """
    safe = np.maximum(std, 1e-12)
    z = np.asarray((best - energy) / safe)
    near = np.maximum(z, -1.0)
    direct = np.log(near * ndtr(near) + np.exp(-0.5 * near * near) / _SQRT_2PI)
    far = np.clip(z, -1e4, -1.0)
    # zΦ(z)/φ(z) + 1, which is proportional to 1/z² for large |z|.
    rest = np.log1p(0.5 * far * _SQRT_2PI * erfcx(-far / np.sqrt(2)))
    rest -= 2 * np.log(np.maximum(-z, 1e4) / 1e4)
    tail = -0.5 * np.minimum(z, -1.0) ** 2 - np.log(_SQRT_2PI) + rest
    return np.asarray(np.log(safe) + np.where(z > -1.0, direct, tail))


@registered("acquisition")
@dataclass(frozen=True)
class ExpectedImprovement(Acquisition):
    """Minus the logarithm of the expected improvement.

    It is flat far from the best value, so candidates relax on the lower confidence bound.
    """

    name: ClassVar[str] = "ei"

    def score(self, energy: Floats, std: Floats, context: AcquisitionContext) -> Floats:
        return -log_expected_improvement(energy, std, context.best)


@registered("acquisition")
@dataclass(frozen=True)
class Thompson(Acquisition):
    """Thompson sampling: relax on one random ensemble member, then rank by the mean energy."""

    name: ClassVar[str] = "thompson"
    requires_members: ClassVar[bool] = True

    def surface(
        self, potential: Potential, rng: np.random.Generator, context: AcquisitionContext
    ) -> Surface:
        """The member's deviation from the mean is multiplied by the calibration factor."""
        fit, scale = potential.fitted, context.std_scale
        alpha = fit.regression.alpha
        weights, shifts = fit.uncertainty.members(alpha, rng, 1)
        member = (alpha + scale * (weights[0] - alpha), scale * float(shifts[0]))
        return Surface(potential.fitted, 0.0, member)

    def score(self, energy: Floats, std: Floats, context: AcquisitionContext) -> Floats:
        return energy


def make_acquisition(search: SearchConfig, name: str) -> Acquisition:
    """An acquisition by name, with the κ and the options of the settings."""
    options = {"kappa": search.kappa, **search.acquisition_options}
    acquisition: Acquisition = registry.make("acquisition", name, **options)
    return acquisition


def choose_acquisition(search: SearchConfig, has_members: bool) -> Acquisition:
    """The acquisition of the settings, for an uncertainty with or without ensemble members.

    "auto" is Thompson sampling with several evaluations in flight and an ensemble, otherwise the
    lower confidence bound. Several minima of one bound resemble each other; ensemble members
    differ. On Au13 (EMT, four in flight, 20 seeds) Thompson sampling took 15.5 evaluations in the
    median, the bound 22.
    """
    name = search.acquisition
    if name == "auto":
        name = "thompson" if search.in_flight > 1 and has_members else "lcb"
    acquisition = make_acquisition(search, name)
    if acquisition.requires_members and not has_members:
        raise NuggetError(
            f"The acquisition {name!r} needs an ensemble: set model.uncertainty = 'label-noise'."
        )
    return acquisition
