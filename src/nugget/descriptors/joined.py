"""Several descriptors side by side: a short and a long range, each with a basis of its own."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.descriptors.base import Descriptor, Environments, Jacobian
from nugget.errors import NuggetError
from nugget.registry import registered
from nugget.structures.batch import Batch, as_batch
from nugget.structures.neighbours import Pairs, find_pairs


@registered("descriptor")
@dataclass(frozen=True)
class Joined:
    """The features of all parts, one after the other; `SumKernel` takes them apart again."""

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
        made = tuple(part.compute(batch, pairs, strict=strict) for part in self.parts)
        return JoinedEnvironments(made)


@dataclass(frozen=True, eq=False)
class JoinedEnvironments:
    """Environments of the same atoms by several descriptors."""

    parts: tuple[Environments, ...]

    @cached_property
    def values(self) -> Floats:
        return np.concatenate([part.values for part in self.parts], axis=1)

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
    def owner(self) -> Ints:
        return self.parts[0].owner

    @property
    def has_coincident(self) -> bool:
        return any(part.has_coincident for part in self.parts)

    @property
    def coincident(self) -> Ints:
        return np.unique(np.concatenate([part.coincident for part in self.parts]))

    def pullback(self, grad: Floats) -> Floats:
        """Gradient of Σ grad·values by positions: (n, f) → (n, 3); a leading axis stays."""
        return self.pullback_strain(grad)[0]

    def pullback_strain(self, grad: Floats) -> tuple[Floats, Floats]:
        """Gradients by positions and by the strain of each structure, (n, 3) and (B, 3, 3)."""
        if grad.shape[-1] != self.values.shape[1]:
            raise NuggetError(
                f"A gradient of shape {grad.shape} does not fit features of {self.values.shape}."
            )
        shares = np.split(grad, np.cumsum([p.values.shape[1] for p in self.parts])[:-1], axis=-1)
        found = [
            part.pullback_strain(np.ascontiguousarray(share))
            for part, share in zip(self.parts, shares, strict=True)
        ]
        positions, strain = found[0]
        for more_positions, more_strain in found[1:]:
            positions, strain = positions + more_positions, strain + more_strain
        return positions, strain

    def select(self, structures: Ints) -> JoinedEnvironments:
        """The environments of these structures alone."""
        return JoinedEnvironments(tuple(part.select(structures) for part in self.parts))

    def jacobian(self) -> Jacobian:
        """All pairs of the longest range; pairs beyond a part's own cutoff have zeros there."""
        made = [part.jacobian() for part in self.parts]
        longest = max(made, key=lambda j: len(j.centre))
        order = _order(longest)
        values = np.zeros((len(longest.centre), 3, self.values.shape[1]))
        start = 0
        for j in made:
            end = start + j.values.shape[2]
            values[order[_where(longest, order, j)], :, start:end] = j.values
            start = end
        return Jacobian(longest.centre, longest.neighbour, longest.vector, values)


def _keys(j: Jacobian) -> Floats:
    """Columns by which a directed pair is told from all others: centre, neighbour, vector."""
    return np.column_stack([j.centre, j.neighbour, j.vector])


def _order(j: Jacobian) -> Ints:
    return np.lexsort(_keys(j).T[::-1])


def _where(longest: Jacobian, order: Ints, j: Jacobian) -> Ints:
    """Where the pairs of j stand in `order`: vectors come from the same sums, bit for bit."""
    everything = np.ascontiguousarray(_keys(longest)[order])
    mine = _keys(j)
    if len(mine) == len(everything):
        return np.argsort(_order(j))
    kind = np.dtype([("", float)] * mine.shape[1])
    rows: Ints = np.searchsorted(
        everything.view(kind).ravel(), np.ascontiguousarray(mine).view(kind).ravel()
    )
    return rows
