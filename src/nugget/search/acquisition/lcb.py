"""The lower confidence bound."""

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
class LowerConfidenceBound:
    """E − κσ, both to relax on and as score."""

    kappa: float = 2.0

    name: ClassVar[str] = "lcb"
    requires_members: ClassVar[bool] = False

    def surface(
        self, potential: Potential, std_scale: float, rng: np.random.Generator, best: float
    ) -> Surface:
        return potential.lcb(self.kappa * std_scale)

    def score(self, energy: Floats, std: Floats, best: float) -> Floats:
        return energy - self.kappa * std
