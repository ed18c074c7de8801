import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget.errors import NuggetError
from nugget.gp.kernels import RBF
from nugget.gp.kernels.rbf_loops import exponentials
from nugget.gp.points import Points


def fast_exp(s):
    out = np.array(s, dtype=float)[None]
    exponentials(out, np.zeros(1), np.zeros(out.size), 1.0)
    return out[0]


def direct(kernel, x, gx, z, gz):
    d2 = ((x[:, None] - z[None]) ** 2).sum(-1)
    k = kernel.amplitude * np.exp(-0.5 * d2 / kernel.length_scale**2)
    return np.where(gx[:, None] == gz[None], k, 0.0)


def case(rng, sizes, f, m, groups):
    n = int(np.sum(sizes))
    points = Points(
        rng.normal(size=(n, f)), np.r_[0, np.cumsum(sizes)], rng.integers(0, groups, size=n)
    )
    return points, rng.normal(size=(m, f)), rng.integers(0, groups, size=m)


def test_exp_matches_long_double_everywhere():
    rng = np.random.default_rng(0)
    s = -np.concatenate([10 ** rng.uniform(-20, 2.85, 100_000), rng.uniform(0, 708, 100_000)])
    exact = np.exp(s.astype(np.longdouble))
    assert np.max(np.abs(fast_exp(s) / exact - 1)) < 1e-15


def test_exp_ends_at_the_smallest_normal_number_and_keeps_nan():
    out = fast_exp([-709.0, -1e4, -1e300, -np.inf, np.nan, 0.0, 1e-16])
    np.testing.assert_allclose(out[:4], np.exp(-708.0), rtol=1e-12)
    assert np.isnan(out[4])
    assert np.all(out[5:] == 1.0)


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(0, 5), min_size=1, max_size=5),
    f=st.integers(1, 7),
    m=st.integers(1, 40),
    groups=st.integers(1, 3),
)
def test_forward_matches_direct_differences(seed, sizes, f, m, groups):
    rng = np.random.default_rng(seed)
    points, z, gz = case(rng, sizes, f, m, groups)
    kernel = RBF(1.3, 2.5)
    rows = kernel.inducing(z, gz).forward(points)
    expected = direct(kernel, points.x, points.group, z, gz)
    np.testing.assert_allclose(rows.k, expected, rtol=1e-13, atol=1e-15)
    k_sum = np.array([expected[points.owner == s].sum(0) for s in range(len(points))])
    np.testing.assert_allclose(rows.k_sum, k_sum, rtol=1e-13, atol=1e-15)
    np.testing.assert_allclose(
        kernel.matrix(points.x, points.group, z, gz), expected, rtol=1e-13, atol=1e-15
    )


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(("f", "m"), [(3, 11), (3, 30), (40, 11), (40, 30), (120, 30)])
def test_pullback_matches_differences(groups, f, m):
    rng = np.random.default_rng(1)
    points, z, gz = case(rng, [4, 0, 3, 6], f, m, groups)
    kernel = RBF(np.sqrt(f), 1.7)
    rows = kernel.inducing(z, gz).forward(points)
    many = rng.normal(size=(3, len(points), m))
    common = rng.normal(size=m)
    back = rows.vjp(many)
    assert back.shape == (3, *points.x.shape)
    np.testing.assert_allclose(rows.vjp(many[1]), back[1], rtol=1e-13, atol=1e-14)
    same = np.broadcast_to(common, (len(points), m))
    np.testing.assert_allclose(rows.vjp(common), rows.vjp(same), rtol=1e-12, atol=1e-13)
    h = 1e-4
    for i, a in [(0, 0), (5, f - 1), (9, 1)]:
        shift = np.zeros_like(points.x)
        shift[i, a] = h
        values = [
            kernel.inducing(z, gz)
            .forward(Points(points.x + t * shift, points.offsets, points.group))
            .k_sum
            for t in (-2, -1, 1, 2)
        ]
        slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
        np.testing.assert_allclose(back[:, i, a], (many * slope).sum((1, 2)), rtol=1e-8, atol=1e-10)


