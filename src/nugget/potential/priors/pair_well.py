"""A well for every pair of atoms: compact structures with sensible bonds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from nugget.potential._pair_loops import WELL
from nugget.potential.priors._pairs import pair_term
from nugget.potential.priors.base import FixedPrior, PriorValues
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs


@registered("prior")
@dataclass(frozen=True)
class PairWell(FixedPrior):
    """φ(r) = depth · (u² − 2u) · (1 − (r/r_c)²)² with u = e^{−a(r−r₀)}: Morse, cut off softly.

    r₀ = length · (sum of covalent radii), a = stiffness/r₀, r_c = 2.2 r₀. Crude for any element,
    but its minima are compact structures with sensible bonds: a better start than random atoms.
    Where a descriptor's cutoff is shorter than r_c, the well ends there in a small step, unless it
    is `complete`.
    """

    name: ClassVar[str] = "pair-well"
    depth: float = 0.3
    length: float = 1.0
    stiffness: float = 6.0
    complete: bool = False

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        return pair_term(batch, pairs, WELL, self.length, self.depth, self.stiffness, self.complete)
