"""The mean function: its contract, sums of mean functions, and one energy per element.

The Gaussian process learns the difference between the labels and the mean function. A mean function
is fitted once, to the first training set, and then stays fixed, so that labels added later refer to
the same zero. Model files and entry points call this kind of part "prior".
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers, chemical_symbols

from nugget import registry
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.registry import registered
from nugget.structures.batch import Batch, as_batch
from nugget.structures.neighbour_loops import structure_sums
from nugget.structures.neighbours import Pairs


@dataclass(frozen=True, eq=False)
class MeanValues:
    """A mean function on a batch: energies of the atoms and the derivatives of their sum."""

    energies: Floats  # (N,) per atom
    gradient: Floats | None = None  # (N, 3) by positions; None: zero
    strain: Floats | None = None  # (B, 3, 3) by strain
    std: MeanValues | None = None  # standard deviation of all of these; None: 0

    def totals(self, batch: Batch) -> Floats:
        """Energies of the structures (B,)."""
        totals: Floats = structure_sums(self.energies, batch.offsets)
        return totals

    def __add__(self, other: MeanValues) -> MeanValues:
        return MeanValues(
            self.energies + other.energies,
            _plus(self.gradient, other.gradient),
            _plus(self.strain, other.strain),
            _plus(self.std, other.std),
        )


def _plus(a: Any, b: Any) -> Any:
    if a is None or b is None:
        return b if a is None else a
    return a + b


class MeanFunction(Protocol):
    """A frozen dataclass of plain settings with these methods."""

    @property
    def learns(self) -> bool:
        """Whether `fit` takes anything from the training energies."""

    def fit(self, batch: Batch, energies: Floats) -> MeanFunction:
        """The mean function fitted to training energies (itself, if it learns nothing)."""

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        """Values and derivatives; `pairs`, if given, reach at least as far as the cutoff."""


def relative_error(mean_function: MeanFunction) -> float:
    """Error outside the training set, in units of that of a constant energy per element."""
    return float(getattr(mean_function, "relative_error", 1.0))


def require_energies(mean_function: Any, batch: Batch, energies: Floats) -> None:
    """Raise NuggetError if the energy (B,) of a structure is not a number.

    A mean function that is an engine may fail; its last `failure` is part of the message.
    """
    if math.isfinite(energies.sum()):
        return
    s = int(np.argmin(np.isfinite(energies)))
    parts = getattr(mean_function, "parts", [mean_function])
    reasons = [text for part in parts if (text := getattr(part, "failure", ""))]
    reason = f" ({reasons[0]})" if reasons else ""
    raise NuggetError(
        f"Structure {batch.first + s} has no energy: the mean function of the model fails on "
        f"it{reason}."
    )


class FixedMeanFunction(ABC):
    """Base class of a mean function that learns nothing; a subclass implements `evaluate`."""

    learns: ClassVar[bool] = False

    def fit(self, batch: Batch, energies: Floats) -> Any:
        return self

    @abstractmethod
    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        """Values and derivatives; see `MeanFunction`."""

    def __call__(self, images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        """As a surface to relax on: values and gradients."""
        batch = as_batch(images)
        values = self.evaluate(batch)
        gradient = np.zeros_like(batch.positions) if values.gradient is None else values.gradient
        return values.totals(batch), batch.split(gradient)

    def on_cells(self, batch: Batch, pairs: Pairs | None = None) -> tuple[Floats, Floats, Floats]:
        """As a surface for crystals: values, gradients by positions, derivatives by strain."""
        values = self.evaluate(batch, pairs)
        assert values.gradient is not None
        assert values.strain is not None
        return values.totals(batch), values.gradient, values.strain


@runtime_checkable
class Extends(Protocol):
    """A mean function that can stay zero on further training structures, so that labels agree."""

    def extended(self, batch: Batch) -> MeanFunction:
        """The mean function after learning these structures."""


def extended(mean_function: MeanFunction, batch: Batch) -> MeanFunction:
    """The mean function after learning further structures."""
    return mean_function.extended(batch) if isinstance(mean_function, Extends) else mean_function


@runtime_checkable
class EvaluatesSingly(Protocol):
    """A mean function whose last bits in a batch depend on the other structures of the batch."""

    def evaluate_singly(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        """Values that depend on each structure alone."""


def label_values(
    mean_function: MeanFunction, batch: Batch, pairs: Pairs | None = None
) -> MeanValues:
    """Values to subtract from labels; they do not depend on the other structures of the batch."""
    if isinstance(mean_function, EvaluatesSingly):
        return mean_function.evaluate_singly(batch, pairs)
    return mean_function.evaluate(batch, pairs)


@registry.registered("prior")
@dataclass(frozen=True)
class SumMeanFunction:
    """A sum of mean functions; each is fitted to the remainder of those before it."""

    name: ClassVar[str] = "sum"
    learns: ClassVar[bool] = True
    parts: tuple[MeanFunction, ...]

    @property
    def runs_engine(self) -> bool:
        """Whether a part calls an engine, which takes time."""
        return any(getattr(part, "runs_engine", False) for part in self.parts)

    @property
    def relative_error(self) -> float:
        """That of the best part."""
        return min(relative_error(part) for part in self.parts)

    def fit(self, batch: Batch, energies: Floats) -> SumMeanFunction:
        fitted: list[MeanFunction] = []
        # Parts that learn from data come last and are fitted to the remainder.
        for part in sorted(self.parts, key=lambda part: part.learns):
            rest = energies - sum((label_values(p, batch).totals(batch) for p in fitted), 0.0)
            require_energies(SumMeanFunction(tuple(fitted)), batch, rest)
            fitted.append(part.fit(batch, rest))
        return SumMeanFunction(tuple(fitted))

    def extended(self, batch: Batch) -> SumMeanFunction:
        return SumMeanFunction(tuple(extended(part, batch) for part in self.parts))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        total = MeanValues(np.zeros(len(batch.positions)))
        for part in self.parts:
            total = total + part.evaluate(batch, pairs)
        return total

    def evaluate_singly(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        total = MeanValues(np.zeros(len(batch.positions)))
        for part in self.parts:
            total = total + label_values(part, batch, pairs)
        return total


def mean_function_settings(prior: Any) -> dict[str, Any]:
    """A mean function as plain data, for model files; a sum is the list of its parts."""
    return registry.settings_of("prior", prior)


def mean_function_from_settings(settings: dict[str, Any]) -> Any:
    """The inverse of `mean_function_settings`."""
    return registry.from_settings("prior", settings)


def as_mean_function(prior: MeanFunction | Sequence[MeanFunction] | None) -> MeanFunction:
    """One mean function from one, several (their sum) or None (species energies)."""
    if prior is None:
        return registry.make("prior", "species")
    return SumMeanFunction(tuple(prior)) if isinstance(prior, Sequence) else prior


@registered("prior")
@dataclass(frozen=True)
class SpeciesEnergies:
    """One energy per element, by least squares on the energies per atom.

    Given `energies`, for example of isolated atoms, stay; only missing elements are fitted.
    Total energies carry large constants (about −108 eV per gold atom in GFN1-xTB) that
    carry no information about structure.
    """

    name: ClassVar[str] = "species"
    learns: ClassVar[bool] = True
    energies: tuple[tuple[str, float], ...] | None = None

    def __post_init__(self) -> None:
        if self.energies is not None:
            plain = tuple((str(symbol), float(energy)) for symbol, energy in self.energies)
            object.__setattr__(self, "energies", plain)

    def fit(self, batch: Batch, energies: Floats) -> SpeciesEnergies:
        fixed = self.energies or ()
        given = [atomic_numbers[symbol] for symbol, _ in fixed]
        elements = np.setdiff1d(batch.numbers, given)
        if fixed:
            if not len(elements):
                return self
            energies = energies - np.add.reduceat(
                np.nan_to_num(self.table)[batch.numbers], batch.offsets[:-1]
            )
        counts = np.zeros((len(batch), len(elements)))
        atoms = np.flatnonzero(np.isin(batch.numbers, elements))
        columns = np.searchsorted(elements, batch.numbers[atoms])
        np.add.at(counts, (batch.owner[atoms], columns), 1.0)
        per_atom = 1.0 / batch.sizes
        # For a single composition the solution is not unique; lstsq returns the smallest one.
        solution = np.linalg.lstsq(counts * per_atom[:, None], energies * per_atom, rcond=1e-10)[0]
        named = zip((chemical_symbols[z] for z in elements), solution.tolist(), strict=True)
        return SpeciesEnergies((*fixed, *named))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        if self.energies is None:
            raise NuggetError("The species energies are not fitted yet; call fit first.")
        energies = self.table[batch.numbers]
        if math.isnan(energies.sum()):
            atom = int(np.argmax(np.isnan(energies)))
            s = batch.first + int(batch.owner[atom])
            raise NuggetError(
                f"Structure {s}: no training structure contains "
                f"{chemical_symbols[batch.numbers[atom]]}, so its energy is unknown; "
                "add such structures to the training set."
            )
        return MeanValues(energies)

    @cached_property
    def table(self) -> Floats:
        """Energy by atomic number; NaN for elements outside the training set."""
        table = np.full(len(chemical_symbols), np.nan)
        for symbol, value in self.energies or ():
            table[atomic_numbers[symbol]] = value
        return table


# Names of version 0.2, kept for one release.
Prior = MeanFunction
PriorValues = MeanValues
FixedPrior = FixedMeanFunction
SumPrior = SumMeanFunction
