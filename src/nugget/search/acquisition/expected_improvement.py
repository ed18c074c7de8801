"""Expected improvement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import ndtr

from nugget._compiled.arrays import Floats
from nugget.registry import registered
from nugget.search.acquisition.lcb import LowerConfidenceBound


@registered("acquisition")
@dataclass(frozen=True)
class ExpectedImprovement(LowerConfidenceBound):
    """Minus the expected amount by which the best energy is beaten: −σ(zΦ(z) + φ(z)).

    It is flat far from the best, so candidates relax on the lower confidence bound.
    """

    name: ClassVar[str] = "ei"

    def score(self, energy: Floats, std: Floats, best: float) -> Floats:
        safe = np.maximum(std, 1e-12)
        z = (best - energy) / safe
        gain = safe * (z * ndtr(z) + np.exp(-0.5 * z * z) / np.sqrt(2 * np.pi))
        # Where σ is 0 or very small the energy decides, so that no two scores are equal.
        return np.asarray(-gain + 1e-9 * energy)
