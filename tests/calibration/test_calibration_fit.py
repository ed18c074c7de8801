"""Recalibration: known levels come back, whatever the objective; weak ground is announced."""

import json
import warnings

import numpy as np
import pytest

from nugget import calibration as c
from nugget.calibration.online import huber_scale
from nugget.errors import NuggetError

OBJECTIVES = ("calibration_error", "nll", "crps")


def scaled(n, factor, seed=0):
    """Labels with true spread factor·σ."""
    rng = np.random.default_rng(seed)
    std = rng.uniform(0.2, 3.0, n)
    return rng.normal(size=n) * std * factor, np.zeros(n), std


@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("factor", [0.02, 3.0])
def test_scale_is_recovered_within_its_interval(objective, factor):
    data = scaled(400, factor)
    fit = c.fit_scale(*data, objective=objective, rng=np.random.default_rng(1))
    low, high = fit.interval["scale"]
    assert low < factor < high
    assert high / low < 1.4
    assert fit.scale == pytest.approx(factor, rel=0.15)
    assert fit.n == 400
    assert fit.on_bound == ()
    metric = getattr(c, objective)
    assert fit.value == pytest.approx(metric(data[0], data[1], data[2] * fit.scale), abs=1e-9)


def test_scale_by_likelihood_is_the_root_mean_square():
    data = scaled(30, 1.3)
    fit = c.fit_scale(*data, objective="nll")
    assert fit.scale == pytest.approx(np.sqrt(np.mean((data[0] / data[2]) ** 2)), rel=1e-5)
    assert fit.interval == {}


def pieces(n, seed=0, label=0.03, prior=0.1):
    rng = np.random.default_rng(seed)
    a, b = rng.uniform(0.05, 4.0, n) ** 2, rng.uniform(0.05, 4.0, n) ** 2
    return rng.normal(size=n) * np.sqrt(label**2 * a + prior**2 * b), a, b


def fit_pieces(y_true, y_pred, unit, **options):
    """Levels of independent variances, σ² = Σ level²·unit."""
    gram = np.zeros((len(y_true), len(unit), len(unit)))
    for k, variance in enumerate(unit.values()):
        gram[:, k, k] = variance
    return c.fit_levels(y_true, y_pred, gram, tuple(unit), **options)


@pytest.mark.parametrize("objective", ["nll", "crps"])
def test_two_levels_are_recovered(objective):
    y, a, b = pieces(2000)
    unit = {"label": a, "prior": b}
    fit = fit_pieces(y, np.zeros_like(y), unit, objective=objective)
    assert fit.levels == pytest.approx({"label": 0.03, "prior": 0.1}, rel=0.25)


def test_intervals_hold_the_true_levels_about_as_often_as_they_say():
    hits = {"label": 0, "prior": 0}
    for seed in range(24):
        y, a, b = pieces(120, seed, label=0.06)
        fit = fit_pieces(
            y,
            np.zeros_like(y),
            {"label": a, "prior": b},
            objective="nll",
            rng=np.random.default_rng(seed),
            resamples=40,
            confidence=0.9,
        )
        for name, truth in (("label", 0.06), ("prior", 0.1)):
            low, high = fit.interval[name]
            hits[name] += low <= truth <= high
    assert min(hits.values()) >= 17, hits


def test_calibration_error_gets_to_the_global_minimum():
    """Zooming on the grid must not be beaten by a brute-force scan."""
    y, a, b = pieces(25, seed=4)
    zero = np.zeros_like(y)
    fit = fit_pieces(y, zero, {"label": a, "prior": b})
    fine = np.geomspace(1e-3, 1.0, 120)
    brute = min(
        c.calibration_error(y, zero, np.sqrt(s**2 * a + t**2 * b)) for s in fine for t in fine
    )
    assert fit.value <= brute + 1 / 25**2
    sigma = np.sqrt(fit.levels["label"] ** 2 * a + fit.levels["prior"] ** 2 * b)
    assert fit.value == pytest.approx(c.calibration_error(y, zero, sigma), abs=1e-12)


def test_likelihood_minimum_has_no_slope():
    y, a, b = pieces(60, seed=2)
    zero = np.zeros_like(y)
    fit = fit_pieces(y, zero, {"label": a, "prior": b}, objective="nll")
    for ds, dt in ((1.01, 1), (0.99, 1), (1, 1.01), (1, 0.99), (1.01, 0.99), (0.99, 1.01)):
        s, t = fit.levels["label"] * ds, fit.levels["prior"] * dt
        assert c.nll(y, zero, np.sqrt(s**2 * a + t**2 * b)) > fit.value


def test_three_levels_are_no_worse_than_two():
    y, a, b = pieces(40)
    third = np.random.default_rng(9).uniform(0.1, 1.0, 40)
    zero = np.zeros_like(y)
    unit = {"label": a, "prior": b, "force": third}
    fit = fit_pieces(y, zero, unit, objective="nll")
    assert set(fit.levels) == {"label", "prior", "force"}
    two = fit_pieces(y, zero, {"label": a, "prior": b}, objective="nll")
    assert fit.value <= two.value + 1e-9


