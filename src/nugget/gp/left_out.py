"""What a regression would have predicted for labels that it had not seen, without a refit.

With Q₁ = BR⁻¹ the hat matrix of the whitened labels is H = Q₁Q₁ᵀ. Leaving out the rows of a block G
(one structure's labels, or those of many structures) turns their residuals r_G into
(I − H_GG)⁻¹r_G, and the covariance of the labels that are predicted, in units of their noise, is
(I − H_GG)⁻¹. The inducing points stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from scipy.linalg import lapack, solve_triangular

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.gp.labels import ENERGY
from nugget.gp.linalg import right_solve, solve
from nugget.gp.regression import SparseRegression


@dataclass(frozen=True)
class LeftOut:
    """Label minus prediction (p,), and the variance of the prediction (p,), without label noise."""

    residual: Floats
    variance: Floats


def left_out(regression: SparseRegression, blocks: Iterable[Ints]) -> LeftOut:
    """Every block of rows as predicted from all rows outside it; blocks must not overlap.

    Rows that are in no block keep NaN.
    """
    residual = np.full(regression.y.size, np.nan)
    variance = residual.copy()
    q, rest = _hat_factor(regression)
    for rows in blocks:
        residual[rows], variance[rows] = _one_block(q[rows], rest[rows])
    noise = regression.noise
    return LeftOut(residual * noise, variance * noise**2)


def structure_of(regression: SparseRegression) -> Ints:
    """The structure of every label row: rows stand structure by structure, energies first."""
    return np.cumsum(regression.kind == ENERGY) - 1


def blocks_of(owner: Ints) -> list[Ints]:
    """Rows with the same owner, one array per owner."""
    order = np.argsort(owner, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(owner[order])) + 1)


def _hat_factor(regression: SparseRegression) -> tuple[Floats, Floats]:
    """Q (p, ·) with H = QQᵀ, and the whitened residuals (I − H)Σ^{-1/2}y."""
    scaled = regression.y / regression.noise
    if regression.few:  # I − H = (I + BBᵀ)⁻¹ = S⁻¹S⁻ᵀ
        rest = solve(regression.s, solve(regression.s, scaled, transposed=True))
        return right_solve(regression.whitened, regression.qr[0]), rest
    q = right_solve(regression.whitened, regression.r)
    return q, scaled - q @ regression.qr[1]


def _one_block(q: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """(I − qqᵀ)⁻¹ applied to `rest`, and its diagonal minus 1."""
    p, m = q.shape
    if p <= m:
        factor, info = lapack.dpotrf(np.eye(p) - q @ q.T, lower=1, clean=1)
        _check(info)
        inverse = solve_triangular(factor, np.eye(p), lower=True)
        return inverse.T @ (inverse @ rest), np.einsum("ij,ij->j", inverse, inverse) - 1.0
    # Woodbury: (I − qqᵀ)⁻¹ = I + q(I − qᵀq)⁻¹qᵀ.
    factor, info = lapack.dpotrf(np.eye(m) - q.T @ q, lower=1, clean=1)
    _check(info)
    half = solve_triangular(factor, q.T, lower=True)
    return rest + half.T @ (half @ rest), np.einsum("ij,ij->j", half, half)


def _check(info: int) -> None:
    if info:
        raise NuggetError(
            "Leaving out a group of labels leaves the model undetermined; use smaller groups."
        )
