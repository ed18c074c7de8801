"""Predictions for labels that were left out: the closed form against refits."""

from __future__ import annotations

import numpy as np
import pytest

from nugget.gp.cross_validation import blocks_of, left_out, structure_of
from nugget.gp.labels import ENERGY, FORCE, Labels
from nugget.gp.regression import SparseRegression


def problem(p: int, m: int, seed: int = 0) -> tuple[np.ndarray, Labels]:
    """Label rows of structures with one energy and two force components each."""
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(m, 3))
    k_mm = np.exp(-0.5 * np.sum((z[:, None] - z[None]) ** 2, axis=2))
    kind = np.where(np.arange(p) % 3 == 0, ENERGY, FORCE)
    count = np.where(kind == ENERGY, 5.0, 0.0)
    noise = np.where(kind == ENERGY, 0.1, 0.3)
    return k_mm, Labels(rng.normal(size=(p, m)), rng.normal(size=p), noise, count, kind)


def take(labels: Labels, rows: np.ndarray) -> Labels:
    return Labels(*(getattr(labels, n)[rows] for n in ("rows", "y", "noise", "count", "kind")))


@pytest.mark.parametrize(("p", "m"), [(60, 12), (15, 30)])
@pytest.mark.parametrize("size", [1, 4])  # structures per block; four have more rows than 12 points
def test_equals_a_refit_without_the_block(p: int, m: int, size: int) -> None:
    k_mm, labels = problem(p, m)
    whole = SparseRegression.fit(k_mm, labels)
    blocks = blocks_of(structure_of(whole) // size)
    found = left_out(whole, blocks)
    for rows in blocks:
        others = np.setdiff1d(np.arange(p), rows)
        refit = SparseRegression.fit(k_mm, take(labels, others))
        a = labels.rows[rows]
        expected = labels.y[rows] - a @ refit.alpha
        np.testing.assert_allclose(found.residual[rows], expected, rtol=1e-8)
        noisy = take(labels, others)
        precision = k_mm + (noisy.rows / noisy.noise[:, None] ** 2).T @ noisy.rows
        variance = np.einsum("pm,mp->p", a, np.linalg.solve(precision, a.T))
        np.testing.assert_allclose(found.variance[rows], variance, rtol=1e-6)


def test_rows_outside_all_blocks_stay_unknown() -> None:
    whole = SparseRegression.fit(*problem(9, 4))
    found = left_out(whole, [np.array([0, 1, 2])])
    assert np.isfinite(found.residual[:3]).all()
    assert np.isnan(found.residual[3:]).all()


def test_blocks_gather_rows_of_an_owner() -> None:
    blocks = blocks_of(np.array([2, 0, 2, 1]))
    assert [b.tolist() for b in blocks] == [[1], [3], [0, 2]]
