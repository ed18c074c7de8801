"""Descriptors made of others: several side by side (`Joined`), or scaled to unit length.

`Joined` gives a model a short and a long range, each with its own basis; `SumKernel` keeps them
apart. `UnitLength` compares the shape of environments and ignores their density.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar, Self

import numpy as np
from ase import Atoms

from nugget.descriptors.base import Descriptor, Environments, EnvironmentsBase, Jacobian
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered
from nugget.structures.batch import Batch, as_batch
from nugget.structures.neighbours import Pairs, find_pairs


@registered("descriptor")
@dataclass(frozen=True)
class Joined:
    """The features of all parts, concatenated; `SumKernel` separates them again."""

    name: ClassVar[str] = "joined"
    parts: tuple[Descriptor, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "parts", tuple(self.parts))
        if not self.parts or any(part.species != self.species for part in self.parts):
            raise NuggetError(
                f"Joined descriptors have species {[part.species for part in self.parts]}; give at "
                "least one part, and the same species to all."
            )

    @property
    def species(self) -> tuple[str, ...]:
        return self.parts[0].species

    @property
    def cutoff(self) -> float:
        return max(part.cutoff for part in self.parts)

    @property
    def n_features(self) -> int:
        return sum(self.widths)

    @property
    def widths(self) -> tuple[int, ...]:
        """Numbers of features of the parts."""
        return tuple(part.n_features for part in self.parts)

    def compute(
        self,
        images: Sequence[Atoms] | Atoms | Batch,
        pairs: Pairs | None = None,
        *,
        strict: bool = True,
    ) -> JoinedEnvironments:
        """Features of every atom of every structure."""
        batch = as_batch(images)
        if pairs is None:
            pairs = find_pairs(batch, self.cutoff)
        return JoinedEnvironments(
            tuple(part.compute(batch, pairs, strict=strict) for part in self.parts)
        )


class _Combined(EnvironmentsBase):
    """Environments of the atoms of `parts`, environments by other descriptors."""

    parts: tuple[Environments, ...]

    @property
    def batch(self) -> Batch:
        return self.parts[0].batch

    @property
    def pairs(self) -> Pairs:
        return self.parts[0].pairs

    @property
    def species(self) -> Ints:
        return self.parts[0].species

    @property
    def has_coincident(self) -> bool:
        return any(part.has_coincident for part in self.parts)

    @property
    def coincident(self) -> Ints:
        return np.unique(np.concatenate([part.coincident for part in self.parts]))

    def select(self, structures: Ints) -> Self:
        """The environments of these structures alone."""
        return type(self)(tuple(part.select(structures) for part in self.parts))  # type: ignore[call-arg]


@dataclass(frozen=True, eq=False)
class JoinedEnvironments(_Combined):
    """Environments of the same atoms by several descriptors."""

    parts: tuple[Environments, ...]

    @cached_property
    def values(self) -> Floats:
        return np.concatenate([part.values for part in self.parts], axis=1)

    def _pull(self, stacked: Floats) -> tuple[Floats, Floats]:
        shares = np.split(stacked, np.cumsum([p.values.shape[1] for p in self.parts])[:-1], axis=-1)
        gradients = [
            part.pullback_strain(np.ascontiguousarray(share))
            for part, share in zip(self.parts, shares, strict=True)
        ]
        positions, strain = gradients[0]
        for more_positions, more_strain in gradients[1:]:
            positions, strain = positions + more_positions, strain + more_strain
        return positions, strain

    def jacobian(self) -> Jacobian:
        """All pairs of the longest range; a part has zeros beyond its own cutoff."""
        jacobians = [part.jacobian() for part in self.parts]
        longest = max(jacobians, key=lambda j: len(j.centre))
        order = _order(longest)
        values = np.zeros((len(longest.centre), 3, self.values.shape[1]))
        start = 0
        for j in jacobians:
            end = start + j.values.shape[2]
            values[order[_where(longest, order, j)], :, start:end] = j.values
            start = end
        return Jacobian(longest.centre, longest.neighbour, longest.vector, values)


def _keys(j: Jacobian) -> Floats:
    """Columns that identify a directed pair: centre, neighbour, vector."""
    return np.column_stack([j.centre, j.neighbour, j.vector])


def _order(j: Jacobian) -> Ints:
    return np.lexsort(_keys(j).T[::-1])


def _where(longest: Jacobian, order: Ints, j: Jacobian) -> Ints:
    """Positions of the pairs of j in `order`; equal pairs have vectors of equal bits."""
    everything = np.ascontiguousarray(_keys(longest)[order])
    mine = _keys(j)
    if len(mine) == len(everything):
        return np.argsort(_order(j))
    kind = np.dtype([("", float)] * mine.shape[1])
    rows: Ints = np.searchsorted(
        everything.view(kind).ravel(), np.ascontiguousarray(mine).view(kind).ravel()
    )
    return rows


@registered("descriptor")
@dataclass(frozen=True)
class UnitLength:
    """x̂ = x/|x| of another descriptor, whose features must not vanish (SOAP's never do)."""

    name: ClassVar[str] = "unit-length"
    inner: Descriptor

    @property
    def species(self) -> tuple[str, ...]:
        return self.inner.species

    @property
    def cutoff(self) -> float:
        return self.inner.cutoff

    @property
    def n_features(self) -> int:
        return self.inner.n_features

    def compute(
        self,
        images: Sequence[Atoms] | Atoms | Batch,
        pairs: Pairs | None = None,
        *,
        strict: bool = True,
    ) -> UnitEnvironments:
        """Features of every atom of every structure."""
        return UnitEnvironments((self.inner.compute(images, pairs, strict=strict),))


@dataclass(frozen=True, eq=False)
class UnitEnvironments(_Combined):
    """Environments with features of unit length; the only part has those of any length."""

    parts: tuple[Environments]

    @cached_property
    def _length(self) -> Floats:
        x = self.parts[0].values
        return np.sqrt(np.einsum("if,if->i", x, x))

    @cached_property
    def values(self) -> Floats:
        return np.ascontiguousarray(self.parts[0].values / self._length[:, None])

    def _pull(self, stacked: Floats) -> tuple[Floats, Floats]:
        """∂/∂x = (1 − x̂x̂ᵀ)/|x| ∂/∂x̂."""
        along = np.einsum("...if,if->...i", stacked, self.values)[..., None]
        grad = (stacked - along * self.values) / self._length[:, None]
        return self.parts[0].pullback_strain(grad)

    def jacobian(self) -> Jacobian:
        j = self.parts[0].jacobian()
        x = self.values[j.centre]
        along = np.einsum("pcf,pf->pc", j.values, x)
        values = j.values - along[:, :, None] * x[:, None, :]
        values /= self._length[j.centre][:, None, None]
        return Jacobian(j.centre, j.neighbour, j.vector, values)
