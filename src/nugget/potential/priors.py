"""What is believed before any data: the Gaussian process learns the difference.

A prior is fitted once, on the first training set, and then stays as it is, so that labels added
later are measured from the same zero.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, Protocol

import numpy as np
from ase import Atoms
from ase.data import atomic_numbers, chemical_symbols
from numpy.typing import NDArray

from nugget.errors import NuggetError
from nugget.potential._pair_loops import REACH, REPULSION, WELL, pair_sum
from nugget.structures.batch import Batch, as_batch
from nugget.structures.bonds import RADII
from nugget.structures.neighbours import Pairs, find_pairs

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class PriorValues:
    """A prior on a batch: energies of the atoms, and their total's derivatives."""

    energies: Floats  # (N,) per atom
    gradient: Floats | None = None  # (N, 3) by positions; None where there is none
    strain: Floats | None = None  # (B, 3, 3) by strain

    def __add__(self, other: PriorValues) -> PriorValues:
        return PriorValues(
            self.energies + other.energies,
            _plus(self.gradient, other.gradient),
            _plus(self.strain, other.strain),
        )


class Prior(Protocol):
    """Anything with these three methods can stand before the Gaussian process."""

    def fit(self, batch: Batch, energies: Floats) -> Prior:
        """The prior made definite by training energies (or itself)."""

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        """Values and derivatives; `pairs` reach at least as far as the prior."""

    def settings(self) -> dict[str, Any]:
        """Plain data from which `from_settings` makes the prior again."""


@dataclass(frozen=True)
class SpeciesEnergies:
    """One energy per element, by least squares on the energies per atom.

    Total energies carry large constants (about −108 eV per gold atom in GFN1-xTB) that tell nothing
    about structure.
    """

    energies: tuple[tuple[str, float], ...] | None = None

    def fit(self, batch: Batch, energies: Floats) -> SpeciesEnergies:
        if self.energies is not None:
            return self
        elements = np.unique(batch.numbers)
        counts = np.zeros((len(batch), len(elements)))
        np.add.at(counts, (batch.owner, np.searchsorted(elements, batch.numbers)), 1.0)
        per_atom = 1.0 / batch.sizes
        # Where composition never varies, lstsq takes the smallest solution: as good as any.
        solution = np.linalg.lstsq(counts * per_atom[:, None], energies * per_atom, rcond=1e-10)[0]
        named = zip((chemical_symbols[z] for z in elements), solution.tolist(), strict=True)
        return SpeciesEnergies(tuple(named))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        if self.energies is None:
            raise NuggetError("The species energies are not known yet: fit the prior first.")
        energies = self._table[batch.numbers]
        if math.isnan(energies.sum()):
            atom = int(np.argmax(np.isnan(energies)))
            s = batch.first + int(batch.owner[atom])
            raise NuggetError(
                f"Structure {s}: no training structure contains "
                f"{chemical_symbols[batch.numbers[atom]]}, so its energy is unknown; "
                "add such structures to the training set."
            )
        return PriorValues(energies)

    @cached_property
    def _table(self) -> Floats:
        """Energy by atomic number."""
        table = np.full(len(chemical_symbols), np.nan)
        for symbol, value in self.energies or ():
            table[atomic_numbers[symbol]] = value
        return table

    def settings(self) -> dict[str, Any]:
        return {"kind": "species", "energies": self.energies and [list(e) for e in self.energies]}


@dataclass(frozen=True)
class Repulsion:
    """φ(r) = strength · (r₀/r − 1)³ for r < r₀ = reach · (sum of covalent radii), else 0.

    Keeps atoms apart where there are no data: it rises without limit as atoms meet, and is zero,
    with two continuous derivatives, at the distances that occur in training data.
    """

    strength: float = 10.0
    reach: float = 0.8

    def fit(self, batch: Batch, energies: Floats) -> Repulsion:
        return self

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        return _pair_term(batch, pairs, REPULSION, self.reach, self.strength, 0.0)

    def settings(self) -> dict[str, Any]:
        return {"kind": "repulsion", "strength": self.strength, "reach": self.reach}


@dataclass(frozen=True)
class PairWell:
    """φ(r) = depth · (u² − 2u) · (1 − (r/r_c)²)² with u = e^{−a(r−r₀)}: Morse, cut off softly.

    r₀ = length · (sum of covalent radii), a = stiffness/r₀, r_c = 2.2 r₀. Crude for any element,
    but its minima are compact structures with sensible bonds: a better start than random atoms.
    """

    depth: float = 0.3
    length: float = 1.0
    stiffness: float = 6.0

    def fit(self, batch: Batch, energies: Floats) -> PairWell:
        return self

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        return _pair_term(batch, pairs, WELL, self.length, self.depth, self.stiffness)

    def __call__(self, images: Sequence[Atoms]) -> tuple[Floats, list[Floats]]:
        """As a surface to relax on: values and gradients."""
        batch = as_batch(images)
        found = self.evaluate(batch)
        assert found.gradient is not None
        return _totals(found, batch), batch.split(found.gradient)

    def settings(self) -> dict[str, Any]:
        return {"kind": "well", **asdict(self)}


