import numpy as np
import pytest
from test_gp_regression import problem, slice_rows
from uncertainties import std_weights, unit_variances

from nugget.errors import NuggetError
from nugget.gp.kernels import RBF
from nugget.gp.labels import ENERGY, Labels
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.label_noise import TOLERANCE, LabelNoise


def explicit_c(inducing, labels):
    """The paper's C = [K + AᵀΣ⁻¹A]⁻¹AᵀΣ⁻¹ as printed."""
    a, weight = labels.rows, labels.noise**-2
    return np.linalg.solve(inducing.gram + (a.T * weight) @ a, a.T * weight)


def query(inducing, seed=5, sizes=(3, 5, 1, 8)):
    rng = np.random.default_rng(seed)
    n, f = int(np.sum(sizes)), inducing.z.shape[1]
    return Points(rng.normal(size=(n, f)), np.r_[0, np.cumsum(sizes)], np.zeros(n, int))


@pytest.mark.parametrize("forces", [False, True])
@pytest.mark.parametrize("m", [8, 15, 40, 60])  # more and fewer than labels
def test_exact_sigma_equals_the_explicit_formula(forces, m):
    _, inducing, _, labels = problem(forces=forces, m=m)
    points = query(inducing)
    k_sum, sizes = inducing.forward(points).k_sum, points.sizes
    reg = SparseRegression.fit(inducing.gram, labels)
    committee = LabelNoise(0.02, 0.3, 0.07).fit(reg, np.random.default_rng(0))
    c = k_sum @ explicit_c(inducing, labels)
    energy = labels.kind == ENERGY
    parts = [
        ((c * labels.count) ** 2).sum(1),
        (c[:, ~energy] ** 2).sum(1),
        (sizes - c @ labels.count) ** 2,
    ]
    np.testing.assert_allclose(
        unit_variances(committee, k_sum, sizes), np.transpose(parts), rtol=1e-7, atol=1e-9
    )
    expected = np.sqrt(np.array([0.02, 0.07, 0.3]) ** 2 @ parts)
    np.testing.assert_allclose(std_weights(committee, k_sum, sizes)[0], expected, rtol=1e-7)
    one = std_weights(committee, k_sum[:1], sizes[:1])
    np.testing.assert_allclose(one[0], expected[:1], rtol=1e-7)
    np.testing.assert_allclose(one[1], std_weights(committee, k_sum, sizes)[1][:1], rtol=1e-10)


def test_levels_and_scale_change_without_a_refit():
    _, inducing, _, labels = problem()
    points = query(inducing)
    k_sum, sizes = inducing.forward(points).k_sum, points.sizes
    reg = SparseRegression.fit(inducing.gram, labels)
    for members in (None, 7):
        committee = LabelNoise(0.02, 0.3, 0.07, members).fit(reg, np.random.default_rng(0))
        other = committee.with_levels(label=0.5, prior=0.0).with_scale(2.0)
        refit = LabelNoise(0.5, 0.0, 0.07, members).fit(reg, np.random.default_rng(0))
        twice = 2.0 * std_weights(refit, k_sum, sizes)[0]
        np.testing.assert_allclose(std_weights(other, k_sum, sizes)[0], twice, rtol=1e-12)
        gram, levels = committee.unit_gram(k_sum, sizes), committee.levels
        np.testing.assert_allclose(
            np.sqrt(np.einsum("a,bac,c->b", levels, gram, levels)),
            std_weights(committee, k_sum, sizes)[0],
            rtol=1e-12,
        )


@pytest.mark.parametrize("k", [10, 100, 1000, 10000])
def test_sampled_sigma_scatters_about_the_exact_one_as_one_over_root_2k(k):
    _, inducing, _, labels = problem(structures=30)
    points = query(inducing, sizes=(5,) * 3)
    k_sum, sizes = inducing.forward(points).k_sum, points.sizes
    reg = SparseRegression.fit(inducing.gram, labels)
    exact = std_weights(
        LabelNoise(0.02, 0.05, 0.03).fit(reg, np.random.default_rng(0)), k_sum, sizes
    )[0]
    rng = np.random.default_rng(k)
    trials = 100 if k < 10000 else 40
    ratio = np.array(
        [
            std_weights(LabelNoise(0.02, 0.05, 0.03, k).fit(reg, rng), k_sum, sizes)[0]
            for _ in range(trials)
        ]
    )
    deviation = ratio / exact - 1.0
    spread = 1 / np.sqrt(2 * k)
    # χ distribution: the mean lies 1/4K below 1, the scatter is 1/√(2K); 3 standard errors each.
    assert np.all(np.abs(deviation.mean(0) + 0.25 / k) < 3 * spread / np.sqrt(trials) + 1 / k**2)
    assert np.all(np.abs(deviation.std(0) / spread - 1) < 3 / np.sqrt(2 * trials) + 0.5 / k)


