import numpy as np
import pytest
from test_gp_committee import query
from test_gp_regression import problem
from uncertainties import std_weights

from nugget.errors import NuggetError
from nugget.gp.inducing import CUR
from nugget.gp.kernels import RBF
from nugget.gp.labels import Labels
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.projected import ProjectedProcess


def soap_like(rng, n):
    """Features that follow from few variables, as descriptors do: K_mm becomes singular."""
    u = rng.normal(size=(n, 4))
    products = np.einsum("na,nb->nab", u, u).reshape(n, 16)
    return np.concatenate([u * [16.0, 3.0, 2.6, 1.3], 0.3 * products], axis=1)


def explicit(kernel, inducing, points, rows, noise):
    """σ by the paper's equation, with explicit inverses (small, well-conditioned cases only)."""
    k_mm = inducing.gram
    inner = k_mm + (rows.T * noise**-2) @ rows
    bracket = np.linalg.inv(k_mm) - np.linalg.inv(inner)
    k_sum = inducing.forward(points).k_sum
    return np.sqrt(kernel.self_sum(points).value - np.einsum("bm,mn,bn->b", k_sum, bracket, k_sum))


def evaluate(kernel, inducing, fitted, points):
    rows, own = inducing.forward(points), kernel.self_sum(points)
    sigma, b, w = std_weights(fitted, rows.k_sum, points.sizes, own.value)
    return sigma, rows.vjp(b) + own.vjp(w)


@pytest.mark.parametrize("m", [12, 50])
def test_structures_equal_the_explicit_formula(m):
    # m = 12 has more labels than inducing points, m = 50 fewer: both ways of filling V.
    kernel, inducing, _, labels = problem(m=m, forces=m == 12, length=1.0)
    reg = SparseRegression.fit(inducing.gram, labels)
    points = query(inducing)
    sigma, _ = evaluate(kernel, inducing, ProjectedProcess().fit(reg), points)
    expected = explicit(kernel, inducing, points, labels.rows, labels.noise)
    np.testing.assert_allclose(sigma, expected, rtol=1e-7)


def test_one_structure_alone_gives_what_it_gives_in_a_batch():
    kernel, inducing, _, labels = problem()
    fitted = ProjectedProcess().fit(SparseRegression.fit(inducing.gram, labels)).with_scale(1.4)
    points = query(inducing)
    sigma, gradient = evaluate(kernel, inducing, fitted, points)
    for s in range(len(points)):
        alone, slope = evaluate(kernel, inducing, fitted, points.select([s]))
        np.testing.assert_allclose(alone, sigma[s], rtol=1e-10)
        np.testing.assert_allclose(slope, gradient[points.owner == s], rtol=1e-8, atol=1e-12)


def test_environments_equal_the_explicit_formula():
    kernel, inducing, points, labels = problem(m=12, length=1.0)
    reg = SparseRegression.fit(inducing.gram, labels)
    k_nm = inducing.forward(points).k
    fitted = ProjectedProcess("environments").fit(reg, None, lambda: k_nm, 0.2)
    where = query(inducing)
    sigma, _ = evaluate(kernel, inducing, fitted, where)
    expected = explicit(kernel, inducing, where, k_nm, np.full(len(k_nm), 0.2))
    np.testing.assert_allclose(sigma, expected, rtol=1e-7)
    with pytest.raises(NuggetError, match="environments"):
        ProjectedProcess("environments").fit(reg)


def test_far_from_all_data_sigma_is_the_prior_standard_deviation():
    kernel, inducing, _, labels = problem()
    fitted = ProjectedProcess().fit(SparseRegression.fit(inducing.gram, labels))
    far = Points(np.full((4, 4), 1e3), [0, 4], np.zeros(4, int))
    sigma, _ = evaluate(kernel, inducing, fitted, far)
    np.testing.assert_allclose(sigma, 4 * np.sqrt(kernel.amplitude), rtol=1e-12)


def sigma_at(kernel, inducing, fitted):
    return lambda points: evaluate(kernel, inducing, fitted, points)[0]


def slopes(function, points, wanted, h):
    """Sixth-order differences: steps wide enough that round-off of σ² does not matter."""
    coefficients = {-3: -1 / 60, -2: 3 / 20, -1: -3 / 4, 1: 3 / 4, 2: -3 / 20, 3: 1 / 60}
    out = []
    for i, a in wanted:
        shift = np.zeros_like(points.x)
        shift[i, a] = h
        moved = {
            t: function(Points(points.x + t * shift, points.offsets, points.group)).sum()
            for t in coefficients
        }
        out.append(sum(c * moved[t] for t, c in coefficients.items()) / h)
    return np.array(out)


