"""Feature vectors grouped into structures, the input of kernels and regressions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from nugget.errors import NuggetError
from nugget.gp.loops import ascends
from nugget.numerics.arrays import Floats, Ints


@dataclass(frozen=True)
class Points:
    """Rows `x` (n, f); rows offsets[s]:offsets[s+1] belong to structure s.

    `group` (n,) separates rows without covariance (atoms of different species): the kernel between
    different groups is zero.
    """

    x: Floats
    offsets: Ints
    group: Ints

    def __post_init__(self) -> None:
        x = np.ascontiguousarray(self.x, dtype=np.float64)
        offsets = np.ascontiguousarray(self.offsets, dtype=np.int64)
        group = np.ascontiguousarray(self.group, dtype=np.int64)
        if x.ndim != 2:
            raise NuggetError(f"Features have shape {x.shape}; give one row of features per point.")
        if group.shape != x.shape[:1]:
            raise NuggetError(
                f"There are {x.shape[0]} rows of features but groups of shape {group.shape}; "
                "give one group number per row."
            )
        if offsets.ndim != 1 or not ascends(offsets, x.shape[0]):
            raise NuggetError(
                f"Structure offsets must ascend from 0 to the number of feature rows, {x.shape[0]}."
            )
        object.__setattr__(self, "x", x)
        object.__setattr__(self, "offsets", offsets)
        object.__setattr__(self, "group", group)

    @classmethod
    def trusted(cls, x: Floats, offsets: Ints, group: Ints) -> Points:
        """Without checks, for arrays that are valid by construction."""
        points = object.__new__(cls)
        points.__dict__.update(x=x, offsets=offsets, group=group)
        return points

    @classmethod
    def single(cls, x: ArrayLike) -> Points:
        """Every row its own structure, all in group 0 (plain regression)."""
        x = np.atleast_1d(np.asarray(x, dtype=np.float64))
        n = x.shape[0]
        return cls(x, np.arange(n + 1, dtype=np.int64), np.zeros(n, dtype=np.int64))

    def __len__(self) -> int:
        return self.offsets.size - 1

    @cached_property
    def sizes(self) -> Ints:
        """Number of rows of each structure, N_s."""
        return np.diff(self.offsets)

    @cached_property
    def owner(self) -> Ints:
        """Structure of each row."""
        return np.repeat(np.arange(len(self), dtype=np.int64), self.sizes)

    def select(self, structures: ArrayLike) -> Points:
        """These structures, in this order."""
        wanted = np.asarray(structures, dtype=np.int64)
        sizes = self.sizes[wanted]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.repeat(self.offsets[wanted] - offsets[:-1], sizes) + np.arange(offsets[-1])
        return Points(self.x[rows], offsets, self.group[rows])

    @classmethod
    def concatenate(cls, parts: Sequence[Points]) -> Points:
        """All structures of all parts, in order."""
        sizes = np.concatenate([part.sizes for part in parts])
        return cls(
            np.concatenate([part.x for part in parts]),
            np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64),
            np.concatenate([part.group for part in parts]),
        )
