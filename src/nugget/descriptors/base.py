"""The contract of descriptors: features of every atom's local environment, and their derivatives.

A descriptor is a frozen dataclass with `species`, `cutoff`, `n_features` and `compute`, which
returns the features of a batch as `Environments`. A new descriptor may derive its environments from
`PairEnvironments` and write only the Jacobian, pair by pair. `SOAP` shows a backward pass without a
Jacobian.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol, Self

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers, chemical_symbols

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs


class Descriptor(Protocol):
    """Settings of a descriptor."""

    @property
    def species(self) -> tuple[str, ...]:
        """Chemical symbols that may occur."""

    @property
    def cutoff(self) -> float:
        """Radius of an environment in Å; an atom that crosses it does not change the features."""

    @property
    def n_features(self) -> int:
        """Length f of a feature vector."""

    def compute(
        self,
        images: Sequence[Atoms] | Atoms | Batch,
        pairs: Pairs | None = None,
        *,
        strict: bool = True,
    ) -> Environments:
        """Features of every atom of every structure.

        `pairs` may come from a Verlet list, which reaches further than the cutoff. Coincident atoms
        are an error unless `strict` is False; `Environments.coincident` then names the structures.
        """


class Environments(Protocol):
    """Features of all atoms of a batch, one row per atom."""

    @property
    def batch(self) -> Batch: ...

    @property
    def pairs(self) -> Pairs: ...

    @property
    def values(self) -> Floats:
        """Features (n, f)."""

    @property
    def species(self) -> Ints:
        """Index of each row's central species among `Descriptor.species` (n,)."""

    @property
    def owner(self) -> Ints:
        """Structure of each row (n,)."""

    @property
    def has_coincident(self) -> bool:
        """Whether a structure has coincident atoms."""

    @property
    def coincident(self) -> Ints:
        """The structures with coincident atoms."""

    def pullback(self, grad: Floats) -> Floats:
        """Gradient of Σ grad·values by positions: (n, f) → (n, 3); a leading axis stays."""

    def pullback_strain(self, grad: Floats) -> tuple[Floats, Floats]:
        """Gradients by positions and by the strain of each structure, (n, 3) and (B, 3, 3)."""

    def select(self, structures: Ints) -> Self:
        """The environments of these structures alone."""

    def jacobian(self) -> Jacobian:
        """Derivatives pair by pair. Large; used to fit forces, not to predict."""


@dataclass(frozen=True, eq=False)
class Jacobian:
    """Derivatives of the features of `centre` by the position of `neighbour`.

    The derivative by the position of `centre` is the negative sum over its neighbours.
    """

    centre: Ints  # (P,)
    neighbour: Ints  # (P,)
    vector: Floats  # (P, 3) from the centre to the neighbour
    values: Floats  # (P, 3, f)


class EnvironmentsBase:
    """What follows from `batch`, `values` and `_pull`, the backward pass of several gradients."""

    @property
    def owner(self: Any) -> Ints:
        """Structure of each row (n,)."""
        owner: Ints = self.batch.owner
        return owner

    def pullback(self, grad: Floats) -> Floats:
        """Gradient of Σ grad·values by positions: (n, f) → (n, 3); a leading axis stays."""
        return self.pullback_strain(grad)[0]

    def pullback_strain(self: Any, grad: Floats) -> tuple[Floats, Floats]:
        """Gradients by positions and by the strain of each structure, (n, 3) and (B, 3, 3)."""
        single = grad.ndim == 2
        stacked = np.ascontiguousarray(grad[None] if single else grad, dtype=np.float64)
        if stacked.shape[1:] != self.values.shape:
            raise NuggetError(
                f"A gradient of shape {grad.shape} does not fit features of {self.values.shape}."
            )
        positions, strain = self._pull(stacked)
        return (positions[0], strain[0]) if single else (positions, strain)


@dataclass(frozen=True, eq=False)
class PairEnvironments(EnvironmentsBase):
    """Environments whose derivatives all follow from their Jacobian."""

    descriptor: Descriptor
    batch: Batch
    pairs: Pairs
    species: Ints
    values: Floats

    has_coincident = False

    def jacobian(self) -> Jacobian:
        raise NotImplementedError

    @property
    def coincident(self) -> Ints:
        """Always empty, because `compute` refuses coincident atoms."""
        return np.zeros(0, dtype=np.int64)

    def _pull(self, stacked: Floats) -> tuple[Floats, Floats]:
        j = self.jacobian()
        along = np.einsum("rpf,pcf->rpc", stacked[:, j.centre], j.values)  # by the pair's vector
        positions = np.zeros((len(stacked), len(self.values), 3))
        strain = np.zeros((len(stacked), len(self.batch), 3, 3))
        for r, pull in enumerate(along):
            np.add.at(positions[r], j.neighbour, pull)
            np.subtract.at(positions[r], j.centre, pull)
            outer = pull[:, :, None] * j.vector[:, None, :]
            np.add.at(strain[r], self.owner[j.centre], outer)
        return positions, strain

    def select(self, structures: Ints) -> Environments:
        """The environments of these structures alone, computed again."""
        pairs = self.pairs.select(self.batch, structures)
        return self.descriptor.compute(self.batch.select(structures), pairs)


def ordered_species(species: str | Sequence[str], owner: str) -> tuple[str, ...]:
    """Unique chemical symbols by atomic number; anything else is an error."""
    symbols = (species,) if isinstance(species, str) else tuple(species)
    unknown = [s for s in symbols if s not in atomic_numbers or s == "X"]
    if unknown or not symbols:
        raise NuggetError(f"{owner} species {list(symbols)}: give chemical symbols, as ['Au'].")
    return tuple(sorted(set(symbols), key=lambda s: int(atomic_numbers[s])))


def species_index(species: Sequence[str]) -> Ints:
    """Atomic number → index among the species, −1 if it is not among them (119,)."""
    index = np.full(len(chemical_symbols), -1, dtype=np.int64)
    index[[atomic_numbers[s] for s in species]] = np.arange(len(species))
    return index


def central_species(batch: Batch, species: Sequence[str]) -> Ints:
    """Species index of every atom of a batch (n,); other elements are an error."""
    index = species_index(species)[batch.numbers]
    if (index < 0).any():
        refuse_element(batch, int(np.argmax(index < 0)), species)
    return index


def refuse_element(batch: Batch, atom: int, species: Sequence[str]) -> NoReturn:
    """Raise the error about an atom whose element is not among the species."""
    s = int(np.searchsorted(batch.offsets, atom, side="right")) - 1
    raise NuggetError(
        f"Structure {batch.first + s}, atom {atom - batch.offsets[s]}: element "
        f"{chemical_symbols[batch.numbers[atom]]} is not among {list(species)}; "
        "add it to the descriptor's species."
    )