def test_large_close_features_keep_their_digits():
    # Features of size 1e5 that differ by 1: |x|²+|z|²−2x·z as it stands would lose 10 digits.
    rng = np.random.default_rng(2)
    centre = 1e5 * rng.normal(size=6)
    x, z = centre + rng.normal(size=(30, 6)), centre + rng.normal(size=(20, 6))
    zero = np.zeros(30, int)
    kernel = RBF(1.0)
    k = kernel.matrix(x, zero, z, zero[:20])
    np.testing.assert_allclose(k, direct(kernel, x, zero, z, zero[:20]), rtol=1e-10)


@pytest.mark.parametrize("amplitude", [1.0, 7.3, 1e-3])
def test_tiles_match_long_double_from_next_door_to_nowhere(amplitude):
    # One row at the origin; inducing points at distances up to where exp underflows and beyond.
    # Centring them would cost digits of its own, so they come in pairs around the origin.
    s = np.r_[0.0, np.geomspace(1e-12, 700.0, 400), 708.0, 760.0, 1e5]
    z = np.sqrt(2.0 * s)[:, None] * [[1.0, -1.0]]
    z = z.reshape(-1, 1)
    points = Points.single(np.zeros((1, 1)))
    k = RBF(1.0, amplitude).inducing(z, np.zeros(len(z), int)).forward(points).k[0, ::2]
    exact = amplitude * np.exp(-s.astype(np.longdouble))
    inside = s <= 700.0
    error = np.abs(k[inside] / exact[inside] - 1)
    np.testing.assert_array_less(error, 1e-15 * (2.0 + s[inside]))
    assert np.all(np.isfinite(k))
    assert np.all((k[~inside] >= 0.0) & (k[~inside] < 1e-300))


