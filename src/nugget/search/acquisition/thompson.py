"""Thompson sampling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Floats
from nugget.potential.potential import Potential
from nugget.potential.surface import Surface
from nugget.registry import registered


@registered("acquisition")
@dataclass(frozen=True)
class Thompson:
    """Relax on one random committee member, then take the lowest mean energy."""

    name: ClassVar[str] = "thompson"
    requires_members: ClassVar[bool] = True

    def surface(
        self, potential: Potential, std_scale: float, rng: np.random.Generator, best: float
    ) -> Surface:
        """The member's deviation from the mean is multiplied by `std_scale`."""
        fit = potential.fitted
        alpha = fit.regression.alpha
        weights, shifts = fit.uncertainty.members(alpha, rng, 1)
        member = (alpha + std_scale * (weights[0] - alpha), std_scale * float(shifts[0]))
        return Surface(potential, 0.0, member)

    def score(self, energy: Floats, std: Floats, best: float) -> Floats:
        return energy
