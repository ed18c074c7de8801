"""With every point an inducing point, the sparse model is the full one of scikit-learn."""

import numpy as np
import pytest
from sklearn.gaussian_process import GaussianProcessRegressor
from sklearn.gaussian_process.kernels import RBF as Gauss
from sklearn.gaussian_process.kernels import ConstantKernel, WhiteKernel
from uncertainties import std_weights

from nugget.gp.kernels import RBF
from nugget.gp.labels import Labels
from nugget.gp.marginal import log_marginal_likelihood
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.projected import ProjectedProcess


def data(n=40, f=2, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-2, 2, size=(n, f))
    return x, np.sin(2 * x[:, 0]) + 0.3 * x[:, 1] + 0.05 * rng.normal(size=n)


@pytest.mark.parametrize(("length", "noise"), [(0.7, 0.1), (1.5, 0.03), (6.0, 0.05)])
def test_mean_and_std_equal_scikit_learn(length, noise):
    x, y = data()
    new = np.random.default_rng(1).uniform(-3, 3, size=(60, 2))
    theirs = GaussianProcessRegressor(
        ConstantKernel(1.7) * Gauss(length), alpha=noise**2, optimizer=None
    ).fit(x, y)
    mean, std = theirs.predict(new, return_std=True)
    points, where, kernel = Points.single(x), Points.single(new), RBF(length, 1.7)
    inducing = kernel.inducing(x, points.group)
    labels = Labels.energies(inducing.forward(points).k_sum, y, noise, points.sizes)
    reg = SparseRegression.fit(inducing.gram, labels)
    k_sum = inducing.forward(where).k_sum
    own = kernel.self_sum(where).value
    sigma = std_weights(ProjectedProcess().fit(reg), k_sum, where.sizes, own)[0]
    np.testing.assert_allclose(k_sum @ reg.alpha, mean, atol=1e-6)
    np.testing.assert_allclose(sigma, std, atol=1e-6)


@pytest.mark.parametrize(("length", "noise"), [(0.7, 0.1), (1.5, 0.3)])
def test_marginal_likelihood_and_gradient_equal_scikit_learn(length, noise):
    x, y = data()
    kernel = ConstantKernel(1.7) * Gauss(length) + WhiteKernel(noise**2)
    theirs = GaussianProcessRegressor(kernel, alpha=0.0, optimizer=None).fit(x, y)
    value, gradient = theirs.log_marginal_likelihood(kernel.theta, eval_gradient=True)
    points = Points.single(x)
    ours, slopes = log_marginal_likelihood(RBF(length, 1.7), noise, points, y, x, points.group)
    assert ours == pytest.approx(value, abs=1e-6)
    # scikit-learn's order: log θ₀, log l, log σ_n² (half of our log σ_n)
    np.testing.assert_allclose(
        slopes, [gradient[1], gradient[0], 2 * gradient[2]], rtol=1e-6, atol=1e-6
    )