@dataclass(frozen=True)
class CalculatorPrior:
    """Any ASE calculator as a baseline: the process learns the difference to it (Δ-learning).

    `engine` is a name that `nugget engines` lists or `module:factory`; a name, unlike an object,
    can be written into a model file.
    """

    engine: str
    options: tuple[tuple[str, Any], ...] = ()

    def fit(self, batch: Batch, energies: Floats) -> CalculatorPrior:
        return self

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        from nugget.evaluation.engines import make_calculator

        calculator = make_calculator(self.engine, **dict(self.options))
        energies = np.empty(len(batch.positions))
        gradient = np.empty_like(batch.positions)
        strain = np.zeros((len(batch), 3, 3))
        for s in range(len(batch)):
            rows = slice(batch.offsets[s], batch.offsets[s + 1])
            atoms = Atoms(
                batch.numbers[rows], batch.positions[rows], cell=batch.cells[s], pbc=batch.pbc[s]
            )
            atoms.calc = calculator
            energies[rows] = atoms.get_potential_energy() / len(atoms)
            gradient[rows] = -atoms.get_forces()
            if batch.pbc[s].all():
                strain[s] = atoms.get_stress(voigt=False) * atoms.get_volume()
        return PriorValues(energies, gradient, strain)

    def settings(self) -> dict[str, Any]:
        return {"kind": "calculator", "engine": self.engine, "options": dict(self.options)}


@dataclass(frozen=True)
class SumPrior:
    """Several priors added up; each is fitted to what those before it leave over."""

    parts: tuple[Prior, ...]

    def fit(self, batch: Batch, energies: Floats) -> SumPrior:
        fitted: list[Prior] = []
        # Those that need no data first, so that the species energies see what remains.
        for part in sorted(self.parts, key=lambda part: isinstance(part, SpeciesEnergies)):
            rest = energies - sum((_totals(p.evaluate(batch), batch) for p in fitted), 0.0)
            fitted.append(part.fit(batch, rest))
        return SumPrior(tuple(fitted))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        total = PriorValues(np.zeros(len(batch.positions)))
        for part in self.parts:
            total = total + part.evaluate(batch, pairs)
        return total

    def settings(self) -> dict[str, Any]:
        return {"kind": "sum", "parts": [part.settings() for part in self.parts]}


def from_settings(settings: dict[str, Any]) -> Prior:
    """The prior that `settings()` described."""
    kind = settings["kind"]
    if kind == "species":
        known = settings["energies"]
        return SpeciesEnergies(known and tuple((str(s), float(e)) for s, e in known))
    if kind == "repulsion":
        return Repulsion(settings["strength"], settings["reach"])
    if kind == "well":
        return PairWell(settings["depth"], settings["length"], settings["stiffness"])
    if kind == "calculator":
        return CalculatorPrior(settings["engine"], tuple(settings["options"].items()))
    if kind == "sum":
        return SumPrior(tuple(from_settings(part) for part in settings["parts"]))
    raise NuggetError(f"The prior {kind!r} is unknown to this version of nugget.")


def as_prior(prior: Prior | Sequence[Prior] | None) -> Prior:
    """One prior from one, several or none (species energies)."""
    if prior is None:
        return SpeciesEnergies()
    return SumPrior(tuple(prior)) if isinstance(prior, Sequence) else prior


def _pair_term(
    batch: Batch, pairs: Pairs | None, kind: int, factor: float, height: float, stiffness: float
) -> PriorValues:
    """A sum over pairs whose bond lengths are `factor` times the sums of covalent radii."""
    radii = RADII[batch.numbers] * factor
    if pairs is None:
        pairs = find_pairs(batch, 2 * REACH[kind] * float(radii.max()))
    energies, gradient = np.zeros(len(batch.positions)), np.zeros_like(batch.positions)
    strain = np.zeros((len(batch), 3, 3))
    pair_sum(
        batch.positions, radii, batch.owner, pairs.i, pairs.j, pairs.shift,
        kind, height, stiffness, energies, gradient, strain,
    )  # fmt: skip
    return PriorValues(energies, gradient, strain)


def _plus(a: Floats | None, b: Floats | None) -> Floats | None:
    if a is None or b is None:
        return b if a is None else a
    return a + b


def _totals(values: PriorValues, batch: Batch) -> Floats:
    return np.add.reduceat(values.energies, batch.offsets[:-1])
