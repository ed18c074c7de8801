"""Triangular factors: Cholesky with a jitter ladder, stacked QR, low-rank factors.

Everything works on upper triangular factors in Fortran order and never squares a condition number.
"""

from __future__ import annotations

import warnings

import numpy as np
from scipy.linalg import blas, lapack

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.numerics.lapack import tpmqrt, tpqrt
from nugget.numerics.threads import each

# Jitters relative to θ₀. Up to BENIGN they are far below any label noise and raise no warning.
LADDER = (0.0, 1e-12, 1e-11, 1e-10, 1e-9, 1e-8, 1e-7, 1e-6, 1e-5, 1e-4)
BENIGN = 1e-10
_MANY = 500
_PANEL = 32  # columns per block of the triangular-pentagonal QR
_CHUNK = 1024  # rows per QR update: the chunk and R stay in cache together


class JitterWarning(UserWarning):
    """A kernel matrix needed an unusually large jitter."""


def cholesky(k: Floats) -> tuple[Floats, float]:
    """U with UᵀU = K + jitter·I, and the jitter, the smallest on the ladder that works.

    A factor whose smallest pivot is round-off counts as failed, because its inverse is noise.
    """
    theta = float(np.max(np.diagonal(k), initial=0.0))
    # With many points the factorisation nearly always fails without jitter; skip that attempt.
    for relative in LADDER if k.shape[0] <= _MANY else LADDER[1:]:
        jitter = relative * theta
        trial = np.array(k.T, order="F")  # K is symmetric: Kᵀ of a C array copies without strides
        trial.flat[:: k.shape[0] + 1] += jitter
        u, info = lapack.dpotrf(trial, lower=0, clean=1, overwrite_a=1)
        if info == 0 and np.min(np.diagonal(u), initial=np.inf) ** 2 >= max(
            1e-13 * theta, 0.5 * jitter
        ):
            if relative > BENIGN:
                warnings.warn(
                    f"The kernel matrix of {k.shape[0]} inducing points needed a jitter of "
                    f"{relative:.0e} times its amplitude. Use fewer or more distinct inducing "
                    "points (PivotedCholesky), or a shorter length scale.",
                    JitterWarning,
                    stacklevel=3,
                )
            return u, jitter
    if not np.all(np.isfinite(k)):
        raise NuggetError("The kernel matrix holds NaN or infinity; check the features.")
    raise NuggetError(
        f"The kernel matrix of {k.shape[0]} inducing points is not positive definite even with a "
        f"jitter of {LADDER[-1]:.0e} times its amplitude; the kernel or its matrix is wrong."
    )


def update_qr(r: Floats, z: Floats, rows: Floats, rhs: Floats) -> tuple[Floats, Floats]:
    """R and Qᵀ·rhs after stacking `rows` (p, m) and `rhs` (p, c) below them (2pm² operations)."""
    r, z = np.array(r, order="F"), np.array(z, order="F")
    m = r.shape[0]
    if m == 0:
        return r, z
    with_rhs = z.shape[1] > 0
    for start in range(0, rows.shape[0], _CHUNK):
        part = np.array(rows[start : start + _CHUNK], order="F")
        t, info = tpqrt(r, part, _PANEL)
        if with_rhs and not info:
            info = tpmqrt(part, t, z, np.array(rhs[start : start + _CHUNK], order="F"))
        if info:
            raise NuggetError("The QR factorisation failed; check the labels for NaN.")
    return r, z


def stacked_qr(
    r: Floats, z: Floats, rows: Floats, rhs: Floats, threads: int | None = None
) -> tuple[Floats, Floats]:
    """`update_qr` in two halves that may run in parallel, if there are many rows.

    Merging their triangular factors costs a twelfth of the work for p = 6m.
    """
    m, p = r.shape[0], rows.shape[0]
    half = p // 2
    if p < 4 * m or half < _CHUNK:
        return update_qr(r, z, rows, rhs)
    starts = [
        (r, z, rows[:half], rhs[:half]),
        (np.zeros((m, m)), np.zeros(z.shape), rows[half:], rhs[half:]),
    ]
    (r, z), (lower, rest) = each(lambda args: update_qr(*args), starts, threads)
    return merged_qr(r, z, lower, rest)


