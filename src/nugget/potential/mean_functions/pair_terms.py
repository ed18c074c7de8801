"""Mean functions that are sums over pairs: a Morse-like well and a short-range repulsion."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.jit import FAST, njit
from nugget.potential.mean_functions.base import FixedMeanFunction, MeanValues
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.geometry import RADII
from nugget.structures.neighbours import Pairs, find_pairs

REPULSION, WELL = 0, 1

# Range of each kind, in bond lengths.
REACH = (1.0, 2.2)


@njit(fastmath=FAST, inline="always")
def _pair(kind: int, r: float, bond: float, height: float, stiffness: float) -> tuple[float, float]:
    """φ(r) and φ'(r)."""
    if kind == REPULSION:
        u = bond / r - 1.0
        return height * u * u * u, -3.0 * height * u * u * bond / (r * r)
    e = np.exp(-stiffness * (r / bond - 1.0))
    well = height * e * (e - 2.0)
    slope = -2.0 * stiffness / bond * height * e * (e - 1.0)
    end = REACH[1] * bond
    share = r / end
    left = 1.0 - share * share
    return well * left * left, slope * left * left - 4.0 * well * left * share / end


@njit(fastmath=FAST)
def pair_sum(
    positions: Floats,
    radii: Floats,
    owner: Ints,
    i: Ints,
    j: Ints,
    shift: Floats,
    kind: int,
    height: float,
    stiffness: float,
    energies: Floats,
    gradient: Floats,
    strain: Floats,
) -> None:
    """Add φ of all pairs to `energies` (half to each atom), and its derivatives."""
    d = np.empty(3)
    for p in range(len(i)):
        a, b = i[p], j[p]
        r2 = 0.0
        for axis in range(3):
            d[axis] = positions[b, axis] + shift[p, axis] - positions[a, axis]
            r2 += d[axis] * d[axis]
        bond = radii[a] + radii[b]
        end = REACH[kind] * bond
        if r2 >= end * end:
            continue
        r = np.sqrt(r2)
        if r < 1e-6:
            # Coincident atoms need some direction in which to separate.
            d[0], d[1], d[2] = 1e-6, 0.0, 0.0
            r = 1e-6
        value, slope = _pair(kind, r, bond, height, stiffness)
        energies[a] += 0.5 * value
        energies[b] += 0.5 * value
        for axis in range(3):
            g = slope * d[axis] / r
            gradient[b, axis] += g
            gradient[a, axis] -= g
            for other in range(3):
                strain[owner[a], axis, other] += g * d[other]


def pair_term(
    batch: Batch, pairs: Pairs | None, kind: int, factor: float, height: float, stiffness: float,
    complete: bool = False,
) -> MeanValues:  # fmt: skip
    """A sum over pairs whose bond lengths are `factor` times the sums of covalent radii.

    With `complete`, a list of `pairs` that is shorter than the range of the sum is not used.
    """
    radii = RADII[batch.numbers] * factor
    reach = 2 * REACH[kind] * float(radii.max())
    if pairs is None or (complete and pairs.reach < reach):
        pairs = find_pairs(batch, reach)
    energies, gradient = np.zeros(len(batch.positions)), np.zeros_like(batch.positions)
    strain = np.zeros((len(batch), 3, 3))
    pair_sum(
        batch.positions, radii, batch.owner, pairs.i, pairs.j, pairs.shift,
        kind, height, stiffness, energies, gradient, strain,
    )  # fmt: skip
    return MeanValues(energies, gradient, strain)


@registered("prior")
@dataclass(frozen=True)
class PairWell(FixedMeanFunction):
    """φ(r) = depth · (u² − 2u) · (1 − (r/r_c)²)² with u = e^{−a(r−r₀)}, a smoothly truncated Morse.

    r₀ = length · (sum of covalent radii), a = stiffness/r₀, r_c = 2.2 r₀. The well is crude for
    any element, but its minima are compact structures with reasonable bond lengths. Where a
    descriptor's cutoff is shorter than r_c, the well ends there in a small step, unless it is
    `complete`.
    """

    name: ClassVar[str] = "pair-well"
    depth: float = 0.3
    length: float = 1.0
    stiffness: float = 6.0
    complete: bool = False

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        return pair_term(batch, pairs, WELL, self.length, self.depth, self.stiffness, self.complete)


@registered("prior")
@dataclass(frozen=True)
class Repulsion(FixedMeanFunction):
    """φ(r) = strength · (r₀/r − 1)³ for r < r₀ = reach · (sum of covalent radii), else 0.

    It keeps atoms apart where there are no data. It diverges as atoms meet, and it is zero, with
    two continuous derivatives, at the distances that occur in training data.
    """

    name: ClassVar[str] = "repulsion"
    strength: float = 10.0
    reach: float = 0.8

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        return pair_term(batch, pairs, REPULSION, self.reach, self.strength, 0.0)
