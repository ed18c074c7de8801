"""What is believed before any data: the mean function. The Gaussian process learns the difference.

A prior is fitted once, on the first training set, and then stays as it is, so that labels added
later are measured from the same zero.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol

import numpy as np
from ase import Atoms

from nugget import registry
from nugget._compiled.arrays import Floats
from nugget.structures._loops import structure_sums
from nugget.structures.batch import Batch, as_batch
from nugget.structures.neighbours import Pairs


@dataclass(frozen=True, eq=False)
class PriorValues:
    """A prior on a batch: energies of the atoms, and their total's derivatives."""

    energies: Floats  # (N,) per atom
    gradient: Floats | None = None  # (N, 3) by positions; None where there is none
    strain: Floats | None = None  # (B, 3, 3) by strain

    def totals(self, batch: Batch) -> Floats:
        """Energies of the structures (B,)."""
        found: Floats = structure_sums(self.energies, batch.offsets)
        return found

    def __add__(self, other: PriorValues) -> PriorValues:
        return PriorValues(
            self.energies + other.energies,
            _plus(self.gradient, other.gradient),
            _plus(self.strain, other.strain),
        )


def _plus(a: Floats | None, b: Floats | None) -> Floats | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


class Prior(Protocol):
    """A mean function: a frozen dataclass of plain settings with these methods."""

    @property
    def learns(self) -> bool:
        """Whether `fit` takes anything from the training energies."""

    def fit(self, batch: Batch, energies: Floats) -> Prior:
        """The prior made definite by training energies (or itself, if it learns nothing)."""

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        """Values and derivatives; `pairs`, if given, reach at least as far as the cutoff."""


class FixedPrior(ABC):
    """A prior that takes nothing from data: inherit from this and write `evaluate`."""

    learns: ClassVar[bool] = False

    def fit(self, batch: Batch, energies: Floats) -> Any:
        return self

    @abstractmethod
    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        """Values and derivatives; see `Prior`."""

    def __call__(self, images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        """As a surface to relax on: values and gradients."""
        batch = as_batch(images)
        found = self.evaluate(batch)
        gradient = np.zeros_like(batch.positions) if found.gradient is None else found.gradient
        return found.totals(batch), batch.split(gradient)

    def on_cells(self, batch: Batch, pairs: Pairs | None = None) -> tuple[Floats, Floats, Floats]:
        """As a surface for crystals: values, gradients by positions, derivatives by strain."""
        found = self.evaluate(batch, pairs)
        assert found.gradient is not None
        assert found.strain is not None
        return found.totals(batch), found.gradient, found.strain


@registry.registered("prior")
@dataclass(frozen=True)
class SumPrior:
    """Several priors added up; each is fitted to what those before it leave over."""

    name: ClassVar[str] = "sum"
    learns: ClassVar[bool] = True
    parts: tuple[Prior, ...]

    def fit(self, batch: Batch, energies: Floats) -> SumPrior:
        fitted: list[Prior] = []
        # Those that learn from data come last, so that they see what remains.
        for part in sorted(self.parts, key=lambda part: part.learns):
            rest = energies - sum((p.evaluate(batch).totals(batch) for p in fitted), 0.0)
            fitted.append(part.fit(batch, rest))
        return SumPrior(tuple(fitted))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        total = PriorValues(np.zeros(len(batch.positions)))
        for part in self.parts:
            total = total + part.evaluate(batch, pairs)
        return total


def prior_settings(prior: Any) -> dict[str, Any]:
    """A prior as plain data, for model files; sums are lists of their parts."""
    return registry.settings_of("prior", prior)


def prior_from_settings(settings: dict[str, Any]) -> Any:
    """The inverse of `prior_settings`."""
    return registry.from_settings("prior", settings)


def as_prior(prior: Prior | Sequence[Prior] | None) -> Prior:
    """One prior from one, several or none (species energies)."""
    if prior is None:
        return registry.make("prior", "species")
    return SumPrior(tuple(prior)) if isinstance(prior, Sequence) else prior
