"""A sum of kernels, each on its own share of the features: several ranges in one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, cast

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.gp._std_loops import std_and_weights
from nugget.gp.kernels._loops import group_rows, group_rows_vjp
from nugget.gp.kernels._tiles import Pack
from nugget.gp.kernels.base import Blocks, Inducing, Kernel, KernelBase, SelfSum
from nugget.gp.kernels.rbf import RBF, RBFBlock
from nugget.gp.kernels.rows import NOTHING, Columns, no_columns, sum_of, take
from nugget.gp.points import Points
from nugget.registry import registered


@registered("kernel")
@dataclass(frozen=True)
class SumKernel(KernelBase):
    """k(x, x') = Σ_p k_p(x_p, x'_p), where x_p are the next `widths[p]` features of x.

    A short-ranged part with a large amplitude and a long-ranged part with a small one learn what
    both know and forget the long range first where data end. All parts share inducing points.
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
    def amplitude(self) -> float:
        """θ₀ = k(x, x): the sum of the parts' amplitudes."""
        return sum(part.amplitude for part in self.parts)

    def _shares(self) -> Iterator[tuple[Kernel, slice]]:
        ends = np.cumsum(self.widths).tolist()
        for part, width, end in zip(self.parts, self.widths, ends, strict=True):
            yield part, slice(end - width, end)

    def blocks(self, z: Floats, columns: Ints) -> Blocks:
        if z.shape[1] != sum(self.widths):
            raise NuggetError(
                f"SumKernel takes {sum(self.widths)} features, but there are {z.shape[1]}; its "
                "widths must be those of the descriptor's parts."
            )
        return [
            (share, part.block(np.ascontiguousarray(z[:, share]), columns))
            for part, share in self._shares()
        ]

    def inducing(self, z: Floats, group: Ints) -> Inducing:
        """Inducing points, made ready for many calls of `value_and_grad`."""
        z, group = np.ascontiguousarray(z, float), np.ascontiguousarray(group, np.int64)
        alike = all(isinstance(part, RBF) for part in self.parts)
        return (SumInducing if alike else Inducing)(self.blocks, z, group)

    def self_sum(self, points: Points) -> SelfSum:
        """Σ_{i,j∈s} k(x_i, x_j) of every structure."""
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

    def log_gradients(self, x: Floats, gx: Ints, z: Floats, gz: Ints) -> dict[str, Floats]:
        """∂k/∂log θ for a factor θ common to all length scales, or to all amplitudes."""
        found = [
            part.log_gradients(x[:, share], gx, z[:, share], gz) for part, share in self._shares()
        ]
        return {name: sum_of([one[name] for one in found]) for name in found[0]}


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

    All groups go together, as in `RBFInducing`; the parts meet in the kernel sums.
    """

    @cached_property
    def packs(self) -> list[tuple[slice, Pack]]:
        """The features of each part, and its points as the tiles read them."""
        every = list(self._blocks.items())
        return [
            (share, Pack.of({g: cast(RBFBlock, blocks[p][1]) for g, blocks in every}))
            for p, (share, _) in enumerate(every[0][1])
        ]

    def value_and_grad(
        self,
        points: Points,
        sizes: Ints,
        alpha: Floats,
        coefficients: Floats,
        columns: Columns | None = None,
        prior_variance: Floats | None = None,
    ) -> tuple[Floats, Floats, Floats]:
        self._check(points.x)
        ahead = [
            group_rows(take(points.x, share), points.group, points.offsets, *pack)
            for share, pack in self.packs
        ]
        mean, std, weights = std_and_weights(
            sum_of([found[0] for found in ahead]), sizes, alpha, coefficients,
            *(columns or no_columns(len(self))),
            NOTHING if prior_variance is None else prior_variance,
        )  # fmt: skip
        back = [
            group_rows_vjp(weights, *found[1:], *pack)
            for found, (_, pack) in zip(ahead, self.packs, strict=True)
        ]
        return mean, std, np.concatenate(back, axis=2)
