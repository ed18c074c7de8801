"""The conformance check of kernels."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from nugget._compiled.arrays import Floats
from nugget.gp.kernels import Kernel
from nugget.gp.points import Points
from nugget.testing import _compare as ref


def check_kernel(kernel: Kernel, n_features: int = 5, seed: int = 0) -> None:
    """Raise ConformanceError unless the kernel keeps its contract (`nugget.gp.kernels.base`).

    Covariances, sums per structure, all derivatives (by features, twice for the prior variance of
    forces, by hyper-parameters) and the fused evaluation are compared with differences and with
    each other, on points of several groups and structures of several sizes, one of them empty.
    """
    ref.plain_settings(kernel, "kernel")
    rng = np.random.default_rng(seed)
    length = float(getattr(kernel, "length_scale", 1.0))
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
    ref.close(k, k.T, "The kernel matrix of points with themselves is symmetric", 1e-12)
    ref.close(np.diagonal(k), np.full(len(x), kernel.amplitude), "k(x, x) is the amplitude", 1e-10)
    apart = group[:, None] != group[None, :]
    ref.require(bool((k[apart] == 0).all()), "The kernel is zero between different groups.")
    lowest = float(np.linalg.eigvalsh(k)[0])
    ref.require(
        lowest > -1e-8 * kernel.amplitude,
        f"The kernel matrix is positive semi-definite (its lowest eigenvalue is {lowest:.1e}).",
    )
    gram = kernel.inducing(x, group).gram
    ref.same(gram, gram.T, "The matrix of the inducing points is symmetric to the last bit.")
    ref.close(gram, k, "The matrix of the inducing points is that of the kernel", 1e-10)


def _check_rows(
    kernel: Kernel, points: Points, z: Floats, gz: Any, rng: np.random.Generator
) -> None:
    inducing = kernel.inducing(z, gz)
    rows = inducing.forward(points)
    ref.close(
        rows.k, kernel.matrix(points.x, points.group, z, gz), "Kernel rows are the matrix", 1e-10
    )
    sums = np.zeros((len(points), len(z)))
    np.add.at(sums, points.owner, rows.k)
    ref.close(rows.k_sum, sums, "k_sum adds up the rows of each structure", 1e-10)
    weights = rng.normal(size=(2, len(points), len(z)))
    found = rows.vjp(weights)
    direction = rng.normal(size=points.x.shape)
    length = float(np.abs(points.x).max())
    for r in range(2):

        def value(t: float, w: Floats = weights[r]) -> float:
            return float(np.sum(w * inducing.forward(_moved(points, t, direction)).k_sum))

        ref.close(
            np.sum(found[r] * direction), ref.derivative(value, 1e-3 * length),
            "vjp is the gradient of weights·k_sum by the features",
        )  # fmt: skip
    common = rng.normal(size=len(z))
    same_for_all = np.broadcast_to(common, (len(points), len(z)))
    ref.close(rows.vjp(common), rows.vjp(same_for_all), "Common weights serve all structures", 1e-9)
    for part in rows.parts:
        # Design rows of forces are made from these slopes: ∂k_ij/∂x̃_i = g_ij (z̃_j − x̃_i).
        local = slice(None) if part.rows is None else part.rows
        tangent = direction[local] * part.block.scale
        along = tangent @ part.block.zt - np.einsum("if,if->i", tangent, part.xs)[:, None]

        def rows_at(t: float, local: Any = local, columns: Any = part.block.columns) -> Floats:
            return inducing.forward(_moved(points, t, direction)).k[local][:, columns]

        ref.close(
            part.slopes * along, ref.derivative(rows_at, 1e-3 * length),
            "The slopes of a forward pass are the derivatives of k",
        )  # fmt: skip


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
            ref.close(a, b, f"The fused evaluation gives the {name} of its parts", 1e-9)


def _check_self_sum(kernel: Kernel, points: Points, rng: np.random.Generator) -> None:
    x, group = points.x, points.group
    k = kernel.matrix(x, group, x, group)
    within = points.owner[:, None] == points.owner[None, :]
    sums = [float(np.sum((k * within)[points.owner == s])) for s in range(len(points))]
    found = kernel.self_sum(points)
    ref.close(found.value, sums, "self_sum adds k over all pairs of a structure", 1e-9)
    weights, direction = rng.normal(size=len(points)), rng.normal(size=x.shape)

    def value(t: float) -> float:
        return float(weights @ kernel.self_sum(_moved(points, t, direction)).value)

    step = 1e-3 * float(np.abs(x).max())
    ref.close(
        np.sum(found.vjp(weights) * direction), ref.derivative(value, step),
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

            return ref.derivative(by_second, step)

        expected.append(float(ref.derivative(by_both, step)))
    ref.close(
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

        ref.close(
            gradient, ref.derivative(matrix, 1e-3), f"log_gradients[{name!r}] is ∂k/∂log {name}"
        )
