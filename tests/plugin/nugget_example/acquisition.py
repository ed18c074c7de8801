"""Explores while the model is young, then believes the mean."""

from dataclasses import dataclass
from typing import ClassVar


@dataclass(frozen=True)
class GreedyAfter:
    """The lower confidence bound, with an exploration that is smaller near the best energy."""

    name: ClassVar[str] = "greedy-after"
    requires_members: ClassVar[bool] = False

    kappa: float = 1.0

    def surface(self, potential, std_scale, rng, best):
        return potential.lcb(self.kappa * std_scale)

    def score(self, energy, std, best):
        return energy - self.kappa * std
