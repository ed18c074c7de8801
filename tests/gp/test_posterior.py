"""The posterior of the weights, against dense Bayesian formulas and finite differences."""

from __future__ import annotations

import numpy as np
import pytest

from nugget.errors import NuggetError
from nugget.gp.labels import ENERGY, FORCE, STRESS, Labels
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty import Posterior

SETTINGS = Posterior(2.0, 0.03, 0.4, force=3.0, force_floor=0.1, stress=0.5, stress_floor=0.2)


def problem(p: int = 40, m: int = 9) -> tuple[np.ndarray, Labels]:
    rng = np.random.default_rng(3)
    z = rng.normal(size=(m, 2))
    k_mm = np.exp(-0.5 * np.sum((z[:, None] - z[None]) ** 2, axis=2))
    kind = np.where(np.arange(p) % 4 == 0, ENERGY, FORCE)
    count = np.where(kind == ENERGY, 6.0, 0.0)
    rows = rng.normal(size=(p, m))
    return k_mm, Labels(rows, rng.normal(size=p), np.full(p, 0.3), count, kind)


def covariance(k_mm: np.ndarray, labels: Labels) -> np.ndarray:
    weighted = labels.rows / labels.noise[:, None] ** 2
    return np.linalg.inv(k_mm + weighted.T @ labels.rows)


@pytest.mark.parametrize("p", [40, 5])
def test_variances_are_those_of_the_weights(p: int) -> None:
    k_mm, labels = problem(p)
    fitted = SETTINGS.fit(SparseRegression.fit(k_mm, labels))
    rows = np.random.default_rng(0).normal(size=(7, len(k_mm)))
    sizes = np.arange(2.0, 9.0)
    cov = covariance(k_mm, labels)
    v = np.einsum("ij,jk,ik->i", rows, cov, rows)
    c_n = cov @ labels.rows.T @ (labels.count / labels.noise**2)
    prior = (0.4 * (sizes - rows @ c_n)) ** 2
    expected = np.sqrt(4.0 * v + (0.03 * sizes) ** 2 + prior)
    np.testing.assert_allclose(fitted.std(rows, sizes), expected, rtol=1e-6)
    slope = (0.4 * rows @ c_n) ** 2
    np.testing.assert_allclose(
        fitted.derivative_std(rows, FORCE), np.sqrt(9.0 * v + 0.01 + slope), rtol=1e-6
    )
    np.testing.assert_allclose(
        fitted.derivative_std(rows, STRESS), np.sqrt(0.25 * v + 0.04 + slope), rtol=1e-6
    )
    doubled = fitted.with_scale(2.0)
    np.testing.assert_allclose(doubled.std(rows, sizes), 2 * expected, rtol=1e-6)
    np.testing.assert_allclose(doubled.derivative_std(rows, FORCE)[0], 2 * np.sqrt(
        9.0 * v[0] + 0.01 + slope[0]), rtol=1e-6)  # fmt: skip


def test_weights_are_the_gradient_of_the_std() -> None:
    fitted = SETTINGS.fit(SparseRegression.fit(*problem()))
    rng = np.random.default_rng(1)
    k_sum, along, sizes = rng.normal(size=(1, 9)), rng.normal(size=(1, 9)), np.array([5])
    coefficients, alpha = np.array([[0.0, 1.0]]), np.zeros(9)
    _, std, weights = fitted.std_and_weights(k_sum, sizes, alpha, coefficients)
    up, down = (fitted.std(k_sum + h * along, sizes) for h in (1e-5, -1e-5))
    assert (up - down)[0] / 2e-5 == pytest.approx(float(np.sum(weights[0] * along)), rel=1e-7)
    assert std[0] == pytest.approx(fitted.std(k_sum, sizes)[0])


def test_levels_reproduce_the_std() -> None:
    fitted = SETTINGS.fit(SparseRegression.fit(*problem()))
    rows, sizes = np.random.default_rng(2).normal(size=(4, 9)), np.arange(1.0, 5.0)
    levels = np.array([getattr(SETTINGS, name) for name in fitted.level_names])
    gram = fitted.unit_gram(rows, sizes)
    np.testing.assert_allclose(
        np.sqrt(np.einsum("a,nab,b->n", levels, gram, levels)), fitted.std(rows, sizes), rtol=1e-12
    )
    assert fitted.with_levels(energy=0.0, prior=0.0).std(rows, sizes) == pytest.approx(0.03 * sizes)


def test_members_scatter_as_the_posterior_without_the_floor() -> None:
    fitted = SETTINGS.fit(SparseRegression.fit(*problem()))
    row, alpha = np.random.default_rng(5).normal(size=9), np.zeros(9)
    weights, shifts = fitted.members(alpha, np.random.default_rng(0), 20_000)
    values = weights @ row + 6.0 * shifts
    expected = fitted.with_levels(energy_floor=0.0).std(row[None], np.array([6.0]))[0]
    assert values.std() == pytest.approx(expected, rel=0.03)


def test_state_comes_back() -> None:
    fitted = SETTINGS.fit(SparseRegression.fit(*problem())).with_scale(1.5)
    again = SETTINGS.from_state(fitted.state())
    rows = np.random.default_rng(2).normal(size=(4, 9))
    np.testing.assert_array_equal(again.std(rows, np.ones(4)), fitted.std(rows, np.ones(4)))


def test_negative_levels_are_refused() -> None:
    with pytest.raises(NuggetError, match="force_floor"):
        Posterior(force_floor=-1.0)
