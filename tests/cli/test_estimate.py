from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster

from nugget import CUR, SOAP, PivotedCholesky, Potential
from nugget.cli._fit import FitSize, available_memory, estimate_fit, measure, points_that_fit, speed
from nugget.potential.training import TrainingData
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs


def clusters(count: int):
    images = []
    for s in range(count):
        atoms = gold_cluster(12, s)
        atoms.calc = EMT()
        results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        atoms.calc = SinglePointCalculator(atoms, **results)
        images.append(atoms)
    return images


@pytest.mark.parametrize("inducing", [CUR(400), PivotedCholesky(1e-9, 150)])
@pytest.mark.parametrize("forces", [True, False])
def test_memory_is_about_what_a_fit_takes(inducing, forces):
    images = clusters(60)
    pot = Potential(SOAP(["Au"], 5.0), inducing=inducing)
    pot.fit(images[:3], use_forces=forces)  # compile first
    size = measure(pot, TrainingData.read(images, forces, False), forces)
    tracemalloc.start()
    pot.fit(images, use_forces=forces)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert size.environments == 720
    assert size.labels == len(pot.fitted.regression.y)
    assert size.points == pytest.approx(len(pot.fitted.inducing), rel=0.3)
    assert 0.5 * peak < estimate_fit(size).bytes < 2.5 * peak


def test_points_of_a_large_set_are_foreseen_from_a_sample():
    images = clusters(250)  # 3000 environments, of which about a third are looked at
    pot = Potential(SOAP(["Au"], 5.0), inducing=PivotedCholesky(1e-6))
    foreseen = measure(pot, TrainingData.read(images, True, False), forces=True)
    pot.fit(images, use_forces=False)
    assert foreseen.points == pytest.approx(len(pot.fitted.inducing), rel=0.4)
    assert foreseen.pairs == pytest.approx(len(find_pairs(as_batch(images), 5.0).i), rel=0.05)


def test_costs_grow_as_they_should():
    small = FitSize(3000, 15000, 9000, 18, 300, largest_pairs=100)
    more_points = FitSize(3000, 15000, 9000, 18, 600, largest_pairs=100)
    more_labels = FitSize(3000, 15000, 18000, 18, 300, largest_pairs=100)
    a, b, c = (estimate_fit(s) for s in (small, more_points, more_labels))
    assert 2.0 < b.seconds / a.seconds < 5.0  # p m² and n m²
    assert 1.8 < b.bytes / a.bytes < 2.3  # p m
    assert 1.2 < c.seconds / a.seconds < 2.0
    assert 1.5 < c.bytes / a.bytes < 2.0
    assert estimate_fit(small, 40.0).seconds < a.seconds


def test_the_hint_fits():
    size = FitSize(100_000, 10**6, 300_000, 252, 5000, largest_pairs=500)
    limit = 8e9
    assert estimate_fit(size).bytes > limit
    few = points_that_fit(size, limit)
    assert 100 < few < 5000
    for points, fits in ((few, True), (few + 1, False)):
        assert (
            estimate_fit(FitSize(100_000, 10**6, 300_000, 252, points, largest_pairs=500)).bytes
            <= limit
        ) is fits
    assert points_that_fit(size, 1.0) == 0


def test_this_machine_has_some_speed_and_memory():
    assert 0.05 < speed() < 1e5
    assert 1e6 < available_memory() < 1e15
    assert np.isfinite(available_memory())
