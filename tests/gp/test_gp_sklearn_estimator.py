import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.utils.estimator_checks import parametrize_with_checks

import nugget
from nugget.errors import NuggetError
from nugget.gp.inducing import CUR
from nugget.gp.kernels import RBF
from nugget.gp.sklearn import SparseGPRegressor
from nugget.gp.uncertainty.label_noise import LabelNoise
from nugget.gp.uncertainty.projected import ProjectedProcess


@parametrize_with_checks(
    [
        SparseGPRegressor(),
        SparseGPRegressor(RBF(2.0), CUR(50), 0.2, ProjectedProcess(), 0),
        SparseGPRegressor(uncertainty=LabelNoise(0.1, 1.0, members=10)),
    ]
)
def test_scikit_learn_s_own_checks(estimator, check):
    check(estimator)


def data():
    rng = np.random.default_rng(0)
    x = rng.uniform(-3, 3, (80, 2))
    return x, np.cos(x[:, 0]) + 0.2 * x[:, 1]


def test_fit_predict_score_clone_and_search():
    x, y = data()
    model = nugget.SparseGPRegressor(noise=0.01, random_state=0)
    assert model.fit(x, y).score(x, y) > 0.999
    assert clone(model).get_params()["noise"] == 0.01
    assert cross_val_score(model, x, y).mean() > 0.95
    search = GridSearchCV(model, {"kernel": [RBF(0.05), RBF(1.5)]}).fit(x, y)
    assert search.best_params_["kernel"] == RBF(1.5)


@pytest.mark.parametrize(
    "uncertainty", [None, LabelNoise(0.1, 1.0, members=8), ProjectedProcess("environments")]
)
def test_std_grows_away_from_the_data(uncertainty):
    x, y = data()
    model = SparseGPRegressor(uncertainty=uncertainty, random_state=1).fit(x, y)
    mean, std = model.predict(np.array([[0.0, 0.0], [50.0, 50.0]]), return_std=True)
    assert std[0] < 0.2 * std[1]
    assert mean[1] == pytest.approx(y.mean())


def test_members_surround_the_mean_and_return_to_their_shift():
    x, y = data()
    model = SparseGPRegressor(uncertainty=LabelNoise(0.05, 0.5, members=6), random_state=3)
    mean, std, members = model.fit(x, y).predict(x, return_std=True, return_members=True)
    assert members.shape == (6, 80)
    np.testing.assert_allclose(np.sqrt(((members - mean) ** 2).mean(0)), std, rtol=1e-9)
    exact = SparseGPRegressor(random_state=3).fit(x, y)
    assert exact.predict(x, return_members=4)[1].shape == (4, 80)
    with pytest.raises(NuggetError, match="no members"):
        SparseGPRegressor(uncertainty=ProjectedProcess()).fit(x, y).predict(x, return_members=True)


def test_same_seed_same_answer():
    x, y = data()
    first, second = (SparseGPRegressor(inducing=CUR(20), random_state=4).fit(x, y) for _ in "ab")
    np.testing.assert_array_equal(first.predict(x), second.predict(x))


def test_bad_noise_is_named():
    with pytest.raises(NuggetError, match="noise"):
        SparseGPRegressor(noise=0.0).fit(*data())
