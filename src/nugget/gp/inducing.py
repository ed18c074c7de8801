"""Rules that choose inducing points among the local environments of the training set."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.kernels import Kernel
from nugget.gp.linalg import cholesky, solve
from nugget.gp.points import Points
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered

Existing = tuple[Floats, Ints]  # features and groups of the present inducing points


class InducingRule(Protocol):
    """A rule that chooses rows of `points` as new inducing points: a frozen dataclass."""

    def select(
        self,
        points: Points,
        kernel: Kernel,
        rng: np.random.Generator,
        existing: Existing | None = None,
    ) -> Ints:
        """Indices of distinct rows, none of which equals an existing point."""


@dataclass(frozen=True)
class _Draw:
    """Draws rows until there are `n_points`; subclasses define the probabilities."""

    n_points: int = 1000

    def __post_init__(self) -> None:
        _check_count(self.n_points)

    def select(
        self,
        points: Points,
        kernel: Kernel,
        rng: np.random.Generator,
        existing: Existing | None = None,
    ) -> Ints:
        """Rows in ascending order; all rows if there are too few."""
        candidates = _candidates(points, existing)
        wanted = _missing(self.n_points, existing)
        return np.sort(self._draw(points, candidates, wanted, rng))

    def _draw(
        self, points: Points, candidates: Ints, wanted: int, rng: np.random.Generator
    ) -> Ints:
        raise NotImplementedError


@registered("inducing")
@dataclass(frozen=True)
class CUR(_Draw):
    """Draw rows with probability proportional to their leverage scores (the paper's choice).

    With `existing` points, only the missing ones are drawn.
    """

    def _draw(
        self, points: Points, candidates: Ints, wanted: int, rng: np.random.Generator
    ) -> Ints:
        if candidates.size <= wanted:
            return candidates
        scores = leverage_scores(points.x)[candidates]
        return candidates[_weighted_sample(scores, wanted, rng)]


@registered("inducing")
@dataclass(frozen=True)
class Random(_Draw):
    """Draw rows with equal probability. With `existing` points, only the missing ones are drawn."""

    def _draw(
        self, points: Points, candidates: Ints, wanted: int, rng: np.random.Generator
    ) -> Ints:
        return rng.permutation(candidates)[: min(wanted, candidates.size)]


@registered("inducing")
@dataclass(frozen=True)
class PivotedCholesky:
    """Add the row with the largest residual variance until none exceeds tol·θ₀ (deterministic).

    θ₀ is the largest prior variance. `existing` points stay; only rows with a large residual
    variance, given these, are added.
    """

    tol: float = 1e-7
    max_points: int | None = None

    def __post_init__(self) -> None:
        if not 0.0 < self.tol < 1.0:
            raise NuggetError(f"PivotedCholesky tol is {self.tol}; it must lie between 0 and 1.")
        if self.max_points is not None:
            _check_count(self.max_points)

    def select(
        self,
        points: Points,
        kernel: Kernel,
        rng: np.random.Generator,
        existing: Existing | None = None,
        factor: Floats | None = None,
    ) -> Ints:
        """`factor` may be U of the existing points (UᵀU = K_mm), if the caller has it."""
        limit = points.x.shape[0]
        if self.max_points is not None:
            limit = min(limit, _missing(self.max_points, existing))
        x, gx = points.x, points.group
        residual = kernel.diagonal(x)
        floor = self.tol * float(np.max(residual, initial=0.0))
        factor_rows = np.zeros((0, x.shape[0]))
        if existing is not None and existing[0].shape[0]:
            inducing = kernel.inducing(*existing)
            upper = cholesky(inducing.gram)[0] if factor is None else factor
            factor_rows = solve(upper, inducing.matrix(x, gx).T, transposed=True)
            residual -= np.einsum("mi,mi->i", factor_rows, factor_rows)
        return _greedy(x, gx, kernel, residual, factor_rows, floor, limit)


def _greedy(
    x: Floats, gx: Ints, kernel: Kernel, residual: Floats, factor_rows: Floats, floor: float,
    limit: int,
) -> Ints:  # fmt: skip
    """Indices in order of choice, from residual variances (n,) and present factor rows (m, n).

    Residual variances only decrease, so rows below the floor are dropped as the factor grows.
    """
    rows = np.flatnonzero(residual > floor)
    x, gx, residual, factor_rows = x[rows], gx[rows], residual[rows], factor_rows[:, rows]
    start, count = factor_rows.shape[0], 0
    factor = _with_space(factor_rows, start, limit, rows.size)
    chosen: list[int] = []
    while rows.size and count < limit:
        pivot = int(np.argmax(residual))
        if residual[pivot] <= floor:
            break
        if start + count == len(factor):
            factor = _with_space(factor, start + count, limit - count, rows.size)
        done = factor[: start + count]
        column = kernel.matrix(x, gx, x[pivot : pivot + 1], gx[pivot : pivot + 1])[:, 0]
        column -= done[:, pivot] @ done
        column /= np.sqrt(residual[pivot])
        factor[start + count] = column
        residual -= column * column
        residual[pivot] = 0.0
        chosen.append(int(rows[pivot]))
        count += 1
        alive = residual > floor
        if 2 * np.count_nonzero(alive) < rows.size:
            rows, x, gx, residual = rows[alive], x[alive], gx[alive], residual[alive]
            factor = _with_space(factor[:, alive], start + count, limit - count, rows.size)
    return np.array(chosen, dtype=np.int64)


def _with_space(rows: Floats, used: int, more: int, columns: int) -> Floats:
    """The first `used` rows, with space for some more but never for (n, n) at once."""
    out = np.empty((used + max(1, min(more, columns, 512 + used)), columns))
    out[:used] = rows[:used]
    return out


def leverage_scores(x: Floats) -> Floats:
    """Σ_{j<k} U_ij² of X = USVᵀ with k = rank(X) <= min(n, f).

    Leverage is invariant to the scale of columns, so they are normalised first. The f×f Gram matrix
    is then accurate unless it is nearly singular, in which case a thin SVD is used.
    """
    n, f = x.shape
    length = np.sqrt(np.einsum("if,if->f", x, x))
    x = x[:, length > 0] / length[length > 0]
    if x.size == 0:
        return np.zeros(n)
    if n > f:
        values, vectors = np.linalg.eigh(x.T @ x)
        if values[0] > 1e-10 * values[-1]:
            u = x @ (vectors / np.sqrt(values))
            return np.einsum("ij,ij->i", u, u)
    u, s, _ = np.linalg.svd(x, full_matrices=False)
    u = u[:, s > max(n, f) * np.finfo(float).eps * s[0]]
    return np.einsum("ij,ij->i", u, u)


def _weighted_sample(weights: Floats, size: int, rng: np.random.Generator) -> Ints:
    """Draw without replacement, with probabilities proportional to the remaining weights.

    Sorting Exp(1)/weight_i gives such a sample; zero weights come last, in random order.
    """
    draws = rng.standard_exponential(weights.size)
    positive = weights > 0.0
    keys = np.where(positive, draws / np.where(positive, weights, 1.0), draws)
    order = np.lexsort((keys, ~positive))
    return np.asarray(order[:size], dtype=np.int64)


def _candidates(points: Points, existing: Existing | None) -> Ints:
    """Rows that are not yet inducing points."""
    rows = np.arange(points.x.shape[0], dtype=np.int64)
    if existing is None or existing[0].shape[0] == 0:
        return rows
    taken = {(int(g), z.tobytes()) for z, g in zip(existing[0], existing[1], strict=True)}
    free = [(int(g), x.tobytes()) not in taken for x, g in zip(points.x, points.group, strict=True)]
    return rows[np.array(free, dtype=bool)]


def _missing(n_points: int, existing: Existing | None) -> int:
    return max(n_points - (0 if existing is None else existing[0].shape[0]), 0)


def _check_count(n: int) -> None:
    if n < 1:
        raise NuggetError(f"The number of inducing points is {n}; it must be at least 1.")
