"""A repulsion that keeps atoms apart."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nugget.potential._pair_loops import REPULSION
from nugget.potential.priors._pairs import pair_term
from nugget.potential.priors.base import FixedPrior, PriorValues
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs


@registered("prior")
@dataclass(frozen=True)
class Repulsion(FixedPrior):
    """φ(r) = strength · (r₀/r − 1)³ for r < r₀ = reach · (sum of covalent radii), else 0.

    Keeps atoms apart where there are no data: it rises without limit as atoms meet, and is zero,
    with two continuous derivatives, at the distances that occur in training data.
    """

    name: ClassVar[str] = "repulsion"
    strength: float = 10.0
    reach: float = 0.8

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        return pair_term(batch, pairs, REPULSION, self.reach, self.strength, 0.0)
