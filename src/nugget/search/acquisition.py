"""Which candidate deserves the next expensive calculation: surfaces to relax on, and scores."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from nugget.errors import NuggetError
from nugget.gp.uncertainty.label_noise import Committee
from nugget.potential.potential import Potential
from nugget.potential.surface import Surface
from nugget.search.config import Config

Floats = NDArray[np.float64]
Score = Callable[[Floats, Floats], Floats]  # (energy, sigma) -> lower is better


def chosen(config: Config) -> str:
    """The acquisition that "auto" stands for.

    Several minima of one bound are much alike; members of a committee differ among themselves. On
    Au13 (EMT, 4 in flight, 20 seeds) that was a median of 15.5 evaluations instead of 22.
    """
    search = config.search
    if search.acquisition != "auto":
        return search.acquisition
    committee = config.model.uncertainty == "label-noise"
    return "thompson" if search.in_flight > 1 and committee else "lcb"


def lower_confidence_bound(kappa: float) -> Score:
    """E − κσ."""
    return lambda energy, sigma: energy - kappa * sigma


def expected_improvement(best: float) -> Score:
    """Minus the expected amount by which the best energy is beaten: −σ(zΦ(z) + φ(z)).

    Where σ is 0 or hopelessly small, ordered by energy instead, so that no two are equal.
    """

    def score(energy: Floats, sigma: Floats) -> Floats:
        safe = np.maximum(sigma, 1e-12)
        z = (best - energy) / safe
        gain = safe * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))
        return -gain + 1e-9 * energy

    return score


def thompson_surface(potential: Potential, rng: np.random.Generator, scale: float) -> Surface:
    """One committee member, its deviation from the mean multiplied by `scale`."""
    fit = potential.fitted
    if not isinstance(fit.uncertainty, Committee):
        raise NuggetError("Thompson sampling needs a committee: uncertainty = 'label-noise'.")
    alpha = fit.regression.alpha
    weights, shifts = fit.uncertainty.members(alpha, rng, 1)
    return Surface(potential, 0.0, (alpha + scale * (weights[0] - alpha), scale * float(shifts[0])))
