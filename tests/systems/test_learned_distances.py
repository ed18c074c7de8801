"""Shortest distances that evaluations leave open."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.data import covalent_radii

from nugget.systems import PlacedAtoms
from nugget.systems.validity import APART, NEARLY, learned_ratio

SUM = 2 * covalent_radii[79]


def chain(*ratios: float) -> Atoms:
    """Gold atoms in a row; distances in units of the sum of two radii."""
    x = np.concatenate([[0.0], np.cumsum(ratios)]) * SUM
    return Atoms(f"Au{len(x)}", [(value, 0.0, 0.0) for value in x])


def test_bad_structures_with_short_distances_raise_the_limit() -> None:
    closest = np.array([0.80, 0.78, 0.95, 1.0, 1.0])
    values = np.array([9.0, 30.0, 0.2, 0.0, 0.1])
    assert learned_ratio(closest, values, 0.75) == pytest.approx(APART * 0.80)
    # Not beyond a share of the shortest distance among the lowest structures.
    close = np.array([0.94, 0.78, 0.95, 1.0, 1.0])
    assert learned_ratio(close, values, 0.75) == pytest.approx(NEARLY * 1.0)
    # A low structure with short distances keeps them open.
    assert learned_ratio(closest, np.array([0.5, 30.0, 0.2, 0.0, 0.1]), 0.75) == pytest.approx(
        APART * 0.78
    )
    assert learned_ratio(closest, np.zeros(5), 0.75) == 0.75


def test_clusters_learn_from_their_evaluations() -> None:
    system = PlacedAtoms.cluster("Au3")
    assert system.updated([], []) is system
    images = [chain(0.8, 1.0), chain(1.0, 1.0), chain(1.0, 1.02), chain(0.98, 1.0)]
    assert system.updated(images, [0.0, 0.1, 0.2, 0.3]) is system
    learned = system.updated(images, [300.0, 0.1, 0.2, 0.3])
    assert learned.min_ratio == pytest.approx(APART * 0.8)
    assert system.fault(chain(0.81, 1.0)) is None
    assert learned.fault(chain(0.81, 1.0)) == "two atoms are too close"
    assert learned.fault(chain(0.9, 1.0)) is None


def test_distances_within_the_template_do_not_count() -> None:
    slab = fcc111("Au", (2, 2, 1), a=3.3, vacuum=8.0)  # compressed
    system = PlacedAtoms.on_template("Au", slab)

    def placed(height: float) -> Atoms:
        return system.assemble(np.vstack([slab.positions, slab.positions[0] + [0, 0, height]]))

    assert system._closest(placed(2.4)) == pytest.approx(2.4 / SUM, rel=1e-6)
