"""scikit-learn estimator: sparse regression where every sample is a structure of one point."""

from __future__ import annotations

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from nugget.errors import NuggetError
from nugget.gp.inducing import InducingRule, PivotedCholesky
from nugget.gp.kernels import RBF, Inducing, Kernel
from nugget.gp.labels import Labels
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty import FittedUncertainty, LabelNoise, Uncertainty
from nugget.numerics.arrays import Floats


class SparseGPRegressor(RegressorMixin, BaseEstimator):
    """Sparse Gaussian-process regression with label-noise or projected-process uncertainty.

    Parameters
    ----------
    kernel : RBF, optional
        Default `RBF(length_scale=1.0)`.
    inducing : CUR, PivotedCholesky or Random, optional
        Default `PivotedCholesky(tol=1e-7, max_points=1000)`.
    noise : float
        Standard deviation σ_n of the labels, in their units.
    uncertainty : LabelNoise or ProjectedProcess, optional
        Default `LabelNoise(label=noise, prior=√θ₀)`: σ_n at the data, the prior far away.
    random_state : int, RandomState or None
        Seeds the choice of inducing points and sampled members.

    Attributes
    ----------
    inducing_ : array (m, f), the inducing points; `alpha_` : array (m,), their weights;
    mean_ : float, the prior mean (the labels' mean); `regression_`, `uncertainty_` : the fits.
    """

    kernel_: Kernel
    inducing_: Floats
    alpha_: Floats
    mean_: float
    regression_: SparseRegression
    uncertainty_: FittedUncertainty
    _ready: Inducing

    def __init__(
        self,
        kernel: Kernel | None = None,
        inducing: InducingRule | None = None,
        noise: float = 0.1,
        uncertainty: Uncertainty | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.inducing = inducing
        self.noise = noise
        self.uncertainty = uncertainty
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> SparseGPRegressor:
        """Fit labels y (n,) at features X (n, f)."""
        x, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        target = np.asarray(y, dtype=np.float64)
        if not isinstance(self.noise, Real) or not self.noise > 0:
            raise NuggetError(f"SparseGPRegressor noise is {self.noise}; it must be positive.")
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        rng = np.random.default_rng(seed)
        kernel = RBF(1.0) if self.kernel is None else self.kernel
        rule = PivotedCholesky(1e-7, 1000) if self.inducing is None else self.inducing
        points = Points.single(x)
        chosen = rule.select(points, kernel, rng)
        self.kernel_ = kernel
        self.inducing_ = points.x[chosen]
        self._ready = kernel.inducing(self.inducing_, points.group[chosen])
        rows = self._ready.forward(points)
        self.mean_ = float(target.mean())
        labels = Labels.energies(rows.k_sum, target - self.mean_, float(self.noise), points.sizes)
        self.regression_ = SparseRegression.fit(self._ready.gram, labels)
        self.alpha_ = self.regression_.alpha
        settings = self.uncertainty
        if settings is None:
            settings = LabelNoise(float(self.noise), float(np.sqrt(np.max(kernel.diagonal(x)))))
        self.uncertainty_ = settings.fit(self.regression_, rng, lambda: rows.k, float(self.noise))
        return self

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_members: int | bool = False
    ) -> Any:
        """The mean (n,), then the standard deviation (n,) and members (K, n) where asked for.

        `return_members` may be a number: that many members, drawn afresh from the exact ensemble.
        """
        check_is_fitted(self)
        points = Points.single(validate_data(self, X, dtype=np.float64, reset=False))
        k_sum = self._ready.forward(points).k_sum
        mean = k_sum @ self.alpha_ + self.mean_
        answer = [mean]
        if return_std:
            answer.append(self._std(points, k_sum))
        if return_members:
            answer.append(self._members(k_sum, return_members))
        return answer[0] if len(answer) == 1 else tuple(answer)

    def _std(self, points: Points, k_sum: Floats) -> Floats:
        fitted = self.uncertainty_
        own = self.kernel_.diagonal(points.x) if fitted.uses_prior_variance else None
        return fitted.std(k_sum, points.sizes, own)

    def _members(self, k_sum: Floats, wanted: int | bool) -> Floats:
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        number = None if wanted is True else int(wanted)
        weights, shifts = self.uncertainty_.members(self.alpha_, rng, number)
        members: Floats = weights @ k_sum.T + shifts[:, None] + self.mean_
        return members
