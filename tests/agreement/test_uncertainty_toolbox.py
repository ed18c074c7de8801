"""Every metric that uncertainty-toolbox has as well must agree with it to 1e-10."""

import numpy as np
import pytest

from nugget import calibration as c

uct = pytest.importorskip("uncertainty_toolbox")

LEVELS = 101  # our default grid of confidence levels


@pytest.fixture(params=[(0, 1), (1, 7), (2, 25), (3, 400)], ids=lambda p: f"n={p[1]}")
def data(request):
    seed, n = request.param
    rng = np.random.default_rng(seed)
    std = rng.uniform(0.01, 2.0, n)
    pred = rng.normal(size=n)
    true = pred + 1.7 * std * rng.normal(size=n) + 0.1
    return true, pred, std


def close(ours, theirs):
    assert ours == pytest.approx(float(theirs), abs=1e-10, rel=1e-10)


def test_scores(data):
    true, pred, std = data
    close(c.nll(true, pred, std), uct.nll_gaussian(pred, std, true))
    close(c.crps(true, pred, std), uct.crps_gaussian(pred, std, true))
    close(c.sharpness(std), uct.sharpness(std))


@pytest.mark.parametrize("kind", ["interval", "quantile"])
def test_curve_area_and_error(data, kind):
    true, pred, std = data
    # The toolbox normalises y_pred − y_true, so its "quantile" is the share *above* a quantile;
    # Kuleshov's F_i(y_i) ≤ p is what it computes when the two are exchanged. Intervals do not mind.
    a, b = (true, pred) if kind == "interval" else (pred, true)
    expected, observed = uct.get_proportion_lists_vectorized(b, std, a, LEVELS, prop_type=kind)
    p, ours = c.calibration_curve(true, pred, std, kind=kind)
    np.testing.assert_allclose(p, expected, atol=1e-15)
    np.testing.assert_allclose(ours, observed, atol=1e-12)
    rms = uct.root_mean_squared_calibration_error(b, std, a, LEVELS, True, prop_type=kind)
    close(c.calibration_error(true, pred, std, kind=kind), LEVELS * rms**2)
    area = uct.miscalibration_area(b, std, a, LEVELS, True, prop_type=kind)
    close(c.miscalibration_area(true, pred, std, kind=kind), area)


def test_other_levels(data):
    true, pred, std = data
    area = uct.miscalibration_area(pred, std, true, 20, True)
    levels = np.linspace(0, 1, 20)
    close(c.miscalibration_area(true, pred, std, levels, "interval"), area)
