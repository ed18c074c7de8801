"""A sum of kernels, each on its own share of the features: several ranges in one model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.gp.kernels.base import Blocks, Kernel, KernelBase, SelfSum
from nugget.gp.kernels.rows import sum_of
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
