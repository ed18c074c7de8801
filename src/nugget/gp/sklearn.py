"""scikit-learn estimator: sparse regression where every sample is a structure of one point."""

from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, RegressorMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from nugget.errors import NuggetError
from nugget.gp.inducing import CUR, PivotedCholesky, Random
from nugget.gp.kernels.rbf import RBF, Inducing
from nugget.gp.points import Points
from nugget.gp.regression import Labels, SparseRegression
from nugget.gp.uncertainty.label_noise import LabelNoise
from nugget.gp.uncertainty.projected import ProjectedProcess

Array = NDArray[np.float64]


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

    kernel_: RBF
    inducing_: Array
    alpha_: Array
    mean_: float
    regression_: SparseRegression
    uncertainty_: Any
    _ready: Inducing

    def __init__(
        self,
        kernel: RBF | None = None,
        inducing: CUR | PivotedCholesky | Random | None = None,
        noise: float = 0.1,
        uncertainty: LabelNoise | ProjectedProcess | None = None,
        random_state: Any = None,
    ) -> None:
        self.kernel = kernel
        self.inducing = inducing
        self.noise = noise
        self.uncertainty = uncertainty
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: ArrayLike) -> "SparseGPRegressor":
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
        labels = Labels.energies(rows.kappa, target - self.mean_, float(self.noise), points.sizes)
        self.regression_ = SparseRegression.fit(self._ready.gram, labels)
        self.alpha_ = self.regression_.alpha
        settings = self.uncertainty
        if settings is None:
            settings = LabelNoise(float(self.noise), float(np.sqrt(kernel.amplitude)))
        if isinstance(settings, ProjectedProcess):
            self.uncertainty_ = settings.fit(self.regression_, rows.k, float(self.noise))
        else:
            self.uncertainty_ = settings.fit(self.regression_, rng)
        return self

    def predict(
        self, X: ArrayLike, return_std: bool = False, return_members: int | bool = False
    ) -> Any:
        """The mean (n,), then the standard deviation (n,) and members (K, n) where asked for.

        `return_members` may be a number: so many fresh members of an exact committee.
        """
        check_is_fitted(self)
        points = Points.single(validate_data(self, X, dtype=np.float64, reset=False))
        kappa = self._ready.forward(points).kappa
        mean = kappa @ self.alpha_ + self.mean_
        answer = [mean]
        if return_std:
            answer.append(self._std(points, kappa))
        if return_members:
            answer.append(self._members(kappa, return_members))
        return answer[0] if len(answer) == 1 else tuple(answer)

    def _std(self, points: Points, kappa: Array) -> Array:
        if isinstance(self.uncertainty, ProjectedProcess):
            own = np.full(len(points), self.kernel_.amplitude)
            sigma: Array = self.uncertainty_.sigma_alone(kappa, points.sizes, own)
        else:
            sigma = self.uncertainty_.sigma_alone(kappa, points.sizes)
        return sigma

    def _members(self, kappa: Array, wanted: int | bool) -> Array:
        if isinstance(self.uncertainty, ProjectedProcess):
            raise NuggetError("A projected process has no members; use LabelNoise.")
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        number = None if wanted is True else int(wanted)
        weights, shifts = self.uncertainty_.members(self.alpha_, rng, number)
        members: Array = weights @ kappa.T + shifts[:, None] + self.mean_
        return members