def merged_qr(r: Floats, z: Floats, lower: Floats, rest: Floats) -> tuple[Floats, Floats]:
    """R and Qᵀ·rhs of two stacked triangular factors."""
    r, z, lower, rest = (np.array(a, order="F") for a in (r, z, lower, rest))
    t, info = tpqrt(r, lower, _PANEL, triangular=True)
    if z.shape[1] and not info:
        info = tpmqrt(lower, t, z, rest, triangular=True)
    if info:
        raise NuggetError("The QR factorisation failed; check the labels for NaN.")
    return r, z


def solve(u: Floats, b: Floats, *, transposed: bool = False) -> Floats:
    """U⁻¹b or U⁻ᵀb."""
    if b.shape[0] == 0 or b.size == 0:
        return np.array(b, dtype=float, order="F")
    if b.ndim == 1:
        return solve(u, b[:, None], transposed=transposed)[:, 0]
    out: Floats = blas.dtrsm(1.0, u, b, lower=0, trans_a=1 if transposed else 0)
    return out


def right_solve(b: Floats, u: Floats) -> Floats:
    """b U⁻¹, as (U⁻ᵀbᵀ)ᵀ; the result is in C order for b in C order."""
    return solve(u, np.asarray(b).T, transposed=True).T


def inverse_gram(r: Floats) -> Floats:
    """R⁻¹R⁻ᵀ, symmetric."""
    inverse, info = lapack.dtrtri(r, lower=0)
    if info:
        raise NuggetError("A triangular factor is singular; check the labels for NaN.")
    upper, _ = lapack.dlauum(inverse, lower=0, overwrite_c=1)  # a third of the work of a product
    out: Floats = np.triu(upper)
    out += np.triu(upper, 1).T
    return out


def compress(f: Floats, tolerance: float) -> Floats:
    """F' (m, r) with |FFᵀ − F'F'ᵀ| ≤ tolerance² and a small, not necessarily minimal, rank r."""
    m, q = f.shape
    if q == 0 or m == 0:
        return np.zeros((m, 0))
    if q > min(m, _MANY):
        return compress_gram(f @ f.T, tolerance)
    return f @ _directions(f.T @ f, tolerance)


def compress_gram(g: Floats, tolerance: float) -> Floats:
    """F' (m, r) with |G − F'F'ᵀ| ≤ tolerance² for a positive semi-definite G."""
    factor = _pivoted(g, tolerance)
    if factor.shape[1] > _MANY:  # a slightly higher rank is cheaper than the eigenproblem
        return factor
    return factor @ _directions(factor.T @ factor, tolerance)


def _pivoted(g: Floats, tolerance: float) -> Floats:
    """Pivoted Cholesky factor (m, r) of G, stopped when the remaining diagonal is negligible."""
    m = g.shape[0]
    # The remainder's norm is at most its trace, i.e. m times its largest diagonal element.
    stop = max(tolerance**2 / m, 4.0 * np.finfo(float).eps * float(np.max(np.diagonal(g))))
    lower, pivots, rank, info = lapack.dpstrf(np.array(g, order="F"), lower=1, tol=stop)
    if info < 0:
        raise NuggetError("The pivoted Cholesky factorisation failed; check the labels for NaN.")
    out = np.zeros((m, rank))
    out[pivots - 1] = np.tril(lower)[:, :rank]
    return out


def _directions(g: Floats, tolerance: float) -> Floats:
    """Orthonormal columns that keep all of a Gram matrix but eigenvalues below tolerance²."""
    values, vectors = np.linalg.eigh(g)
    return np.ascontiguousarray(vectors[:, values > tolerance**2][:, ::-1])
