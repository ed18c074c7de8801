"""Expected improvement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from nugget._compiled.arrays import Floats
from nugget.potential.potential import Potential
from nugget.potential.surface import Surface
from nugget.registry import registered


@registered("acquisition")
@dataclass(frozen=True)
class ExpectedImprovement:
    """Minus the expected amount by which the best energy is beaten: −σ(zΦ(z) + φ(z)).

    It is flat far from the best, so candidates relax on E − κσ instead.
    """

    kappa: float = 2.0

    name: ClassVar[str] = "ei"
    requires_members: ClassVar[bool] = False

    def surface(
        self, potential: Potential, std_scale: float, rng: np.random.Generator, best: float
    ) -> Surface:
        return potential.lcb(self.kappa * std_scale)

    def score(self, energy: Floats, std: Floats, best: float) -> Floats:
        safe = np.maximum(std, 1e-12)
        z = (best - energy) / safe
        gain = safe * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))
        # Where σ is 0 or very small the energy decides, so that no two scores are equal.
        return np.asarray(-gain + 1e-9 * energy)