@pytest.mark.parametrize("members", [20000, None])
def test_mean_of_members_is_the_noise_free_mean(members):
    _, inducing, _, labels = problem()
    points = query(inducing)
    k_sum, sizes = inducing.forward(points).k_sum, points.sizes
    reg = SparseRegression.fit(inducing.gram, labels)
    rng = np.random.default_rng(3)
    committee = LabelNoise(0.05, 0.1, 0.05, members).fit(reg, rng)
    weights, shifts = committee.members(reg.alpha, rng, 20000)
    energies = weights @ k_sum.T + np.multiply.outer(shifts, sizes)
    sigma, _ = std_weights(committee, k_sum, sizes)
    assert np.all(np.abs(energies.mean(0) - k_sum @ reg.alpha) < 4 * sigma / np.sqrt(20000))
    around = np.sqrt(((energies - k_sum @ reg.alpha) ** 2).mean(0))
    np.testing.assert_allclose(around, sigma, rtol=1e-10 if members else 0.02)


@pytest.mark.parametrize("members", [None, 10])
def test_far_from_all_data_sigma_is_the_prior_noise_of_every_atom(members):
    _, inducing, _, labels = problem()
    reg = SparseRegression.fit(inducing.gram, labels)
    committee = LabelNoise(0.02, 0.3, 0.07, members).fit(reg, np.random.default_rng(0))
    far = Points(np.full((9, 4), 1e3), [0, 4, 9], np.zeros(9, int))
    sigma, b = std_weights(committee, inducing.forward(far).k_sum, far.sizes)
    level = 0.3 * (1.0 if members is None else np.linalg.norm(committee.rho))
    np.testing.assert_allclose(sigma, level * far.sizes, rtol=1e-12)
    assert np.all(np.isfinite(b))
    k = inducing.forward(far).k
    np.testing.assert_allclose(committee.std(k, np.ones(len(k))), level, rtol=1e-12)


def test_at_training_points_without_prior_noise_sigma_is_set_by_the_label_noise():
    # Well separated single points with little regression noise: C k = 1 at each of them.
    x = 10.0 * np.arange(6.0)[:, None]
    points = Points.single(x)
    inducing = RBF(1.0).inducing(x, points.group)
    k_sum = inducing.forward(points).k_sum
    labels = Labels.energies(k_sum, np.zeros(6), 1e-4, np.ones(6))
    reg = SparseRegression.fit(inducing.gram, labels)
    committee = LabelNoise(0.037, 0.0).fit(reg, np.random.default_rng(0))
    np.testing.assert_allclose(std_weights(committee, k_sum, points.sizes)[0], 0.037, rtol=1e-6)
    silent = committee.with_levels(label=0.0)
    sigma, b = std_weights(silent, k_sum, points.sizes)
    assert np.all(sigma == 0.0)
    assert np.all(b == 0.0)


@pytest.mark.parametrize("members", [None, 10])
@pytest.mark.parametrize("forces", [False, True])
def test_gradient_matches_differences(members, forces):
    _, inducing, _, labels = problem(forces=forces)
    reg = SparseRegression.fit(inducing.gram, labels)
    committee = LabelNoise(0.05, 0.1, 0.05, members).fit(reg, np.random.default_rng(1))
    points = query(inducing)

    def sigma(x):
        k_sum = inducing.forward(Points(x, points.offsets, points.group)).k_sum
        return std_weights(committee, k_sum, points.sizes)[0]

    rows = inducing.forward(points)
    gradient = rows.vjp(std_weights(committee, rows.k_sum, points.sizes)[1])
    h = 1e-3
    for i in range(len(points.x)):
        for a in range(4):
            shift = np.zeros_like(points.x)
            shift[i, a] = h
            values = [sigma(points.x + t * shift).sum() for t in (-2, -1, 1, 2)]
            slope = (values[0] - 8 * values[1] + 8 * values[2] - values[3]) / (12 * h)
            assert abs(gradient[i, a] - slope) < 1e-6 * np.abs(gradient).max()


