"""Conformance checks of kernels, inducing rules and uncertainties."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nugget.gp.inducing import InducingRule
from nugget.gp.kernels import RBF, Kernel
from nugget.gp.labels import Labels
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty import FittedUncertainty, Uncertainty
from nugget.gp.uncertainty.base import HasFloors, HasLevels, HasStateShapes
from nugget.numerics.arrays import Floats, Ints
from nugget.testing.compare import close, derivative, require, require_plain_settings, same


def check_kernel(kernel: Kernel, n_features: int | None = None, seed: int = 0) -> None:
    """Raise ConformanceError unless the kernel keeps its contract (`nugget.gp.kernels.base`).

    Covariances, sums per structure, all derivatives (by features, twice for the prior variance of
    forces, by hyper-parameters) and the fused evaluation are compared with finite differences and
    with each other, on points of several groups and structures of several sizes, one of them empty.
    `n_features` is for kernels that take any number (default 5).
    """
    require_plain_settings(kernel, "kernel")
    rng = np.random.default_rng(seed)
    length = float(getattr(kernel, "length_scale", 1.0))
    n_features = kernel.n_features or n_features or 5
    x = length * rng.normal(size=(9, n_features))
    points = Points(x, np.array([0, 4, 4, 9]), np.array([0, 1, 0, 0, 1, 1, 0, 2, 0]))
    z, gz = length * rng.normal(size=(6, n_features)), np.array([0, 0, 1, 1, 0, 2])
    _check_covariance(kernel, points)
    _check_rows(kernel, points, z, gz, rng)
    _check_fused(kernel, points, z, gz, rng)
    _check_self_sum(kernel, points, rng)
    _check_tangent_variance(kernel, points, rng)
    _check_hyperparameters(kernel, points, z, gz)


def _moved(points: Points, t: float, direction: Floats) -> Points:
    return Points(points.x + t * direction, points.offsets, points.group)


def _check_covariance(kernel: Kernel, points: Points) -> None:
    x, group = points.x, points.group
    k = kernel.matrix(x, group, x, group)
    close(k, k.T, "The kernel matrix of points with themselves is symmetric", 1e-12)
    close(np.diagonal(k), kernel.diagonal(x), "k(x, x) is the diagonal", 1e-10)
    apart = group[:, None] != group[None, :]
    require(bool((k[apart] == 0).all()), "The kernel is zero between different groups.")
    lowest = float(np.linalg.eigvalsh(k)[0])
    require(
        lowest > -1e-8 * float(np.max(kernel.diagonal(x))),
        f"The kernel matrix is positive semi-definite (its lowest eigenvalue is {lowest:.1e}).",
    )
    gram = kernel.inducing(x, group).gram
    same(gram, gram.T, "The matrix of the inducing points is symmetric to the last bit.")
    close(gram, k, "The matrix of the inducing points is that of the kernel", 1e-10)


def _check_rows(
    kernel: Kernel, points: Points, z: Floats, gz: Any, rng: np.random.Generator
) -> None:
    inducing = kernel.inducing(z, gz)
    rows = inducing.forward(points)
    close(rows.k, kernel.matrix(points.x, points.group, z, gz), "Kernel rows are the matrix", 1e-10)
    sums = np.zeros((len(points), len(z)))
    np.add.at(sums, points.owner, rows.k)
    close(rows.k_sum, sums, "k_sum adds up the rows of each structure", 1e-10)
    weights = rng.normal(size=(2, len(points), len(z)))
    found = rows.vjp(weights)
    direction = rng.normal(size=points.x.shape)
    length = float(np.abs(points.x).max())
    for r in range(2):

        def value(t: float, w: Floats = weights[r]) -> float:
            return float(np.sum(w * inducing.forward(_moved(points, t, direction)).k_sum))

        close(
            np.sum(found[r] * direction), derivative(value, 1e-3 * length),
            "vjp is the gradient of weights·k_sum by the features",
        )  # fmt: skip
    common = rng.normal(size=len(z))
    same_for_all = np.broadcast_to(common, (len(points), len(z)))
    close(rows.vjp(common), rows.vjp(same_for_all), "Common weights serve all structures", 1e-9)
    total = np.zeros_like(rows.k)
    for part in rows.parts:
        own = np.arange(len(points.x)) if part.rows is None else part.rows
        tangents = np.repeat(direction[own][:, None], 3, axis=1)
        product, at, slopes, scale = part.derivatives(tangents, np.arange(len(own)))
        line = (product - at[:, :, None]) * slopes[:, None, :] * scale
        total[np.ix_(own, part.block.columns)] += line[:, 0]
    close(
        total,
        derivative(lambda t: inducing.forward(_moved(points, t, direction)).k, 1e-3 * length),
        "The directional derivatives of a forward pass are those of k",
    )


def _check_fused(
    kernel: Kernel, points: Points, z: Floats, gz: Any, rng: np.random.Generator
) -> None:
    only = Points(points.x, points.offsets, np.zeros(len(points.x), dtype=np.int64))
    coefficients = np.array([[1.0, 0.0], [1.0, -2.0], [0.0, 1.0]])
    columns = (rng.normal(size=(3, len(z))), rng.normal(size=3))
    alpha = rng.normal(size=len(z))
    for p, group in ((points, gz), (only, np.zeros(len(z), dtype=np.int64))):
        inducing = kernel.inducing(z, group)
        fused = inducing.value_and_grad(p, p.sizes, alpha, coefficients, columns)
        apart = inducing.forward(p).value_and_grad(p.sizes, alpha, coefficients, columns)
        for name, a, b in zip(("means", "stds", "gradients"), fused, apart, strict=True):
            close(a, b, f"The fused evaluation gives the {name} of its parts", 1e-9)


def _check_self_sum(kernel: Kernel, points: Points, rng: np.random.Generator) -> None:
    x, group = points.x, points.group
    k = kernel.matrix(x, group, x, group)
    within = points.owner[:, None] == points.owner[None, :]
    sums = [float(np.sum((k * within)[points.owner == s])) for s in range(len(points))]
    found = kernel.self_sum(points)
    close(found.value, sums, "self_sum adds k over all pairs of a structure", 1e-9)
    weights, direction = rng.normal(size=len(points)), rng.normal(size=x.shape)

    def value(t: float) -> float:
        return float(weights @ kernel.self_sum(_moved(points, t, direction)).value)

    step = 1e-3 * float(np.abs(x).max())
    close(
        np.sum(found.vjp(weights) * direction), derivative(value, step),
        "The vjp of self_sum is its gradient by the features",
    )  # fmt: skip


def _check_tangent_variance(kernel: Kernel, points: Points, rng: np.random.Generator) -> None:
    x, group = points.x, points.group
    tangents = rng.normal(size=(2, *x.shape))
    step = 1e-3 * float(np.abs(x).max())
    expected = []
    for v in tangents:

        def by_both(t: float, v: Floats = v) -> Floats:
            def by_second(u: float) -> float:
                return float(kernel.matrix(x + t * v, group, x + u * v, group).sum())

            return derivative(by_second, step)

        expected.append(float(derivative(by_both, step)))
    close(
        kernel.tangent_variance(x, group, tangents), expected,
        "tangent_variance is the second derivative of k, once by each argument", 1e-5,
    )  # fmt: skip


def _check_hyperparameters(kernel: Kernel, points: Points, z: Floats, gz: Any) -> None:
    found = kernel.log_gradients(points.x, points.group, z, gz)
    changeable: Any = kernel
    for name, gradient in found.items():

        def matrix(t: float, name: str = name) -> Floats:
            other: Kernel = replace(changeable, **{name: getattr(kernel, name) * float(np.exp(t))})
            return other.matrix(points.x, points.group, z, gz)

        close(gradient, derivative(matrix, 1e-3), f"log_gradients[{name!r}] is ∂k/∂log {name}")


def check_inducing(rule: InducingRule, n_features: int = 4, seed: int = 0) -> None:
    """Raise ConformanceError unless the rule keeps its contract (`nugget.gp.inducing`)."""
    require_plain_settings(rule, "inducing rule")
    rng = np.random.default_rng(seed)
    n = 60
    points = Points(
        rng.normal(size=(n, n_features)), np.arange(0, n + 1, 10), rng.integers(0, 2, size=n)
    )
    kernel, before = RBF(1.0), points.x.copy()
    chosen = rule.select(points, kernel, np.random.default_rng(seed))
    again = rule.select(points, kernel, np.random.default_rng(seed))
    same(chosen, again, "The same random numbers choose the same points.")
    same(points.x, before, "A rule does not change the points that it chooses from.")
    require(chosen.ndim == 1 and chosen.size > 0, "A rule chooses at least one row.")
    require(len(set(chosen.tolist())) == chosen.size, "No row is chosen twice.")
    require(bool(((chosen >= 0) & (chosen < n)).all()), "Chosen rows exist.")
    existing = (points.x[chosen], points.group[chosen])
    more = rule.select(points, kernel, np.random.default_rng(seed), existing)
    require(not set(more.tolist()) & set(chosen.tolist()), "Existing points are not chosen again.")


COEFFICIENTS = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -2.0]])


def check_uncertainty(uncertainty: Uncertainty, seed: int = 0) -> None:
    """Raise ConformanceError unless the uncertainty keeps its contract (`gp.uncertainty.base`).

    It is fitted to a small regression; values, gradients, scaling, extensivity, reproducibility,
    members (if it has any) and its state on disk are checked.
    """
    require_plain_settings(uncertainty, "uncertainty")
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
    require(std.shape == (2,), "One standard deviation per structure.")
    require(bool(np.isfinite(std).all() and (std >= 0).all()), "Standard deviations are ≥ 0.")
    same(fit().std(k_sum, sizes, own), std, "The same random numbers give the same uncertainty.")
    _check_weights(fitted, k_sum, sizes, regression.alpha, own, rng)
    twice = fitted.with_scale(2.0 * fitted.scale)
    close(twice.std(k_sum, sizes, own), 2.0 * std, "with_scale multiplies every std", 1e-9)
    close(fit().calibrated_as(twice).std(k_sum, sizes, own), 2.0 * std, "calibrated_as", 1e-9)
    four = None if own is None else 4.0 * own
    close(
        fitted.std(2.0 * k_sum, 2 * sizes, four), 2.0 * std,
        "Two equal structures far apart are uncertain by twice as much (extensive)", 1e-8,
    )  # fmt: skip
    _check_capabilities(uncertainty, fitted, k_sum, sizes, std, len(z))
    again = uncertainty.from_state({name: np.array(a) for name, a in fitted.state().items()})
    same(again.std(k_sum, sizes, own), std, "from_state(state()) is the same fit, bit for bit.")
    if fitted.has_members:
        _check_members(fitted, k_sum, sizes, regression.alpha, std)


def _check_capabilities(
    uncertainty: Uncertainty, fitted: FittedUncertainty, k_sum: Floats, sizes: Ints, std: Floats,
    n_inducing: int,
) -> None:  # fmt: skip
    """What the optional protocols of `gp.uncertainty.base` promise."""
    if isinstance(fitted, HasLevels):
        levels = np.array([getattr(uncertainty, name) for name in fitted.level_names])
        gram = fitted.unit_gram(k_sum, sizes.astype(float))
        square = fitted.scale**2 * np.einsum("a,nab,b->n", levels, gram, levels)
        close(np.sqrt(square), std, "unit_gram gives the std of the present levels", 1e-8)
        require("prior" in fitted.level_names, 'One of the levels is called "prior".')
        more = {name: 2.0 * level for name, level in zip(fitted.level_names, levels, strict=True)}
        twice = fitted.with_levels(**more).std(k_sum, sizes, None)
        close(twice, 2.0 * std, "Twice the levels are twice the std", 1e-8)
    if isinstance(uncertainty, HasFloors):
        names = {f"{kind}{end}" for kind in uncertainty.floor_kinds for end in ("", "_floor")}
        missing = sorted(name for name in names if not hasattr(uncertainty, name))
        require(not missing, f"Factors and floors are settings; {missing} are not.")
    if isinstance(uncertainty, HasStateShapes):
        shapes, state = uncertainty.state_shapes(), fitted.state()
        require(set(shapes) == set(state), "state_shapes names the arrays of the state.")
        for name, shape in shapes.items():
            sizes_agree = len(shape) == np.ndim(state[name]) and all(
                size == n_inducing if n == "m" else isinstance(n, str) or n == size
                for n, size in zip(shape, np.shape(state[name]), strict=True)
            )
            require(sizes_agree, f"state_shapes gives the shape of {name!r}.")


def _check_weights(
    fitted: FittedUncertainty, k_sum: Floats, sizes: Ints, alpha: Floats, own: Floats | None, rng:
    np.random.Generator,
) -> None:  # fmt: skip
    mean, std, weights = fitted.std_and_weights(k_sum, sizes, alpha, COEFFICIENTS, own)
    close(mean, k_sum @ alpha, "The mean is k_sum·alpha", 1e-9)
    close(std, fitted.std(k_sum, sizes, own), "std and std_and_weights agree", 1e-8)
    direction = rng.normal(size=k_sum.shape)
    slope = derivative(lambda t: fitted.std(k_sum + t * direction, sizes, own), 1e-4)
    for r, (on_mean, on_std) in enumerate(COEFFICIENTS):
        expected = on_mean * (direction @ alpha) + on_std * slope
        close(
            np.einsum("bm,bm->b", weights[r], direction), expected,
            "The weights are the gradient of c_E·mean + c_σ·std by k_sum", 1e-5,
        )  # fmt: skip
    if own is not None:
        slopes = [
            derivative(lambda t, s=s: fitted.std(k_sum, sizes, own + t * _unit(len(own), s))[s])  # type: ignore[misc]
            for s in range(len(own))
        ]
        found = fitted.prior_variance_slope(std)
        close(found, np.array(slopes), "prior_variance_slope is ∂std/∂prior variance", 1e-5)


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
    require(
        bool((np.abs(spread - std) <= 0.25 * std + 1e-12).all()),
        f"Members spread about the mean by the std (found {spread}, expected {std}).",
    )