def test_cross_terms_of_a_sampled_committee():
    rng = np.random.default_rng(3)
    label, prior = rng.normal(size=(500, 8)), rng.normal(size=(500, 8))
    y = rng.normal(size=500) * np.linalg.norm(0.2 * label + 0.05 * prior, axis=1)
    members = np.stack([label, prior], axis=1)
    gram = members @ members.transpose(0, 2, 1)
    fit = c.fit_levels(y, np.zeros(500), gram, ("label", "prior"), objective="nll")
    assert fit.levels["label"] == pytest.approx(0.2, rel=0.15)
    assert fit.levels["prior"] == pytest.approx(0.05, rel=0.5)


def test_scale_invariance_of_the_search():
    """Units a thousand times smaller: levels too, and the very same calibration error."""
    y, a, b = pieces(25, seed=7)
    zero = np.zeros_like(y)
    unit = {"label": a, "prior": b}
    limits = {"label": (1e-4, 1.0), "prior": (1e-4, 1.0)}
    small = {"label": (1e-7, 1e-3), "prior": (1e-7, 1e-3)}
    one = fit_pieces(y, zero, unit, bounds=limits)
    other = fit_pieces(y / 1000, zero, unit, bounds=small)
    assert other.value == pytest.approx(one.value, abs=1e-9)
    assert other.levels["prior"] == pytest.approx(one.levels["prior"] / 1000, rel=1e-3)


def test_warnings():
    y, a, _ = pieces(8)
    zero = np.zeros_like(y)
    with pytest.warns(c.CalibrationWarning, match="8 structures only"):
        c.fit_scale(y, zero, a)
    y, a, _ = pieces(30, prior=1e-9)
    with pytest.warns(c.CalibrationWarning, match="best label lies on a bound"):
        fit = fit_pieces(y, np.zeros(30), {"label": a}, bounds={"label": (0.1, 1.0)})
    assert fit.on_bound == ("label",)
    assert fit.levels["label"] == pytest.approx(0.1)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fit_pieces(y, np.zeros(30), {"label": a})


def test_bad_input_is_refused():
    y, a, b = pieces(12)
    zero = np.zeros_like(y)
    with pytest.raises(NuggetError, match="objective is 'mse'"):
        c.fit_scale(y, zero, a, objective="mse")
    with pytest.raises(NuggetError, match="finite numbers"):
        fit_pieces(y, zero, {"label": np.where(np.arange(12) == 3, np.nan, a)})
    with pytest.raises(NuggetError, match=r"bounds are given for \['prior'\]"):
        fit_pieces(y, zero, {"label": a}, bounds={"prior": (0.1, 1)})
    with pytest.raises(NuggetError, match="positive, finite and increasing"):
        c.fit_scale(y, zero, a, bounds=(1.0, 0.1))
    with pytest.raises(NuggetError, match="1 validation structures cannot determine 2 levels"):
        fit_pieces(y[:1], zero[:1], {"label": a[:1], "prior": b[:1]})


def test_calibration_survives_json():
    fit = c.fit_scale(*scaled(30, 2.0), rng=np.random.default_rng(0), resamples=10)
    assert json.loads(json.dumps(fit.to_dict())) == fit.to_dict()


def feed(state, z):
    for value in z:
        state = state.update(0.0, 1.0, value)
    return state


def test_online_scale_follows_the_stream():
    rng = np.random.default_rng(0)
    state = c.OnlineScale(window=200)
    assert state.scale == 1.0
    calibrated = feed(state, rng.normal(size=200))
    assert calibrated.scale == pytest.approx(1.0, abs=0.15)
    confident = feed(calibrated, 4 * rng.normal(size=200))
    assert confident.scale == pytest.approx(4.0, rel=0.2)
    assert confident.n == 200
    assert state.n == 0


def test_online_scale_shrinks_with_few_points():
    one = c.OnlineScale().update(0.0, 0.1, 1.0)
    assert 1.0 < one.scale < 1.4
    assert one.scale < feed(c.OnlineScale(), [10.0] * 20).scale < 12


def test_online_scale_is_robust():
    z = np.random.default_rng(1).normal(size=40)
    clean = feed(c.OnlineScale(), z)
    spoilt = feed(c.OnlineScale(), np.concatenate([z, [1e6, -1e9, 1e3]]))
    assert spoilt.scale < 1.3 * clean.scale


def test_online_scale_bounds_and_zero_errors():
    assert feed(c.OnlineScale(prior_weight=0), [0.0] * 5).scale == pytest.approx(0.05)
    assert feed(c.OnlineScale(prior_weight=0), [1e9] * 5).scale == pytest.approx(20.0)


def test_online_scale_forgets_what_left_the_window():
    z = [0.1, -2.0, 3.0, 0.0, 1.0, -1.0, 0.3]
    state = feed(c.OnlineScale(window=5), z)
    assert state.n == 5
    assert state == feed(c.OnlineScale(window=5), z[2:])


def test_online_scale_refuses_nonsense():
    for bad in ((np.nan, 1, 1), (1, 0, 1), (1, 1, np.inf)):
        with pytest.raises(NuggetError, match="must be finite"):
            c.OnlineScale().update(*bad)
    with pytest.raises(NuggetError, match="window is 0"):
        c.OnlineScale(window=0)


def test_huber_scale_solves_its_equation():
    rng = np.random.default_rng(2)
    for n in (1, 2, 7, 50):
        z = tuple(rng.standard_t(1.5, n))
        s = huber_scale(z)
        clipped = np.mean(np.minimum((np.array(z) / s) ** 2, 1.5**2))
        assert clipped == pytest.approx(0.7784655, rel=1e-6)
    assert huber_scale(tuple(rng.normal(size=100_000))) == pytest.approx(1.0, abs=0.01)
