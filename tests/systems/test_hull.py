"""The convex hull against geometry, and what a search over compositions minimises."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from scipy.spatial import ConvexHull

from nugget.systems.goal import AboveHull, Hull

CU, AU, AG = 29, 79, 47


def hull_of(points: dict[tuple[int, ...], float], elements: tuple[int, ...]) -> Hull:
    hull = Hull(elements)
    for shares, value in points.items():
        hull = hull.including(shares, value)
    return hull


def test_two_elements_against_lines() -> None:
    hull = hull_of({(1, 0): -3.0, (0, 1): -2.0, (1, 1): -2.9, (3, 1): -2.9, (1, 3): -2.3}, (CU, AU))
    # CuAu is 0.4 below the line of the elements. Cu3Au (-2.9) is above that of Cu and CuAu (-2.95).
    assert [hull.name(s) for s in hull.vertices()] == ["Cu", "CuAu", "Au"]
    assert hull.at((3, 1)) == pytest.approx(-2.95)
    assert hull.at((1, 3)) == pytest.approx(-2.45)
    assert hull.at((1, 1)) == -2.9
    assert hull.formation((1, 1), -2.9) == pytest.approx(-0.4)
    deeper = hull.including((3, 1), -3.1)
    assert [deeper.name(s) for s in deeper.vertices()] == ["Cu", "Cu3Au", "CuAu", "Au"]
    assert hull.including((3, 1), -2.94) is hull


def test_three_elements_against_qhull() -> None:
    rng = np.random.default_rng(0)
    points = {tuple(row): 0.0 for row in np.eye(3, dtype=int).tolist()}
    while len(points) < 25:
        shares = tuple(int(n) for n in rng.integers(0, 6, 3))
        if sum(shares) and np.gcd.reduce(shares) == 1:
            points.setdefault(shares, float(rng.normal(-0.5, 0.4)))
    hull = hull_of(points, (CU, AU, AG))
    x = np.array(list(points), dtype=float)
    x /= x.sum(axis=1, keepdims=True)
    qhull = ConvexHull(np.column_stack([x[:, :2], list(points.values())]))
    lower = qhull.equations[qhull.equations[:, 2] < -1e-12]
    for shares, row in zip(points, x, strict=True):
        planes = -(lower[:, :2] @ row[:2] + lower[:, 3]) / lower[:, 2]
        assert hull.at(shares) == pytest.approx(planes.max(), abs=1e-9)


def test_before_all_elements_are_known() -> None:
    goal = AboveHull(hull=Hull((CU, AU)))
    goal = goal.informed(Atoms("Cu2", cell=[3, 3, 3], pbc=True), -6.0)
    assert not goal.hull.complete
    assert goal.value(Atoms("CuAu", cell=[3, 3, 3], pbc=True), -5.0) == -2.5
    assert goal.reached([]) is None


def test_value_is_above_the_hull_and_orders_by_formation() -> None:
    cell = {"cell": [3, 3, 3], "pbc": True}
    known = [(Atoms("Cu", **cell), -3.0), (Atoms("Au2", **cell), -4.0), (Atoms("CuAu", **cell), -6)]
    goal = AboveHull(hull=Hull((CU, AU)))
    for one in known:
        goal = goal.informed(*one)
    mixed = Atoms("Cu3Au", **cell)
    assert goal.value(mixed, -11.0) == pytest.approx(0.25)
    assert goal.value(mixed, -12.4) == pytest.approx(-0.1)
    assert min(known, key=lambda one: goal.order(*one))[0].get_chemical_formula() == "AuCu"
    assert goal.least == 3
    assert goal.reached(known) == pytest.approx(-0.5)
    assert goal.same_atoms(mixed, [])
    assert not goal.same_atoms(Atoms("CuAg"), [])
    squeezed = AboveHull(0.01, hull=Hull((CU, AU)))
    assert squeezed.value(mixed, 0.0) == pytest.approx(0.01 * 27 / 4)
