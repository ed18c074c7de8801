import mpmath
import numpy as np
import pytest

from nugget.errors import NuggetError
from nugget.gp.kernels import RBF
from nugget.gp.labels import ENERGY, FORCE, STRESS, Labels
from nugget.gp.linalg import JitterWarning, cholesky, compress, compress_gram, inverse_gram
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression


def problem(seed=0, structures=12, atoms=5, f=4, m=15, length=1.5, noise=0.05, forces=True):
    """Energies of summed environments, with derivative-like rows as forces and stresses."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(structures * atoms, f))
    points = Points(x, np.arange(structures + 1) * atoms, np.zeros(len(x), int))
    kernel = RBF(length, 1.3)
    z = x[rng.permutation(len(x))[:m]]
    inducing = kernel.inducing(z, np.zeros(m, int))
    k_sum = inducing.forward(points).k_sum
    labels = Labels.energies(k_sum, rng.normal(size=structures), noise, points.sizes)
    if forces:
        rows = inducing.matrix(rng.normal(size=(40, f)), np.zeros(40, int))
        kind = np.where(np.arange(40) < 34, FORCE, STRESS)
        spread = np.where(kind == FORCE, 0.1, 0.07)
        extra = Labels(rows, rng.normal(size=40), spread, np.zeros(40), kind)
        labels = Labels.concatenate([labels, extra])
    return kernel, inducing, points, labels


def columns(labels, take):
    return Labels(labels.rows[:, take], labels.y, labels.noise, labels.count, labels.kind)


def slice_rows(labels, rows):
    return Labels(
        labels.rows[rows], labels.y[rows], labels.noise[rows], labels.count[rows], labels.kind[rows]
    )


def test_solution_equals_the_papers_formula_in_extended_precision():
    _, inducing, _, labels = problem(structures=8, m=10, forces=False, length=2.0)
    reg = SparseRegression.fit(inducing.gram, labels)
    assert reg.jitter == 0.0
    with mpmath.workdps(60):
        k = mpmath.matrix(inducing.gram.tolist())
        a = mpmath.matrix(labels.rows.tolist())
        s = mpmath.diag([1 / mpmath.mpf(float(v)) ** 2 for v in labels.noise])
        y = mpmath.matrix(labels.y.tolist())
        c = mpmath.inverse(k + a.T * s * a) * a.T * s
        alpha = np.array([float(v) for v in c * y])
        prediction = np.array([float(v) for v in a * (c * y)])
    np.testing.assert_allclose(reg.alpha, alpha, rtol=1e-8)
    np.testing.assert_allclose(labels.rows @ reg.alpha, prediction, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize("forces", [False, True])
def test_adding_rows_equals_a_fresh_fit(forces):
    _, inducing, _, labels = problem(forces=forces)
    fresh = SparseRegression.fit(inducing.gram, labels)
    p = len(labels)
    reg = SparseRegression.fit(inducing.gram, slice_rows(labels, np.arange(p // 2)))
    for part in np.array_split(np.arange(p // 2, p), 3):
        reg = reg.add_rows(slice_rows(labels, part))
    np.testing.assert_allclose(reg.alpha, fresh.alpha, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(reg.r.T @ reg.r, fresh.r.T @ fresh.r, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(reg.whitened, fresh.whitened, rtol=1e-9, atol=1e-9)
    np.testing.assert_array_equal(reg.y, fresh.y)


@pytest.mark.parametrize("length", [1.5, 4.0])
def test_adding_inducing_points_equals_a_fresh_fit(length):
    _, inducing, _, labels = problem(length=length)
    k = inducing.gram
    fresh = SparseRegression.fit(k, labels)
    reg = SparseRegression.fit(k[:9, :9], columns(labels, slice(0, 9)))
    reg = reg.add_inducing(k[:12, 9:12], labels.rows[:, 9:12])
    reg = reg.add_inducing(k[:, 12:], labels.rows[:, 12:])
    rows = labels.rows
    np.testing.assert_allclose(rows @ reg.alpha, rows @ fresh.alpha, rtol=1e-8, atol=1e-8)
    np.testing.assert_allclose(reg.r.T @ reg.r, fresh.r.T @ fresh.r, rtol=1e-10, atol=1e-10)
    np.testing.assert_allclose(reg.upper, fresh.upper, rtol=1e-7, atol=1e-9)
    np.testing.assert_allclose(np.abs(reg.qr[1]), np.abs(fresh.qr[1]), rtol=1e-7, atol=1e-8)


@pytest.mark.parametrize("noise", [0.05, 1e-9])
def test_growing_with_few_labels_equals_a_fresh_fit(noise):
    # Fewer labels than inducing points throughout; tiny noise makes the border inaccurate.
    _, inducing, _, labels = problem(forces=False, m=30, noise=noise)
    k = inducing.gram
    fresh = SparseRegression.fit(k, labels)
    start = columns(slice_rows(labels, np.arange(9)), slice(0, 25))
    reg = SparseRegression.fit(k[:25, :25], start)
    assert reg.few
    assert reg.alpha.shape == (25,)
    reg = reg.add_rows(columns(slice_rows(labels, np.arange(9, 12)), slice(0, 25)))
    reg = reg.add_inducing(k[:, 25:], labels.rows[:, 25:])
    gram, expected = reg.s.T @ reg.s, fresh.s.T @ fresh.s
    np.testing.assert_allclose(gram, expected, rtol=1e-9, atol=1e-9 * expected.max())
    rows = labels.rows
    np.testing.assert_allclose(rows @ reg.alpha, rows @ fresh.alpha, rtol=1e-8, atol=1e-8)


def test_two_branches_from_one_parent_do_not_disturb_each_other():
    _, inducing, _, labels = problem()
    parent = SparseRegression.fit(inducing.gram, slice_rows(labels, np.arange(20)))
    first = parent.add_rows(slice_rows(labels, np.arange(20, 30)))
    before = first.whitened.copy()
    second = parent.add_rows(slice_rows(labels, np.arange(30, 40)))
    np.testing.assert_array_equal(first.whitened, before)
    assert not np.array_equal(second.whitened[20:], before[20:])


def test_growing_by_more_than_the_spare_room():
    _, inducing, _, labels = problem(structures=300, forces=False)
    reg = SparseRegression.fit(inducing.gram[:3, :3], columns(slice_rows(labels, [0]), slice(0, 3)))
    reg = reg.add_rows(columns(slice_rows(labels, np.arange(1, 300)), slice(0, 3)))
    reg = reg.add_inducing(inducing.gram[:, 3:], labels.rows[:, 3:])
    fresh = SparseRegression.fit(inducing.gram, labels)
    rows = labels.rows
    np.testing.assert_allclose(rows @ reg.alpha, rows @ fresh.alpha, rtol=1e-8, atol=1e-8)


def test_no_labels_predict_the_prior():
    _, inducing, _, labels = problem()
    reg = SparseRegression.fit(inducing.gram, slice_rows(labels, np.arange(0)))
    assert np.all(reg.alpha == 0.0)


def test_singular_kernel_matrix_stays_finite_and_quiet():
    # cond(K_mm) is infinite: every point twice, and a length scale far beyond the data.
    rng = np.random.default_rng(0)
    z = np.repeat(rng.normal(size=(60, 3)), 2, axis=0)
    k = RBF(30.0).inducing(z, np.zeros(120, int)).gram
    assert np.linalg.cond(k) > 1e16
    y = np.sin(z[:, 0])
    reg = SparseRegression.fit(k, Labels.energies(k, y, 1e-3, np.ones(120)))
    assert 0 < reg.jitter <= 1e-10
    assert np.all(np.isfinite(reg.alpha))
    # X_m = X_n: the sparse model is the full one, whose own equations are well conditioned.
    full = k @ np.linalg.solve(k + 1e-6 * np.eye(120), y)
    np.testing.assert_allclose(k @ reg.alpha, full, atol=1e-6)


def test_large_jitter_is_reported_once_with_its_size():
    k = np.eye(4)
    k[0, 1] = k[1, 0] = 1 + 3e-7  # not positive definite by 3e-7
    with pytest.warns(JitterWarning, match="1e-06") as caught:
        cholesky(k)
    assert len(caught) == 1
    k[0, 1] = k[1, 0] = 2.0
    with pytest.raises(NuggetError, match="not positive definite"):
        cholesky(k)


def test_state_round_trip_is_exact_and_can_go_on():
    _, inducing, _, labels = problem()
    first = slice_rows(labels, np.arange(30))
    reg = SparseRegression.fit(inducing.gram, first)
    again = SparseRegression.from_state(reg.state())
    for name, value in reg.state().items():
        np.testing.assert_array_equal(value, again.state()[name])
    assert not again.has_rows
    with pytest.raises(NuggetError, match="compute them again"):
        again.add_rows(first)
    with pytest.raises(NuggetError, match="30 labels"):
        again.with_rows(slice_rows(labels, np.arange(9)))
    again = again.with_rows(first)
    more = slice_rows(labels, np.arange(30, 50))
    np.testing.assert_array_equal(reg.add_rows(more).alpha, again.add_rows(more).alpha)


def test_bad_labels_are_named():
    _, inducing, _, labels = problem()
    y = labels.y.copy()
    y[3] = np.nan
    with pytest.raises(NuggetError, match="row 3"):
        Labels(labels.rows, y, labels.noise, labels.count, labels.kind)
    with pytest.raises(NuggetError, match="noise of row 0"):
        Labels(labels.rows, labels.y, 0 * labels.noise, labels.count, labels.kind)
    rows = labels.rows.copy()
    rows[5, 2] = np.inf
    with pytest.raises(NuggetError, match="row 5"):
        SparseRegression.fit(
            inducing.gram, Labels(rows, labels.y, labels.noise, labels.count, labels.kind)
        )
    with pytest.raises(NuggetError, match="column"):
        SparseRegression.fit(np.eye(3), labels)


def test_inverse_gram():
    rng = np.random.default_rng(1)
    r = np.asfortranarray(np.triu(rng.normal(size=(300, 300))) + 20 * np.eye(300))
    np.testing.assert_allclose(inverse_gram(r) @ (r.T @ r), np.eye(300), atol=1e-11)


@pytest.mark.parametrize("shape", [(40, 12), (12, 40)])
def test_compression_keeps_its_bound(shape):
    rng = np.random.default_rng(2)
    left = np.linalg.qr(rng.normal(size=(shape[0], 12)))[0]
    right = np.linalg.qr(rng.normal(size=(shape[1], 12)))[0]
    f = (left * 10.0 ** -np.arange(12)) @ right.T
    for small in (compress(f, 3e-4), compress_gram(f @ f.T, 3e-4)):
        assert small.shape[1] == 4
        assert np.linalg.norm(f @ f.T - small @ small.T, 2) <= 3e-4**2 * 1.001


def test_kinds_are_what_the_labels_say():
    _, _, _, labels = problem()
    assert np.all(labels.count[labels.kind == ENERGY] == 5)
    assert np.all(labels.count[labels.kind != ENERGY] == 0)


def test_growing_stays_accurate_when_the_kernel_matrix_is_singular():
    # Without whitening, Gram–Schmidt on such columns is off by tens of percent.
    rng = np.random.default_rng(0)
    u = rng.normal(size=(600, 3))
    x = np.concatenate([8 * u, np.einsum("na,nb->nab", u, u).reshape(600, 9)], axis=1)
    points = Points(x, np.arange(0, 601, 10), np.zeros(600, int))
    inducing = RBF(20.0).inducing(x[:300], np.zeros(300, int))
    k, k_sum = inducing.gram, inducing.forward(points).k_sum
    assert np.linalg.cond(k) > 1e16
    labels = Labels.energies(k_sum, np.sin(k_sum.mean(1)), 0.01, points.sizes)
    fresh = SparseRegression.fit(k, labels)
    grown = SparseRegression.fit(k[:290, :290], columns(labels, slice(0, 290)))
    grown = grown.add_inducing(k[:, 290:], k_sum[:, 290:])
    np.testing.assert_allclose(k_sum @ grown.alpha, k_sum @ fresh.alpha, atol=1e-6)
    rows = grown.whitened @ np.linalg.inv(grown.r)
    np.testing.assert_allclose(
        np.linalg.norm(rows), np.linalg.norm(fresh.whitened @ np.linalg.inv(fresh.r)), rtol=1e-6
    )
