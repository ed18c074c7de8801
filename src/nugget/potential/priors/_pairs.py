"""Sums over pairs of atoms, for priors of bond lengths."""

from __future__ import annotations

import numpy as np

from nugget.potential._pair_loops import REACH, pair_sum
from nugget.potential.priors.base import PriorValues
from nugget.structures.batch import Batch
from nugget.structures.bonds import RADII
from nugget.structures.neighbours import Pairs, find_pairs


def pair_term(
    batch: Batch, pairs: Pairs | None, kind: int, factor: float, height: float, stiffness: float,
    complete: bool = False,
) -> PriorValues:  # fmt: skip
    """A sum over pairs whose bond lengths are `factor` times the sums of covalent radii.

    If it is to be `complete`, pairs that end before the sum does are not taken.
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
    return PriorValues(energies, gradient, strain)
