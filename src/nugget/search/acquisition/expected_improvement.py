"""Expected improvement."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from scipy.special import erfcx, ndtr

from nugget._compiled.arrays import Floats
from nugget.registry import registered
from nugget.search.acquisition.lcb import LowerConfidenceBound

_ROOT = np.sqrt(2 * np.pi)


def log_improvement(energy: Floats, std: Floats, best: float) -> Floats:
    """ln of the expected amount by which the best energy is beaten, σ(zΦ(z) + φ(z)).

    Far from the best the amount is below the smallest number; there ln φ(z) comes out of it.
    """
    safe = np.maximum(std, 1e-12)
    z = np.asarray((best - energy) / safe)
    near = np.maximum(z, -1.0)
    direct = np.log(near * ndtr(near) + np.exp(-0.5 * near * near) / _ROOT)
    far = np.clip(z, -1e4, -1.0)
    # zΦ(z)/φ(z) + 1, which goes as 1/z².
    rest = np.log1p(0.5 * far * _ROOT * erfcx(-far / np.sqrt(2)))
    rest -= 2 * np.log(np.maximum(-z, 1e4) / 1e4)
    tail = -0.5 * np.minimum(z, -1.0) ** 2 - np.log(_ROOT) + rest
    return np.asarray(np.log(safe) + np.where(z > -1.0, direct, tail))


@registered("acquisition")
@dataclass(frozen=True)
class ExpectedImprovement(LowerConfidenceBound):
    """Minus the logarithm of the expected improvement, which orders as the improvement does.

    It is flat far from the best, so candidates relax on the lower confidence bound.
    """

    name: ClassVar[str] = "ei"

    def score(self, energy: Floats, std: Floats, best: float) -> Floats:
        return -log_improvement(energy, std, best)
