import numpy as np
import pytest

from nugget.errors import NuggetError
from nugget.gp.inducing import CUR, PivotedCholesky, Random, leverage_scores
from nugget.gp.kernels import RBF
from nugget.gp.linalg import cholesky, solve
from nugget.gp.points import Points

KERNEL = RBF(1.5, 2.0)


def points(n=200, f=3, seed=0, groups=1):
    rng = np.random.default_rng(seed)
    return Points(rng.normal(size=(n, f)), [0, n], rng.integers(0, groups, n))


def svd_scores(x):
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    return (u[:, s > 1e-12 * s[0]] ** 2).sum(1)


@pytest.mark.parametrize("scale", [np.ones(6), np.logspace(0, -5, 6)])
def test_leverage_scores_equal_those_of_a_full_svd(scale):
    x = np.random.default_rng(0).normal(size=(300, 6)) * scale
    scores = leverage_scores(x)
    np.testing.assert_allclose(scores, svd_scores(x), rtol=1e-8)
    assert scores.sum() == pytest.approx(6)


def test_leverage_scores_of_rank_deficient_and_wide_matrices():
    rng = np.random.default_rng(1)
    x = rng.normal(size=(100, 3)) @ rng.normal(size=(3, 8))
    np.testing.assert_allclose(leverage_scores(x), svd_scores(x), rtol=1e-8)
    assert leverage_scores(x).sum() == pytest.approx(3)
    np.testing.assert_allclose(leverage_scores(rng.normal(size=(4, 9))), 1.0)
    x[:, 2] = 0.0
    x[10:20] = 0.0
    assert np.all(leverage_scores(x)[10:20] < 1e-20)
    assert np.all(leverage_scores(np.zeros((5, 2))) == 0.0)


def test_cur_draws_with_the_paper_s_probabilities():
    # One draw out of five rows, often: frequencies follow the leverage scores.
    x = np.array([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0], [0.0, 1.0], [0.0, 0.0]])
    p = Points.single(x)
    rng = np.random.default_rng(2)
    counts = np.zeros(5)
    for _ in range(4000):
        counts[CUR(1).select(p, KERNEL, rng)] += 1
    expected = np.array([0.1, 0.4, 0.25, 0.25, 0.0])
    assert np.all(np.abs(counts / 4000 - expected) < 4 * np.sqrt(0.25 / 4000))
    assert counts[4] == 0


@pytest.mark.parametrize("rule", [CUR(20), Random(20)])
def test_draws_are_distinct_seeded_and_top_up_only(rule):
    p = points()
    first = rule.select(p, KERNEL, np.random.default_rng(3))
    again = rule.select(p, KERNEL, np.random.default_rng(3))
    np.testing.assert_array_equal(first, again)
    assert np.unique(first).size == 20
    existing = (p.x[first[:15]], p.group[first[:15]])
    new = rule.select(p, KERNEL, np.random.default_rng(4), existing)
    assert new.size == 5
    assert not set(new) & set(first[:15])
    full = (p.x[first], p.group[first])
    assert rule.select(p, KERNEL, np.random.default_rng(5), full).size == 0


@pytest.mark.parametrize("rule", [CUR(500), Random(500)])
def test_fewer_rows_than_wanted_gives_all(rule):
    assert rule.select(points(30), KERNEL, np.random.default_rng(0)).size == 30


def test_cur_fills_up_with_rows_of_zero_leverage_when_it_must():
    x = np.zeros((10, 2))
    x[:3] = np.random.default_rng(0).normal(size=(3, 2))
    chosen = CUR(5).select(Points.single(x), KERNEL, np.random.default_rng(1))
    assert set(chosen) >= {0, 1, 2}
    assert np.unique(chosen).size == 5


def residual(p, chosen):
    inducing = KERNEL.inducing(p.x[chosen], p.group[chosen])
    upper, _ = cholesky(inducing.gram)
    v = solve(upper, inducing.matrix(p.x, p.group).T, transposed=True)
    return KERNEL.amplitude - (v**2).sum(0)


@pytest.mark.parametrize("groups", [1, 3])
def test_pivoted_cholesky_leaves_no_row_above_the_tolerance(groups):
    p = points(groups=groups)
    chosen = PivotedCholesky(1e-4).select(p, KERNEL, np.random.default_rng(0))
    assert np.unique(chosen).size == chosen.size < 200
    assert residual(p, chosen).max() <= 1.001e-4 * KERNEL.amplitude
    assert residual(p, chosen[:-1]).max() > 1e-4 * KERNEL.amplitude


def test_pivoted_cholesky_is_greedy():
    p = points(60)
    chosen = PivotedCholesky(1e-6).select(p, KERNEL, np.random.default_rng(0))
    for count in (1, 5, 12):
        assert chosen[count] == np.argmax(residual(p, chosen[:count]))


def test_pivoted_cholesky_appends_only_what_is_new():
    old, new = points(150, seed=1), points(50, seed=2)
    rng = np.random.default_rng(0)
    rule = PivotedCholesky(1e-4)
    first = rule.select(old, KERNEL, rng)
    existing = (old.x[first], old.group[first])
    assert rule.select(old, KERNEL, rng, existing).size == 0
    second = rule.select(new, KERNEL, rng, existing)
    assert 0 < second.size < 50
    upper, _ = cholesky(KERNEL.inducing(*existing).gram)
    np.testing.assert_array_equal(second, rule.select(new, KERNEL, rng, existing, factor=upper))
    x, group = (np.concatenate([getattr(p, n) for p in (old, new)]) for n in ("x", "group"))
    both = Points(x, np.arange(201), group)
    together = np.concatenate([first, 150 + second])
    assert residual(both, together).max() <= 1.01e-4 * KERNEL.amplitude


def test_pivoted_cholesky_stops_at_max_points_and_skips_duplicates():
    p = points(100)
    rng = np.random.default_rng(0)
    assert PivotedCholesky(1e-12, 10).select(p, KERNEL, rng).size == 10
    existing = (p.x[:8], p.group[:8])
    assert PivotedCholesky(1e-12, 10).select(p, KERNEL, rng, existing).size == 2
    twice = Points(np.repeat(p.x[:5], 2, axis=0), [0, 10], np.zeros(10, int))
    assert PivotedCholesky(1e-9).select(twice, KERNEL, rng).size == 5


def test_bad_settings_are_named():
    with pytest.raises(NuggetError, match="inducing points"):
        CUR(0)
    with pytest.raises(NuggetError, match="tol"):
        PivotedCholesky(0.0)
