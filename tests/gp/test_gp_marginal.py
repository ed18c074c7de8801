import warnings

import numpy as np
import pytest

from nugget.errors import NuggetError
from nugget.gp.kernels import RBF
from nugget.gp.marginal import MarginalLikelihood, RunawayWarning, log_marginal_likelihood
from nugget.gp.points import Points


def clusters(seed=0, structures=40, f=2, groups=1, noise=0.05):
    """Total energies of structures of 1 to 6 environments, drawn from the model itself."""
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 7, structures)
    n = int(sizes.sum())
    points = Points(
        rng.uniform(-3, 3, (n, f)), np.r_[0, np.cumsum(sizes)], rng.integers(0, groups, n)
    )
    k = RBF(1.2, 2.0).inducing(points.x, points.group).gram
    local = np.linalg.cholesky(k + 1e-9 * np.eye(n)) @ rng.normal(size=n)
    y = np.add.reduceat(local, points.offsets[:-1]) + noise * np.sqrt(sizes) * rng.normal(
        size=structures
    )
    chosen = rng.permutation(n)[:25]
    return points, y, points.x[chosen], points.group[chosen]


@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("structures", [15, 60])
def test_value_and_gradient_match_the_dense_formula(groups, structures):
    points, y, z, gz = clusters(groups=groups, structures=structures)

    def dense(theta):
        length, amplitude, noise = np.exp(theta)
        kernel = RBF(length, amplitude)
        a = kernel.inducing(z, gz).forward(points).k_sum
        s = a @ np.linalg.solve(kernel.inducing(z, gz).gram, a.T) + np.diag(noise**2 * points.sizes)
        sign, log_det = np.linalg.slogdet(s)
        assert sign > 0
        return -0.5 * (y @ np.linalg.solve(s, y) + log_det + len(y) * np.log(2 * np.pi))

    theta = np.log([0.9, 1.5, 0.1])
    value, gradient = log_marginal_likelihood(RBF(0.9, 1.5), 0.1, points, y, z, gz)
    assert value == pytest.approx(dense(theta), rel=1e-9)
    h = 1e-4
    for i in range(3):
        step = h * np.eye(3)[i]
        slope = (dense(theta + step) - dense(theta - step)) / (2 * h)
        assert gradient[i] == pytest.approx(slope, rel=1e-5, abs=1e-5)


@pytest.mark.slow
def test_optimiser_recovers_the_hyperparameters_of_its_own_model():
    points, y, _, _ = clusters(structures=150)
    z, gz = points.x[::3], points.group[::3]
    start = RBF(4.0, 0.3)
    before, _ = log_marginal_likelihood(start, 0.5, points, y, z, gz)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RunawayWarning)
        found = MarginalLikelihood(restarts=1).optimise(
            start, 0.5, points, y, z, gz, np.random.default_rng(0)
        )
    assert found.runaway == ()
    assert found.kernel.length_scale == pytest.approx(1.2, rel=0.2)
    assert found.kernel.amplitude == pytest.approx(2.0, rel=0.5)
    assert found.noise == pytest.approx(0.05, rel=0.5)
    assert found.log_marginal_likelihood > before


def test_runaway_is_reported_and_the_previous_value_kept():
    # A constant is best explained by an infinite length scale; the noise has an optimum.
    rng = np.random.default_rng(1)
    x = rng.uniform(-3, 3, (40, 1))
    points = Points.single(x)
    y = 0.1 + 0.03 * rng.normal(size=40)
    settings = MarginalLikelihood(amplitude=None, restarts=0)
    with pytest.warns(RunawayWarning, match="length_scale"):
        found = settings.optimise(RBF(1.0, 1e-2), 0.1, points, y, x[::4], points.group[::4], rng)
    assert found.runaway == ("length_scale",)
    assert found.kernel.length_scale == 1.0
    assert found.kernel.amplitude == pytest.approx(1e-2)
    assert found.noise == pytest.approx(0.03, rel=0.5)


def test_fixed_parameters_stay():
    points, y, z, gz = clusters()
    settings = MarginalLikelihood(length_scale=None, amplitude=None, restarts=0)
    found = settings.optimise(RBF(1.2, 2.0), 0.5, points, y, z, gz, np.random.default_rng(0))
    assert (found.kernel.length_scale, found.kernel.amplitude) == pytest.approx((1.2, 2.0))
    assert found.noise != pytest.approx(0.5)


def test_bad_bounds_are_named():
    with pytest.raises(NuggetError, match="noise"):
        MarginalLikelihood(noise=(1.0, 0.5))