@settings(deadline=None, max_examples=30)
@given(
    seed=st.integers(0, 10**6),
    sizes=st.lists(st.integers(0, 6), min_size=1, max_size=6),
    f=st.sampled_from([1, 2, 3, 7, 18, 120]),
    m=st.integers(1, 40),
    groups=st.integers(1, 2),
    columns=st.sampled_from([0, 1, 10, 60]),
    projected=st.booleans(),
    added=st.booleans(),
)
def test_value_and_grad_is_forward_std_and_vjp(
    seed, sizes, f, m, groups, columns, projected, added
):
    rng = np.random.default_rng(seed)
    points, z, gz = case(rng, sizes, f, m, groups)
    inducing = RBF(np.sqrt(f), 1.7).inducing(z, gz)
    alpha, w, rho = rng.normal(size=m), rng.normal(size=(m, columns)), rng.normal(size=columns)
    coefficients = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -2.0]])
    wt = np.ascontiguousarray(w.T)
    given_columns = (wt, rho) if columns else None
    rows = inducing.forward(points)
    delta = rows.k_sum @ w + np.multiply.outer(points.sizes, rho)
    norm, own, sign = np.linalg.norm(delta, axis=1), None, 1.0
    if added and columns:
        own = rng.uniform(0.1, 2.0, len(norm))
        norm = np.sqrt(own + norm**2)
    elif projected and columns:
        own, sign = norm**2 * rng.choice([0.5, 3.0], len(norm)), -1.0  # 0.5: σ² below 0 counts as 0
        norm = np.sqrt(np.maximum(own - norm**2, 0.0))
    slope = np.where(norm > 0.0, sign / np.where(norm > 0.0, norm, 1.0), 0.0)
    b = (slope[:, None] * delta) @ w.T
    mean, sigma, gradients = inducing.value_and_grad(
        points, points.sizes, alpha, coefficients, given_columns, own, sign
    )
    np.testing.assert_allclose(mean, rows.k_sum @ alpha, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(sigma, norm, rtol=1e-12, atol=1e-12)
    for (on_mean, on_sigma), gradient in zip(coefficients, gradients, strict=True):
        expected = rows.vjp(on_mean * alpha + on_sigma * b)
        np.testing.assert_allclose(gradient, expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("m", [3, 14])
def test_nan_features_reach_the_rows(m):
    points = Points(np.array([[0.0, np.nan], [1.0, 2.0]]), [0, 1, 2], [0, 0])
    k_sum = RBF(1.0).inducing(np.zeros((m, 2)), np.zeros(m, int)).forward(points).k_sum
    assert np.all(np.isnan(k_sum[0]))
    assert np.all(np.isfinite(k_sum[1]))


@pytest.mark.parametrize("groups", [1, 2])
def test_self_sum_and_its_pullback(groups):
    rng = np.random.default_rng(3)
    points, _, _ = case(rng, [5, 0, 1, 3], 4, 2, groups)
    kernel = RBF(1.1, 1.9)
    full = direct(kernel, points.x, points.group, points.x, points.group)
    expected = [full[np.ix_(points.owner == s, points.owner == s)].sum() for s in range(4)]
    result = kernel.self_sum(points)
    np.testing.assert_allclose(result.value, expected, rtol=1e-13)
    weights = rng.normal(size=4)
    back = result.vjp(weights)
    h = 1e-5
    for i, a in [(0, 0), (4, 3), (7, 1)]:
        shift = np.zeros_like(points.x)
        shift[i, a] = h
        up, down = (
            kernel.self_sum(Points(points.x + t * shift, points.offsets, points.group)).value
            for t in (1, -1)
        )
        assert back[i, a] == pytest.approx(weights @ (up - down) / (2 * h), abs=1e-8)


def test_gram_is_symmetric_with_exact_diagonal():
    rng = np.random.default_rng(4)
    z, gz = 100 * rng.normal(size=(50, 5)), rng.integers(0, 2, 50)
    k = RBF(20.0, 3.0).inducing(z, gz).gram
    assert np.array_equal(k, k.T)
    assert np.all(np.diagonal(k) == 3.0)


def test_hyperparameter_derivatives():
    rng = np.random.default_rng(5)
    z, gz = rng.normal(size=(12, 3)), np.zeros(12, int)
    h = 1e-5
    found = RBF(0.8, 2.0).log_gradients(z, gz, z, gz)
    up, down = (RBF(0.8 * np.exp(t), 2.0).inducing(z, gz).gram for t in (h, -h))
    np.testing.assert_allclose(found["length_scale"], (up - down) / (2 * h), atol=1e-8)
    up, down = (RBF(0.8, 2.0 * np.exp(t)).inducing(z, gz).gram for t in (h, -h))
    np.testing.assert_allclose(found["amplitude"], (up - down) / (2 * h), atol=1e-8)


def test_points_helpers():
    points = Points(np.arange(12.0).reshape(6, 2), [0, 1, 1, 4, 6], [0, 1, 0, 1, 0, 1])
    assert len(points) == 4
    assert points.sizes.tolist() == [1, 0, 3, 2]
    assert points.owner.tolist() == [0, 2, 2, 2, 3, 3]
    part = points.select([3, 0])
    assert part.offsets.tolist() == [0, 2, 3]
    assert part.x[:, 0].tolist() == [8.0, 10.0, 0.0]
    assert part.group.tolist() == [0, 1, 0]


def test_bad_input_is_named():
    with pytest.raises(NuggetError, match="length_scale"):
        RBF(0.0)
    with pytest.raises(NuggetError, match="amplitude"):
        RBF(1.0, np.nan)
    with pytest.raises(NuggetError, match="offsets"):
        Points(np.zeros((3, 2)), [0, 2], [0, 0, 0])
    with pytest.raises(NuggetError, match="features"):
        RBF().inducing(np.zeros((4, 2)), np.zeros(4, int)).forward(Points.single(np.zeros((2, 3))))
