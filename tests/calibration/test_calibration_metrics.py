"""Metrics: hand-worked cases, known distributions, and inputs that must be refused."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from nugget import calibration as c
from nugget.errors import NuggetError


def gaussian(n, seed=0, scale=1.0, spread=(0.2, 3.0)):
    """Labels drawn from N(pred, σ²), reported with scale·σ."""
    rng = np.random.default_rng(seed)
    std = rng.uniform(*spread, n)
    pred = rng.normal(size=n)
    return pred + std * rng.normal(size=n), pred, std * scale


def test_curve_by_hand():
    # F(y) = Φ(−1) = 0.159, Φ(0) = 0.5, Φ(1) = 0.841, Φ(2) = 0.977
    y = np.array([0.0, 2.0, -1.0, 1.0])
    p, observed = c.calibration_curve(y, np.zeros(4), np.ones(4), [0.1, 0.5, 0.9, 1.0])
    assert observed.tolist() == [0.0, 0.5, 0.75, 1.0]
    expected = 0.1**2 + 0.15**2
    assert c.calibration_error(y, np.zeros(4), np.ones(4), p) == pytest.approx(expected)
    _, inside = c.calibration_curve(y, np.zeros(4), np.ones(4), [0.0, 0.5, 0.7, 0.96], "interval")
    assert inside.tolist() == [0.25, 0.25, 0.75, 1.0]


def test_area_by_hand():
    # One label at F = 0.5: the curve jumps from 0 to 1; seen at 0, ½ and 1 the differences from the
    # diagonal are 0, ½, 0 and the area is ¼.
    assert c.miscalibration_area([0.0], [0.0], [1.0], [0, 0.5, 1]) == pytest.approx(0.25)
    # Seen at 0.4 and 0.6 it is −0.4 and +0.4: two triangles of base 0.1 and height 0.4.
    assert c.miscalibration_area([0.0], [0.0], [1.0], [0.4, 0.6]) == pytest.approx(0.04)


def test_bins_and_ence_by_hand():
    std = np.array([4.0, 1.0, 3.0, 1.0])
    error = np.array([0.0, 1.0, 5.0, -2.0])
    bins = c.sigma_bins(np.zeros(4), error, std, n_bins=2)
    assert bins.count.tolist() == [2, 2]
    np.testing.assert_allclose(bins.rmv, [1.0, np.sqrt(12.5)])
    np.testing.assert_allclose(bins.rmse, [np.sqrt(2.5), np.sqrt(12.5)])
    np.testing.assert_allclose(bins.bias, [-0.5, 2.5])
    assert bins.sigma_min.tolist() == [1.0, 3.0]
    assert bins.sigma_max.tolist() == [1.0, 4.0]
    assert c.ence(np.zeros(4), error, std, 2) == pytest.approx((np.sqrt(2.5) - 1) / 2)


def test_coverage_by_hand():
    error = np.array([0.5, 1.0, 1.5, 2.5])
    assert c.coverage(error, np.zeros(4), np.ones(4)) == 0.5
    assert c.coverage(error, np.zeros(4), np.ones(4), k=2) == 0.75


def test_dispersion():
    assert c.dispersion([2.0, 2.0, 2.0]) == 0.0
    assert c.dispersion([1.0, 3.0]) == pytest.approx(np.sqrt(2) / 2)
    assert c.dispersion([5.0]) == 0.0


def test_spearman_equals_scipy_with_ties():
    rng = np.random.default_rng(1)
    std = rng.integers(1, 6, 60).astype(float)
    true = rng.integers(-5, 6, 60).astype(float)
    expected = stats.spearmanr(std, np.abs(true)).statistic
    assert c.spearman(true, np.zeros(60), std) == pytest.approx(expected, abs=1e-12)
    assert np.isnan(c.spearman(true, np.zeros(60), np.ones(60)))


def test_known_sigma_is_flat_and_wrong_scale_is_seen():
    good = c.summary(*gaussian(20000))
    assert good.calibration_error < 0.01
    assert good.ence < 0.05
    assert good.coverage_1 == pytest.approx(0.6827, abs=0.01)
    assert good.coverage_2 == pytest.approx(0.9545, abs=0.01)
    assert good.spearman > 0.3
    for scale in (0.5, 2.0):
        bad = c.summary(*gaussian(20000, scale=scale))
        assert bad.calibration_error > 0.3
        assert bad.ence > 0.4
        assert bad.nll > good.nll
        assert bad.crps > good.crps
        assert bad.spearman == pytest.approx(good.spearman)


def test_global_curve_can_hide_what_ence_sees():
    # σ constant where the true spread is 0.4 or 1.4: the mixture's curve looks almost straight.
    rng = np.random.default_rng(3)
    true_std = np.repeat([0.4, 1.4], 5000)
    y = true_std * rng.normal(size=10000)
    said = np.where(true_std > 1, 1.001, 0.999)
    assert c.miscalibration_area(y, 0 * y, said) < 0.06
    assert c.ence(y, 0 * y, said) > 0.4


def test_per_atom():
    np.testing.assert_allclose(c.per_atom([4.0, 9.0], [2, 3]), [2.0, 3.0])
    with pytest.raises(NuggetError, match=r"sizes\[1\]"):
        c.per_atom([1.0, 2.0], [3, 0])
    with pytest.raises(NuggetError, match="one size per structure"):
        c.per_atom([1.0, 2.0], [3])


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.floats(0.01, 100), st.floats(-50, 50))
def test_units_and_origin_do_not_matter(seed, factor, shift):
    true, pred, std = gaussian(40, seed)
    moved = (factor * true + shift, factor * pred + shift, factor * std)
    for metric in (c.ence, c.spearman, c.miscalibration_area):
        assert metric(*moved) == pytest.approx(metric(true, pred, std), abs=1e-6)
    assert c.crps(*moved) == pytest.approx(factor * c.crps(true, pred, std), rel=1e-6)
    assert c.nll(*moved) == pytest.approx(c.nll(true, pred, std) + np.log(factor), abs=1e-6)


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(2, 40))
def test_order_does_not_matter(seed, n):
    true, pred, std = gaussian(n, seed)
    order = np.random.default_rng(seed).permutation(n)
    for name, metric in c.METRICS.items():
        a, b = metric(true, pred, std), metric(true[order], pred[order], std[order])
        assert a == pytest.approx(b, rel=1e-9, abs=1e-12), name


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (([1.0, np.nan], [0, 0], [1, 1]), r"y_true\[1\] is nan"),
        (([1.0, 2.0], [0, np.inf], [1, 1]), r"y_pred\[1\] is inf"),
        (([1.0, 2.0], [0, 0], [1, 0]), r"y_std\[1\] is 0"),
        (([1.0, 2.0], [0, 0], [-1, 1]), r"y_std\[0\] is -1"),
        (([1.0, 2.0], [0, 0, 0], [1, 1]), "2, 3 and 2 values"),
        (([[1.0, 2.0]], [0, 0], [1, 1]), r"y_true has shape \(1, 2\)"),
        (([], [], []), "at least one value"),
    ],
)
def test_bad_input_is_refused(inputs, message):
    for metric in (c.calibration_error, c.nll, c.crps, c.ence, c.spearman, c.coverage, c.summary):
        with pytest.raises(NuggetError, match=message):
            metric(*inputs)


def test_bad_options_are_refused():
    data = gaussian(10)
    with pytest.raises(NuggetError, match="levels"):
        c.calibration_error(*data, levels=[0.5, 0.2])
    with pytest.raises(NuggetError, match="kind"):
        c.calibration_error(*data, kind="both")
    with pytest.raises(NuggetError, match="n_bins is 11"):
        c.ence(*data, n_bins=11)


def test_bootstrap_interval_covers():
    # RMS of z is 1 for calibrated data: its 90 % interval should hold 1 in about 90 % of repeats.
    def rms_z(y, p, s):
        return float(np.sqrt(np.mean(((y - p) / s) ** 2)))

    hits = 0
    for seed in range(100):
        data = gaussian(80, seed)
        got = c.bootstrap(rms_z, *data, np.random.default_rng(seed), resamples=200, confidence=0.9)
        assert got.low <= got.high
        hits += got.low <= 1 <= got.high
    assert 78 <= hits <= 98


def test_summary_intervals_are_seeded_and_hold_the_value():
    data = gaussian(200)
    first = c.summary(*data, np.random.default_rng(5), resamples=100)
    again = c.summary(*data, np.random.default_rng(5), resamples=100)
    assert first == again
    assert set(first.intervals) == set(c.METRICS)
    for name in ("mae", "nll", "crps", "coverage_1", "sharpness"):
        low, high = first.intervals[name]
        assert low <= getattr(first, name) <= high
    assert c.summary(*data).intervals == {}
    assert first.to_dict()["n"] == 200
