"""Label rows, the training data of a sparse regression."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints

ENERGY, FORCE, STRESS = 0, 1, 2


@dataclass(frozen=True)
class Labels:
    """p label rows: y ≈ A α with noise N(0, noise²).

    `count` is N_s on energy rows and 0 elsewhere; `kind` is ENERGY, FORCE or STRESS.
    """

    rows: Floats
    y: Floats
    noise: Floats
    count: Floats
    kind: Ints

    def __post_init__(self) -> None:
        rows = np.asarray(self.rows, float)
        if rows.ndim != 2:
            raise NuggetError(f"Label rows have shape {rows.shape}; give one row per label.")
        object.__setattr__(self, "rows", rows)
        for name in ("y", "noise", "count"):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), float))
        object.__setattr__(self, "kind", np.ascontiguousarray(self.kind, np.int64))
        for name in ("y", "noise", "count", "kind"):
            shape = getattr(self, name).shape
            if shape != rows.shape[:1]:
                raise NuggetError(f"Labels: `{name}` has shape {shape} for {len(rows)} rows.")
        for name in ("y", "noise", "count"):
            bad = np.flatnonzero(~np.isfinite(getattr(self, name)))
            if bad.size:
                raise NuggetError(f"Labels: `{name}` of row {bad[0]} is not finite; remove it.")
        if np.any(self.noise <= 0):
            row = int(np.flatnonzero(self.noise <= 0)[0])
            raise NuggetError(f"Labels: the noise of row {row} must be positive.")

    @classmethod
    def energies(cls, k_sum: ArrayLike, y: ArrayLike, noise: ArrayLike, sizes: ArrayLike) -> Labels:
        """Energy labels: rows κ_s, variance noise²·N_s; one noise level, or one of each label."""
        count = np.asarray(sizes, float)
        kind = np.full(count.shape, ENERGY, dtype=np.int64)
        return cls(
            np.asarray(k_sum, float), np.asarray(y, float),
            np.asarray(noise, float) * np.sqrt(count), count, kind,
        )  # fmt: skip

    @classmethod
    def concatenate(cls, parts: list[Labels]) -> Labels:
        """All rows of all parts, in order."""
        return cls(
            *(
                np.concatenate([getattr(part, name) for part in parts])
                for name in ("rows", "y", "noise", "count", "kind")
            )
        )

    def __len__(self) -> int:
        return int(self.y.size)