def test_force_component_and_local_deviations():
    _, inducing, _, labels = problem()
    reg = SparseRegression.fit(inducing.gram, labels)
    committee = LabelNoise(0.02, 0.3, 0.07).fit(reg, np.random.default_rng(0))
    a = labels.rows[-5:]
    c = a @ explicit_c(inducing, labels)
    d = np.where(labels.kind == ENERGY, 0.02 * labels.count, 0.07)
    expected = np.sqrt(((c * d) ** 2).sum(1) + (0.3 * (c @ labels.count)) ** 2)
    np.testing.assert_allclose(committee.std(a, np.zeros(len(a))), expected, rtol=1e-7)
    points = query(inducing, sizes=(1, 1, 1))
    rows = inducing.forward(points)
    expected = std_weights(committee, rows.k_sum, points.sizes)[0]
    np.testing.assert_allclose(committee.std(rows.k, np.ones(len(rows.k))), expected, rtol=1e-12)


def test_incremental_fit_gives_the_same_committee():
    _, inducing, _, labels = problem(m=20)
    k = inducing.gram
    points = query(inducing)
    k_sum, sizes = inducing.forward(points).k_sum, points.sizes
    start = slice_rows(labels, np.arange(40))
    start = Labels(start.rows[:, :16], start.y, start.noise, start.count, start.kind)
    more = slice_rows(labels, np.arange(40, 52))
    more16 = Labels(more.rows[:, :16], more.y, more.noise, more.count, more.kind)
    grown = SparseRegression.fit(k[:16, :16], start).add_rows(more16)
    grown = grown.add_inducing(k[:, 16:], labels.rows[:, 16:])
    fresh = SparseRegression.fit(k, labels)
    rng = np.random.default_rng(0)
    np.testing.assert_allclose(
        unit_variances(LabelNoise().fit(grown, rng), k_sum, sizes),
        unit_variances(LabelNoise().fit(fresh, rng), k_sum, sizes),
        rtol=1e-8,
        atol=1e-8,
    )


def test_compression_stays_inside_its_bound(monkeypatch):
    # A coarse tolerance drops directions; σ² then loses at most (tolerance·N)² per unit level.
    kernel, inducing, _, labels = problem(structures=60, m=50, length=4.0)
    reg = SparseRegression.fit(inducing.gram, labels)
    points = query(inducing)
    k_sum, sizes = inducing.forward(points).k_sum, points.sizes
    fine = LabelNoise().fit(reg, np.random.default_rng(0))
    monkeypatch.setattr("nugget.gp.uncertainty.label_noise.TOLERANCE", 1.0)
    coarse = LabelNoise().fit(reg, np.random.default_rng(0))
    assert coarse.label.shape[1] < fine.label.shape[1]
    lost = unit_variances(fine, k_sum, sizes) - unit_variances(coarse, k_sum, sizes)
    bound = sizes**2.0
    assert np.all(lost[:, 0] <= bound)
    assert np.all(lost[:, 1] <= bound)
    assert np.all(lost >= -1e-6)
    assert TOLERANCE == 1e-5
    assert kernel.amplitude == 1.3


@pytest.mark.parametrize("members", [None, 4])
def test_state_round_trip_is_exact(members):
    _, inducing, _, labels = problem()
    reg = SparseRegression.fit(inducing.gram, labels)
    committee = LabelNoise(0.1, 0.2, 0.3, members).fit(reg, np.random.default_rng(0))
    committee = committee.with_scale(1.7)
    again = committee.settings.from_state(committee.state())
    assert again.settings == committee.settings
    points = query(inducing)
    k_sum = inducing.forward(points).k_sum
    ours, theirs = (std_weights(c, k_sum, points.sizes) for c in (committee, again))
    for a, b in zip(ours, theirs, strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_same_seed_gives_the_same_committee():
    _, inducing, _, labels = problem()
    reg = SparseRegression.fit(inducing.gram, labels)
    first, second = (LabelNoise(members=5).fit(reg, np.random.default_rng(8)) for _ in "ab")
    np.testing.assert_array_equal(first.weights[0], second.weights[0])


def test_bad_settings_are_named():
    with pytest.raises(NuggetError, match="prior"):
        LabelNoise(prior=-1.0)
    with pytest.raises(NuggetError, match="members"):
        LabelNoise(members=0)
