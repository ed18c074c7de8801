"""A forward pass through a kernel: its rows, and their backward pass."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.gp._std_loops import std_and_weights
from nugget.gp.points import Points

if TYPE_CHECKING:
    from nugget.gp.kernels.base import Block

Columns = tuple[Floats, Floats]  # (Wᵀ, ρ) of a linear uncertainty
ALL_FEATURES = slice(None)
NOTHING = np.empty(0)


def sum_of(terms: list[Floats]) -> Floats:
    """Their sum; a single one is handed on as it is."""
    total = terms[0]
    for term in terms[1:]:
        total = total + term
    return total


def take(x: Floats, features: slice) -> Floats:
    """Columns of x as the compiled loops read them."""
    return x if features == ALL_FEATURES else np.ascontiguousarray(x[:, features])


def no_columns(m: int) -> Columns:
    """The columns of an uncertainty that is zero everywhere."""
    return np.empty((0, m)), NOTHING


class Part(NamedTuple):
    """One block's share of a forward pass; `rows` is None when there is only one group."""

    block: Block
    rows: Ints | None
    offsets: Ints
    xs: Floats
    k: Floats
    slopes: Floats
    features: slice = ALL_FEATURES


class KernelRows(NamedTuple):
    """A forward pass: `k_sum` (B, m), `k` (n, m), and its vector-Jacobian product."""

    k_sum: Floats
    points: Points
    n_inducing: int
    parts: list[Part]

    @property
    def k(self) -> Floats:
        """Kernel rows (n, m), zero across groups."""
        if self.parts and self.parts[0].rows is None:
            return sum_of([part.k for part in self.parts])
        k = np.zeros((self.points.x.shape[0], self.n_inducing))
        for part in self.parts:
            if part.rows is not None:
                k[np.ix_(part.rows, part.block.columns)] += part.k
        return k

    def vjp(self, weights: Floats) -> Floats:
        """Gradient of Σ_s weights_s·k_sum_s with respect to the features.

        Weights (m,) are common to all structures and (B, m) belong to one each: the result is
        (n, f). Weights (R, B, m) are R cotangents at once: the result is (R, n, f).
        """
        weights = np.ascontiguousarray(weights, float)
        if weights.ndim == 2:
            return self.vjp(weights[None])[0]
        first = self.parts[0] if self.parts else None
        if first is not None and first.rows is None and first.features == ALL_FEATURES:
            return first.block.vjp(first.xs, first.slopes, first.offsets, weights)
        out = np.zeros((*weights.shape[:-2], *self.points.x.shape))
        for part in self.parts:
            own = np.ascontiguousarray(weights[..., part.block.columns])
            rows = slice(None) if part.rows is None else part.rows
            out[..., rows, part.features] += part.block.vjp(part.xs, part.slopes, part.offsets, own)
        return out

    def value_and_grad(
        self,
        sizes: Ints,
        alpha: Floats,
        coefficients: Floats,
        columns: Columns | None = None,
        prior_variance: Floats | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        """`Inducing.value_and_grad`, from rows that are already there."""
        wt, rho = columns or no_columns(self.n_inducing)
        mean, std, weights = std_and_weights(
            self.k_sum, sizes, alpha, coefficients, wt, rho,
            NOTHING if prior_variance is None else prior_variance,
        )  # fmt: skip
        return mean, std, self.vjp(weights)
