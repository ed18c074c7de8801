"""A sum of kernels, each on its own features: several ranges or body orders in one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from nugget.errors import NuggetError
from nugget.gp.kernels.base import (
    NOTHING,
    Blocks,
    Columns,
    Inducing,
    Kernel,
    KernelBase,
    SelfSum,
    no_columns,
    sum_of,
    take,
)
from nugget.gp.kernels.rbf import RBF, RBFBlock, pack_of
from nugget.gp.kernels.rbf_loops import Pack, group_rows, group_rows_vjp
from nugget.gp.loops import std_and_weights
from nugget.gp.points import Points
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered


@registered("kernel")
@dataclass(frozen=True)
class SumKernel(KernelBase):
    """k(x, x') = Σ_p k_p(x_p, x'_p), where x_p are the next `widths[p]` features of x.

    All parts share the inducing points. With a large amplitude for a short range and a small one
    for a long range, predictions far from the data depend on the short range.
    """

    name: ClassVar[str] = "sum"
    parts: tuple[Kernel, ...]
    widths: tuple[int, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        object.__setattr__(self, "widths", tuple(int(w) for w in self.widths))
        if not self.parts or len(self.parts) != len(self.widths) or min(self.widths) < 1:
            raise NuggetError(
                f"SumKernel has {len(self.parts)} parts and widths {self.widths}; give every part "
                "the number of features that it takes."
            )

    @property
    def n_features(self) -> int:
        return sum(self.widths)

    def diagonal(self, x: Floats) -> Floats:
        return sum_of([part.diagonal(x[:, share]) for part, share in self._shares()])

    def _shares(self) -> Iterator[tuple[Kernel, slice]]:
        ends = np.cumsum(self.widths).tolist()
        for part, width, end in zip(self.parts, self.widths, ends, strict=True):
            yield part, slice(end - width, end)

    def blocks(self, z: Floats, columns: Ints) -> Blocks:
        if z.shape[1] != self.n_features:
            raise NuggetError(
                f"SumKernel takes {self.n_features} features, but there are {z.shape[1]}; its "
                "widths must be those of the descriptor's parts."
            )
        return [
            (share, part.block(np.ascontiguousarray(z[:, share]), columns))
            for part, share in self._shares()
        ]

    def inducing(self, z: Floats, group: Ints) -> Inducing:
        alike = all(isinstance(part, RBF) for part in self.parts)
        return (SumInducing if alike else Inducing)(self.blocks, z, group)

    def self_sum(self, points: Points) -> SelfSum:
        sums = []
        for part, share in self._shares():
            x = np.ascontiguousarray(points.x[:, share])
            sums.append(part.self_sum(Points.trusted(x, points.offsets, points.group)))
        return SumSelfSum(sums)

    def tangent_variance(self, x: Floats, group: Ints, tangents: Floats) -> Floats:
        return sum_of(
            [
                part.tangent_variance(x[:, share], group, tangents[:, :, share])
                for part, share in self._shares()
            ]
        )


@dataclass(frozen=True)
class SumSelfSum:
    """Sums of the parts' self sums."""

    parts: list[SelfSum]

    @property
    def value(self) -> Floats:
        """(B,)."""
        return sum_of([part.value for part in self.parts])

    def vjp(self, weights: Floats) -> Floats:
        """Gradient (n, f) of Σ_s weights_s k_ss with respect to all features."""
        return np.concatenate([part.vjp(weights) for part in self.parts], axis=1)


class SumInducing(Inducing):
    """Inducing points of a sum of squared exponentials: one compiled call per part and direction.

    Each call handles all groups, as in `RBFInducing`; the kernel sums of the parts are added.
    """

    @cached_property
    def packs(self) -> list[tuple[slice, Pack]]:
        """The features of each part, and its points in the layout of the tiles."""
        every = list(self._blocks.items())
        return [
            (share, pack_of({g: cast(RBFBlock, blocks[p][1]) for g, blocks in every}))
            for p, (share, _) in enumerate(every[0][1])
        ]

    def value_and_grad(
        self,
        points: Points,
        sizes: Ints,
        alpha: Floats,
        coefficients: Floats,
        columns: Columns | None = None,
        variance: Floats | None = None,
        sign: float = 1.0,
    ) -> tuple[Floats, Floats, Floats]:
        self._check(points.x)
        forward = [
            group_rows(take(points.x, share), points.group, points.offsets, pack)
            for share, pack in self.packs
        ]
        mean, std, weights = std_and_weights(
            sum_of([one[0] for one in forward]), sizes, alpha, coefficients,
            *(columns or no_columns(len(self))),
            NOTHING if variance is None else variance, sign,
        )  # fmt: skip
        gradients = [
            group_rows_vjp(weights, *one[1:], pack)
            for one, (_, pack) in zip(forward, self.packs, strict=True)
        ]
        return mean, std, np.concatenate(gradients, axis=2)
