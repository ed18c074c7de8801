"""The conformance check of uncertainties."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.gp.kernels import RBF
from nugget.gp.labels import Labels
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty import FittedUncertainty, Uncertainty
from nugget.testing import _compare as ref

COEFFICIENTS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -2.0]])


def check_uncertainty(uncertainty: Uncertainty, seed: int = 0) -> None:
    """Raise ConformanceError unless the uncertainty keeps its contract (`gp.uncertainty.base`).

    It is fitted to a small regression; values, gradients, scaling, extensivity, reproducibility,
    members (if it has any) and its state on disk are checked.
    """
    ref.plain_settings(uncertainty, "uncertainty")
    rng = np.random.default_rng(seed)
    kernel = RBF(1.5)
    x, z = rng.normal(size=(60, 3)), rng.normal(size=(14, 3))
    points = Points(x, np.arange(0, 61, 5), np.zeros(60, dtype=np.int64))
    inducing = kernel.inducing(z, np.zeros(14, dtype=np.int64))
    rows = inducing.forward(points)
    labels = Labels.energies(rows.k_sum, rng.normal(size=len(points)), 0.05, points.sizes)
    regression = SparseRegression.fit(inducing.gram, labels)

    def fit() -> FittedUncertainty:
        return uncertainty.fit(regression, np.random.default_rng(seed), lambda: rows.k, 0.05)

    fitted = fit()
    where = Points(rng.normal(size=(9, 3)), np.array([0, 3, 9]), np.zeros(9, dtype=np.int64))
    k_sum, sizes = inducing.forward(where).k_sum, where.sizes
    own = kernel.self_sum(where).value if fitted.uses_prior_variance else None
    std = fitted.std(k_sum, sizes, own)
    ref.require(std.shape == (2,), "One standard deviation per structure.")
    ref.require(bool(np.isfinite(std).all() and (std >= 0).all()), "Standard deviations are ≥ 0.")
    ref.same(
        fit().std(k_sum, sizes, own), std, "The same random numbers give the same uncertainty."
    )
    _check_weights(fitted, k_sum, sizes, regression.alpha, own, rng)
    twice = fitted.with_scale(2.0 * fitted.scale)
    ref.close(twice.std(k_sum, sizes, own), 2.0 * std, "with_scale multiplies every std", 1e-9)
    ref.close(fit().calibrated_as(twice).std(k_sum, sizes, own), 2.0 * std, "calibrated_as", 1e-9)
    four = None if own is None else 4.0 * own
    ref.close(
        fitted.std(2.0 * k_sum, 2 * sizes, four), 2.0 * std,
        "Two equal structures far apart are uncertain by twice as much (extensive)", 1e-8,
    )  # fmt: skip
    again = uncertainty.from_state({name: np.array(a) for name, a in fitted.state().items()})
    ref.same(again.std(k_sum, sizes, own), std, "from_state(state()) is the same fit, bit for bit.")
    if fitted.has_members:
        _check_members(fitted, k_sum, sizes, regression.alpha, std)


def _check_weights(
    fitted: FittedUncertainty,
    k_sum: Floats,
    sizes: Ints,
    alpha: Floats,
    own: Floats | None,
    rng: np.random.Generator,
) -> None:
    mean, std, weights = fitted.std_and_weights(k_sum, sizes, alpha, COEFFICIENTS, own)
    ref.close(mean, k_sum @ alpha, "The mean is k_sum·alpha", 1e-9)
    ref.close(std, fitted.std(k_sum, sizes, own), "std and std_and_weights agree", 1e-8)
    direction = rng.normal(size=k_sum.shape)
    slope = ref.derivative(lambda t: fitted.std(k_sum + t * direction, sizes, own), 1e-4)
    for r, (on_mean, on_std) in enumerate(COEFFICIENTS):
        expected = on_mean * (direction @ alpha) + on_std * slope
        ref.close(
            np.einsum("bm,bm->b", weights[r], direction), expected,
            "The weights are the gradient of c_E·mean + c_σ·std by k_sum", 1e-5,
        )  # fmt: skip
    if own is not None:
        slopes = [
            ref.derivative(lambda t, s=s: fitted.std(k_sum, sizes, own + t * _unit(len(own), s))[s])  # type: ignore[misc]
            for s in range(len(own))
        ]
        found = fitted.prior_variance_slope(std)
        ref.close(found, np.array(slopes), "prior_variance_slope is ∂std/∂prior variance", 1e-5)


def _unit(n: int, k: int) -> Floats:
    out = np.zeros(n)
    out[k] = 1.0
    return out


def _check_members(
    fitted: FittedUncertainty, k_sum: Floats, sizes: Ints, alpha: Floats, std: Floats
) -> None:
    n = 400
    drawn = [fitted.members(alpha, np.random.default_rng(k), 1) for k in range(n)]
    energies = np.array([k_sum @ w[0] + sizes * s[0] for w, s in drawn]) - k_sum @ alpha
    spread = np.sqrt(np.mean(energies**2, axis=0))
    # A sample's spread scatters by 1/√(2n) = 3.5 %; members of a sampled committee are a few.
    ref.require(
        bool((np.abs(spread - std) <= 0.25 * std + 1e-12).all()),
        f"Members spread about the mean by the std (found {spread}, expected {std}).",
    )