@pytest.mark.parametrize("observations", ["structures", "environments"])
def test_gradient_matches_differences(observations):
    kernel, inducing, train, labels = problem()
    reg = SparseRegression.fit(inducing.gram, labels)
    k_nm = inducing.forward(train).k
    fitted = ProjectedProcess(observations).fit(reg, None, lambda: k_nm, 0.2)
    points = query(inducing)
    _, gradient = evaluate(kernel, inducing, fitted, points)
    wanted = [(i, a) for i in range(len(points.x)) for a in range(4)]
    found = slopes(sigma_at(kernel, inducing, fitted), points, wanted, 0.02)
    assert np.max(np.abs(found - gradient.ravel())) < 1e-6 * np.abs(gradient).max()


@pytest.mark.parametrize("observations", ["structures", "environments"])
def test_gradient_with_a_thousand_points_and_a_singular_kernel_matrix(observations):
    # AGOX disagrees with its own differences by 13 to 97 % here: it inverts K_mm.
    rng = np.random.default_rng(0)
    x = soap_like(rng, 1600)
    points = Points(x, np.arange(0, 1601, 16), np.zeros(1600, int))
    kernel = RBF(20.0)
    chosen = CUR(1000).select(points, kernel, rng)
    inducing = kernel.inducing(x[chosen], points.group[chosen])
    assert np.linalg.cond(inducing.gram) > 1e16
    rows = inducing.forward(points)
    labels = Labels.energies(rows.k_sum, rng.normal(size=100), 0.01, points.sizes)
    reg = SparseRegression.fit(inducing.gram, labels)
    fitted = ProjectedProcess(observations).fit(reg, None, lambda: rows.k, 0.01)
    known, _ = evaluate(kernel, inducing, fitted, points)
    assert np.all(np.isfinite(known))
    x2 = soap_like(rng, 32)
    where = Points(x2, [0, 16, 32], np.zeros(32, int))
    _, gradient = evaluate(kernel, inducing, fitted, where)
    wanted = [(0, 0), (7, 2), (20, 1), (31, 4), (12, 8)]
    exact = np.array([gradient[i] for i in wanted])
    # Round-off spoils small steps and curvature large ones: the best of a few steps counts.
    worst = min(
        np.max(np.abs(exact - slopes(sigma_at(kernel, inducing, fitted), where, wanted, h)))
        for h in (0.02, 0.04, 0.08, 0.16)
    )
    assert worst < 1e-6 * np.abs(gradient).max()


def test_variance_never_becomes_negative():
    # Noise of 1e-7 at the training points themselves: σ² is far below the round-off of k_ss.
    rng = np.random.default_rng(1)
    x = rng.normal(size=(40, 2))
    points = Points.single(x)
    kernel = RBF(3.0)
    inducing = kernel.inducing(x, points.group)
    k_sum = inducing.forward(points).k_sum
    reg = SparseRegression.fit(inducing.gram, Labels.energies(k_sum, x[:, 0], 1e-7, np.ones(40)))
    sigma, gradient = evaluate(kernel, inducing, ProjectedProcess().fit(reg), points)
    assert np.all(sigma >= 0.0)
    assert np.all(sigma < 1e-5)
    assert np.all(np.isfinite(gradient))


def test_amplitude_at_fixed_ratio_is_a_scale():
    kernel, inducing, points, labels = problem(forces=False, length=1.0)
    where = query(inducing)
    reg = SparseRegression.fit(inducing.gram, labels)
    fitted = ProjectedProcess().fit(reg)
    louder = RBF(kernel.length_scale, 9.0 * kernel.amplitude)
    inducing9 = louder.inducing(inducing.z, inducing.group)
    k_sum9 = inducing9.forward(points).k_sum
    labels9 = Labels(k_sum9, labels.y, 3.0 * labels.noise, labels.count, labels.kind)
    fitted9 = ProjectedProcess().fit(SparseRegression.fit(inducing9.gram, labels9))
    sigma9, gradient9 = evaluate(louder, inducing9, fitted9, where)
    sigma, gradient = evaluate(kernel, inducing, fitted.with_scale(3.0), where)
    np.testing.assert_allclose(sigma, sigma9, rtol=1e-9)
    np.testing.assert_allclose(gradient, gradient9, rtol=1e-7, atol=1e-9)


def test_local_and_row_sigma():
    kernel, inducing, _, labels = problem(length=1.0)
    fitted = ProjectedProcess().fit(SparseRegression.fit(inducing.gram, labels))
    points = query(inducing, sizes=(1, 1, 1))
    rows = inducing.forward(points)
    expected, _ = evaluate(kernel, inducing, fitted, points)
    prior = np.full(3, kernel.amplitude)
    np.testing.assert_allclose(fitted.std(rows.k, np.zeros(3), prior), expected, rtol=1e-10)


def test_state_round_trip_is_exact():
    _, inducing, _, labels = problem()
    fitted = ProjectedProcess().fit(SparseRegression.fit(inducing.gram, labels)).with_scale(0.3)
    again = fitted.settings.from_state(fitted.state())
    np.testing.assert_array_equal(again.v, fitted.v)
    assert (again.settings, again.scale) == (fitted.settings, fitted.scale)


def test_bad_observations_are_named():
    with pytest.raises(NuggetError, match="observations"):
        ProjectedProcess("atoms")
