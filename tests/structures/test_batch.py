"""Batches: bad structures are named."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from example_structures import gold_cluster

from nugget.errors import NuggetError
from nugget.structures.batch import as_batch


def test_bad_structures_are_named() -> None:
    good = gold_cluster(5, 0)
    with pytest.raises(NuggetError, match="no structures"):
        as_batch([])
    with pytest.raises(NuggetError, match="Structure 1 has no atoms"):
        as_batch([good, Atoms()])
    for value in (np.nan, np.inf):
        bad = good.copy()
        bad.positions[2, 1] = value
        with pytest.raises(NuggetError, match="Structure 1, atom 2: the position is not finite"):
            as_batch([good, bad])
    flat = good.copy()
    flat.pbc = (True, True, False)
    flat.cell = [[3, 0, 0], [6, 0, 0], [0, 0, 0]]
    with pytest.raises(NuggetError, match="Structure 2 is periodic along xy"):
        as_batch([good, good, flat])
