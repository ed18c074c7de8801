"""Noise levels by leaving out: the Gram matrices against plain refits, and sensible choices."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nugget.gp.cross_validation import NoiseSearch, blocks_of, left_out, structure_of
from nugget.gp.labels import ENERGY, FORCE, Labels
from nugget.gp.regression import SparseRegression


def problem(noise: float, seed: int = 0) -> tuple[np.ndarray, Labels]:
    """A linear truth with noise on all labels; 30 structures of one energy and two forces."""
    rng = np.random.default_rng(seed)
    m, p = 8, 90
    z = rng.normal(size=(m, 2))
    k_mm = np.exp(-0.5 * np.sum((z[:, None] - z[None]) ** 2, axis=2)) + 1e-6 * np.eye(m)
    rows = rng.normal(size=(p, m))
    kind = np.where(np.arange(p) % 3 == 0, ENERGY, FORCE)
    truth = rows @ np.linalg.solve(np.linalg.cholesky(k_mm).T, rng.normal(size=m))
    count = np.where(kind == ENERGY, 4.0, 0.0)
    y = truth + noise * rng.normal(size=p)
    return k_mm, Labels(rows, y, np.full(p, 0.1), count, kind)


def test_a_trial_equals_a_refit_with_that_noise() -> None:
    k_mm, labels = problem(0.1)
    search = NoiseSearch(SparseRegression.fit(k_mm, labels))
    energy = labels.kind == ENERGY
    scaled = replace(labels, noise=labels.noise * np.where(energy, 0.5, 3.0))
    refit = SparseRegression.fit(k_mm, scaled)
    found = left_out(refit, blocks_of(structure_of(refit)))
    trial = search.trial(0.5, 3.0)
    expected = np.mean(np.abs(found.residual[energy] / labels.count[energy]))
    assert trial.energy_mae == pytest.approx(expected, rel=1e-8)
    assert trial.force_mae == pytest.approx(np.mean(np.abs(found.residual[~energy])), rel=1e-8)
    assert trial.score == pytest.approx(np.log(trial.energy_mae) + np.log(trial.force_mae))


def test_the_best_is_no_worse_than_its_neighbours_and_follows_the_noise() -> None:
    quiet = NoiseSearch(SparseRegression.fit(*problem(0.001))).best()
    loud = NoiseSearch(SparseRegression.fit(*problem(1.0))).best()
    assert quiet.score <= NoiseSearch(SparseRegression.fit(*problem(0.001))).trial(1.0, 1.0).score
    assert quiet.force < loud.force


def test_energies_alone() -> None:
    k_mm, labels = problem(0.1)
    rows = np.flatnonzero(labels.kind == ENERGY)
    alone = Labels(*(getattr(labels, n)[rows] for n in ("rows", "y", "noise", "count", "kind")))
    best = NoiseSearch(SparseRegression.fit(k_mm, alone), np.arange(10)).best()
    assert np.isnan(best.force_mae)
    assert best.force == 1.0
    assert np.isfinite(best.score)
