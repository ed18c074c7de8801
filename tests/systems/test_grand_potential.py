"""The envelope of grand potentials against grids and convex hulls, and the goal of a search."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from ase import Atoms

from nugget.systems.grand_potential import (
    Counts,
    Envelope,
    GrandPotential,
    appears,
    crossing,
    formation,
    grid,
    intervals,
    limits,
    neighbours,
    stable_on,
)
from nugget.systems.reservoirs import UNLIMITED

OXYGEN, HYDROGEN = 8, 1
LINE = Envelope((OXYGEN,), (-5.0,), (-3.0,), (0.0,))


def including(envelope: Envelope, points: dict[Counts, float]) -> Envelope:
    for counts, energy in points.items():
        envelope = envelope.including(counts, energy)
    return envelope


def random_points(rng: np.random.Generator, most: tuple[int, ...]) -> dict[Counts, float]:
    """Energies near a plane, so that several compositions are stable."""
    every = list(itertools.product(*(range(n + 1) for n in most)))
    return {c: -100.0 - 6.0 * sum(c) + 0.3 * sum(n * n for n in c) + rng.normal(0, 0.8)
            for c in every}  # fmt: skip


def test_two_phases() -> None:
    envelope = including(LINE, {(0,): -100.0, (2,): -112.0})  # E(2) − 2·(−5) = −102
    assert envelope.vertices() == [(0,), (2,)]
    # At the boundary Δμ = −1 one atom may have at most −100 + (−5 − 1) eV.
    assert envelope.at((1,)) == pytest.approx(-106.0)
    assert envelope.including((1,), -105.9) is envelope
    lower = envelope.including((1,), -106.2)
    assert lower.vertices() == [(0,), (1,), (2,)]
    assert lower.at((1,)) == -106.2
    assert envelope.stable_at(np.array([-1.5]))[0] == (0,)
    assert envelope.stable_at(np.array([-0.5]))[0] == (2,)


@pytest.mark.parametrize("most", [(7,), (4, 3)])
@pytest.mark.parametrize("seed", range(4))
def test_at_and_vertices_against_a_grid(most: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    points = random_points(rng, most)
    n = len(most)
    start = Envelope(
        (OXYGEN, HYDROGEN)[:n], (-5.0, -5.5)[:n], (-3.0, -2.5)[:n], (1.0, 1.5)[:n]
    )  # fmt: skip
    envelope = including(start, points)
    fine = 4001 if len(most) == 1 else 301
    axes = [np.linspace(a, b, fine) for a, b in zip(start.lowest, start.highest, strict=True)]
    delta = np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
    planes = {c: start.omega(c, e, delta) for c, e in points.items()}
    lowest = np.min(list(planes.values()), axis=0)
    on_grid = sorted(c for c, plane in planes.items() if (plane <= lowest + 1e-9).any())
    missed = set(envelope.vertices()) ^ set(on_grid)
    # A narrow region may lie between the points of the grid, never the other way round.
    assert all(c in envelope.vertices() for c in on_grid)
    assert all((planes[c] - lowest).min() < 0.05 for c in missed)
    for counts in points:
        work = (np.array(start.references) + delta) @ np.array(counts)
        assert envelope.at(counts) == pytest.approx(float((lowest + work).max()), abs=0.03)
        assert envelope.at(counts) >= float((lowest + work).max()) - 1e-9


def test_without_limits_it_is_the_convex_hull_of_energies() -> None:
    """Numbers of atoms 4 to 8: stable against E(N−1) + E(N+1) and farther neighbours."""
    energies = {4: -10.0, 5: -13.0, 6: -17.5, 7: -20.0, 8: -23.5}
    low, high = UNLIMITED
    envelope = including(Envelope((79,), (0.0,), (low,), (high,)),
                         {(n,): e for n, e in energies.items()})  # fmt: skip
    assert envelope.vertices() == [(4,), (6,), (8,)]
    assert envelope.at((5,)) == pytest.approx((-10.0 - 17.5) / 2)
    assert envelope.at((7,)) == pytest.approx((-17.5 - 23.5) / 2)


def test_goal() -> None:
    goal = GrandPotential(envelope=LINE)
    clean, one, two = Atoms("Pt4"), Atoms("Pt4O"), Atoms("Pt4O2")
    assert goal.value(clean, -100.0) == -100.0  # before there is anything to compare with
    goal = goal.informed(clean, -100.0).informed(two, -112.0)
    assert goal.value(one, -105.5) == pytest.approx(0.5)
    assert goal.value(one, -106.5) == pytest.approx(-0.5)
    assert goal.value(two, -112.0) == 0.0
    assert goal.values([one, two], np.array([-105.5, -111.0])) == pytest.approx([0.5, 1.0])
    assert goal.informed(one, -105.0) is goal
    # In the middle of the range (Δμ = −1.5) the clean surface is stable.
    assert goal.order(clean, -100.0) < goal.order(two, -112.0) < goal.order(one, -105.5)
    assert not goal.comparable(one, two)
    assert goal.least == 2
    assert goal.reached([]) is not None
    assert GrandPotential(envelope=LINE).reached([]) is None
    lower = goal.reached([(one, -107.0)])
    assert lower is not None
    assert lower < (goal.reached([]) or 0.0)


def test_memory_keeps_compositions_apart() -> None:
    memory = GrandPotential(envelope=LINE).memory()
    memory.add(Atoms("Pt2O", [[0, 0, 0], [2.5, 0, 0], [4.2, 0, 0]]), -10.0)
    assert Atoms("Pt2O", [[0, 0, 0], [0, 2.5, 0], [0, 4.2, 0]]) in memory
    assert Atoms("Pt2", [[0, 0, 0], [2.5, 0, 0]]) not in memory
    assert Atoms("Pt2H", [[0, 0, 0], [2.5, 0, 0], [4.2, 0, 0]]) not in memory


@pytest.mark.parametrize("seed", range(5))
def test_intervals_and_crossings_against_a_grid(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = np.array([0, 1, 3, 4, 6])
    energies = rng.normal(0, 1.0, (20, 5)) + 0.2 * counts**2 - counts
    lower, upper = intervals(counts, energies, -2.0, 3.0)
    delta = np.linspace(-2.0, 3.0, 20001)
    stable = stable_on(delta[:, None], counts[:, None], energies)
    for draw, row in enumerate(stable):
        for c in range(5):
            own = delta[row == c]
            if len(own):
                assert lower[draw, c] == pytest.approx(own.min(), abs=3e-4)
                assert upper[draw, c] == pytest.approx(own.max(), abs=3e-4)
            else:
                assert upper[draw, c] - lower[draw, c] < 3e-4
        for most in (0, 1, 3, 4):
            more = delta[counts[row] > most]
            expected = more.min() if len(more) else 3.0
            found = crossing(counts, energies[draw], most, -2.0, 3.0)
            assert float(found) == pytest.approx(expected, abs=3e-4)
    share = appears(stable, 5)
    assert np.array_equal(share, np.array([[c in row for c in range(5)] for row in stable]))


def test_neighbours_of_regions() -> None:
    """Four quadrants: opposite ones touch in one point only."""
    counts = np.array([[0, 0], [1, 0], [0, 1], [1, 1]])
    axes, points = grid([(-1.0, 1.0), (-1.0, 1.0)])
    stable = stable_on(points, counts, np.array([[0.0, 0.01, 0.01, 0.02]]))[0]
    assert neighbours(stable, axes) == [(0, 1), (0, 2), (1, 3), (2, 3)]


def test_limits_of_a_potential_without_limits() -> None:
    low, high = UNLIMITED
    envelope = including(Envelope((79,), (0.0,), (low,), (high,)),
                         {(4,): -10.0, (5,): -13.0, (6,): -17.5})  # fmt: skip
    [(start, end)] = limits(envelope)
    assert start < -4.5 < -3.0 < end  # slopes between neighbours
    assert formation(LINE, [(2,)], np.array([-12.0]))[0] == -2.0
