"""Ranges of numbers of atoms and of chemical potentials, as settings write them.

The chemical potential of an element is μ = Σ c_j E_j + Δμ, where a *reservoir* such as "1/2 O2" or
"H2O - H2" names the species j with coefficients c_j. Δμ has a given range, or it follows from
temperature and partial pressures, Δμ = Σ c_j (μ_j(T, p_j) − E_j) (see `thermochemistry`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from ase.data import atomic_numbers
from ase.formula import Formula

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.systems.thermochemistry import find_gas, gas_potential

Range = tuple[float, float]

#: The largest number of compositions that one search can cover.
MOST = 500

#: Range of Δμ of an element without a given one, eV. No atom is bound more strongly, so that the
#: stable numbers of atoms are those of the convex hull of E(N).
UNLIMITED: Range = (-50.0, 50.0)

#: Molecules that supply an element unless `system.reservoirs` names others.
_MOLECULES = {"H": "H2", "N": "N2", "O": "O2", "F": "F2", "Cl": "Cl2"}

_FORMS = ("atom", "bulk")  # Pt(atom), Pt(bulk)

_TEMPERATURES = 46  # points at which the extremes of Δμ are evaluated


#: The name of the range of the number of all placed atoms in `vary`.
TOTAL = "total"


def parse_vary(text: str) -> dict[str, tuple[int, int]]:
    """The smallest and largest number of atoms of each element, from "O:0-6,H:2".

    The range of all placed atoms together may be limited too, as in "Pd:0-4,Au:0-4,total:0-4".
    """
    counts: dict[str, tuple[int, int]] = {}
    for symbol, value in _pairs(text, ":", "vary", "O:0-6,H:0-2", elements=False):
        if symbol != TOTAL and atomic_numbers.get(symbol, 0) < 1:
            raise NuggetError(f"vary {text!r}: {symbol!r} is not an element.")
        ends = re.fullmatch(r"(\d+)(?:-(\d+))?", value)
        if ends is None:
            raise NuggetError(f"vary: {symbol}:{value} is no range; write {symbol}:0-6.")
        low, high = int(ends[1]), int(ends[2] or ends[1])
        if low > high or high == 0:
            raise NuggetError(f"vary: {symbol}:{value} must rise to 1 or more, as {symbol}:0-6.")
        counts[symbol] = (low, high)
    if not counts.keys() - {TOTAL}:
        raise NuggetError(f"vary {text!r} names no element; write O:0-6,H:0-2.")
    if all(low == high for low, high in counts.values()):
        raise NuggetError(f"vary {text!r} gives one composition; write a formula instead.")
    single = (n for symbol, n in counts.items() if symbol != TOTAL)
    if np.prod([high - low + 1.0 for low, high in single]) > MOST:
        raise NuggetError(f"vary {text!r} gives more than {MOST} compositions; narrow a range.")
    return counts


def largest_formula(vary: str) -> str:
    """The largest composition as a formula."""
    ranges = parse_vary(vary).items()
    return "".join(f"{symbol}{high}" for symbol, (_, high) in ranges if symbol != TOTAL)


def parse_ranges(text: str, setting: str, example: str) -> dict[str, Range]:
    """Ranges of numbers by name, from "O=-3.0:-0.5,H=0"; the ends may have any order."""
    ranges: dict[str, Range] = {}
    for name, value in _pairs(text, "=", setting, example, elements=False):
        ranges[name] = parse_range(value, setting, example)
    return ranges


def parse_range(text: str, setting: str, example: str) -> Range:
    """Two numbers from "300:1200", or one twice from "300"; the smaller first."""
    try:
        ends = sorted(float(part) for part in text.split(":"))
    except ValueError:
        ends = []
    if len(ends) not in (1, 2) or not np.isfinite(ends).all():
        raise NuggetError(f"{setting}: {text!r} is no range of numbers; write {example}.")
    return ends[0], ends[-1]


def _pairs(
    text: str, sign: str, setting: str, example: str, elements: bool = True
) -> list[tuple[str, str]]:
    """Names and values of a list such as "O:0-6,H:0-2", each name once."""
    pairs: list[tuple[str, str]] = []
    for part in text.split(","):
        name, found, value = (piece.strip() for piece in part.partition(sign))
        if not found or not name or not value:
            raise NuggetError(f"{setting} {text!r} cannot be read; write {example}.")
        if elements and atomic_numbers.get(name, 0) < 1:
            raise NuggetError(f"{setting} {text!r}: {name!r} is not an element.")
        if name in (other for other, _ in pairs):
            raise NuggetError(f"{setting} {text!r} names {name} twice.")
        pairs.append((name, value))
    return pairs


def species_counts(name: str) -> dict[str, int]:
    """Atoms of each element in a species: H2O, Pt(atom), Pt(bulk)."""
    bare, form = split_form(name)
    try:
        counts: dict[str, int] = Formula(bare, strict=True).count()
    except ValueError:
        counts = {}
    if not counts or (form and counts != {bare: 1}):
        raise NuggetError(f"reservoirs: {name!r} is no species; write O2, H2O, Pt(atom), Pt(bulk).")
    return counts


def split_form(name: str) -> tuple[str, str]:
    """A species and its form, as ("Pt", "bulk") of Pt(bulk); molecules have none."""
    match = re.fullmatch(rf"(\w+)\(({'|'.join(_FORMS)})\)", name)
    return (match[1], match[2]) if match else (name, "")


@dataclass(frozen=True)
class Reservoir:
    """The species that supply one atom of an element, with their coefficients."""

    element: str
    terms: tuple[tuple[str, float], ...]

    @classmethod
    def parse(cls, element: str, text: str) -> Reservoir:
        """From "1/2 O2" or "H2O - H2", which must add up to one atom of the element."""
        terms: dict[str, Fraction] = {}
        for sign, factor, name in re.findall(
            r"([+-]?)\s*(\d+(?:/[1-9]\d*)?)?\s*([A-Z][\w()]*)", text
        ):
            coefficient = Fraction(factor or 1) * (-1 if sign == "-" else 1)
            terms[name] = terms.get(name, Fraction(0)) + coefficient
        written = re.sub(r"[+-]?\s*(?:\d+(?:/[1-9]\d*)?)?\s*[A-Z][\w()]*", "", text).strip()
        total: dict[str, Fraction] = {}
        for name, coefficient in terms.items():
            for symbol, n in species_counts(name).items():
                total[symbol] = total.get(symbol, Fraction(0)) + n * coefficient
        if written or {s: n for s, n in total.items() if n} != {element: 1}:
            raise NuggetError(
                f"reservoirs: {text!r} does not add up to one atom of {element}; write 1/2 O2 for "
                "O, or H2O - H2."
            )
        return cls(element, tuple((name, float(c)) for name, c in terms.items() if c))

    @classmethod
    def default(cls, element: str) -> Reservoir:
        """A diatomic molecule, or else the isolated atom."""
        if element in _MOLECULES:
            return cls(element, ((_MOLECULES[element], 0.5),))
        return cls(element, ((f"{element}(atom)", 1.0),))

    def energy(self, energies: Mapping[str, float]) -> float:
        """Σ c_j E_j; species without an energy count as 0."""
        return sum(c * energies.get(name, 0.0) for name, c in self.terms)

    def delta(self, temperature: float, pressures: Mapping[str, float]) -> float:
        """Δμ at a temperature (K) and partial pressures (bar)."""
        return sum(c * gas_potential(name, temperature, pressures[name]) for name, c in self.terms)

    def __str__(self) -> str:
        words = [
            f"{'-' if c < 0 else '+'} {'' if abs(c) == 1 else f'{abs(c):g} '}{name}"
            for name, c in self.terms
        ]
        return " ".join(words).removeprefix("+ ")


@dataclass(frozen=True)
class Conditions:
    """Temperature (K) and partial pressures (bar) that determine chemical potentials."""

    temperature: Range
    pressures: Mapping[str, Range]

    def check(self, reservoir: Reservoir) -> None:
        """Every species of the reservoir must be a tabulated gas with a pressure."""
        for name, _ in reservoir.terms:
            find_gas(name)
            if name not in self.pressures:
                raise NuggetError(
                    f"{reservoir.element} comes from {name}, which has no partial pressure; write "
                    f'partial_pressures = "{name}=1e-10:1" (bar).'
                )

    def range(self, reservoir: Reservoir) -> Range:
        """The smallest and largest Δμ under these conditions, to all pressures' ends."""
        self.check(reservoir)
        smallest, largest = [], []
        for temperature in np.linspace(*self.temperature, _TEMPERATURES):
            favourable = {n: self.pressures[n][c > 0] for n, c in reservoir.terms}
            unfavourable = {n: self.pressures[n][c < 0] for n, c in reservoir.terms}
            largest.append(reservoir.delta(float(temperature), favourable))
            smallest.append(reservoir.delta(float(temperature), unfavourable))
        return min(smallest), max(largest)

    @property
    def varied(self) -> list[str]:
        """The gases whose pressure has a range."""
        return [name for name, (low, high) in self.pressures.items() if low < high]


@dataclass(frozen=True)
class Reservoirs:
    """The elements whose number varies, their reservoirs and ranges of Δμ in eV.

    `energies` are those of the species with the engine of the search.
    """

    reservoirs: tuple[Reservoir, ...]
    ranges: tuple[Range, ...]
    energies: Mapping[str, float]
    conditions: Conditions | None = None

    @property
    def elements(self) -> tuple[str, ...]:
        return tuple(one.element for one in self.reservoirs)

    @property
    def references(self) -> Floats:
        """Σ c_j E_j of each element, eV."""
        return np.array([one.energy(self.energies) for one in self.reservoirs])

    @property
    def needed(self) -> list[str]:
        """Species whose energies are needed but not known."""
        names = [name for one in self.reservoirs for name, _ in one.terms]
        return [name for name in dict.fromkeys(names) if name not in self.energies]


def make_reservoirs(
    vary: str,
    chemical_potential: str | None = None,
    reservoirs: str | None = None,
    energies: Mapping[str, float] | None = None,
    temperature: str | None = None,
    partial_pressures: str | None = None,
) -> Reservoirs:
    """The reservoirs that settings describe; the arguments are those of `SystemConfig`."""
    varied = parse_vary(vary).items()
    elements = [symbol for symbol, (low, high) in varied if low < high and symbol != TOTAL]
    written = dict(_pairs(reservoirs, "=", "reservoirs", "O=1/2 O2")) if reservoirs else {}
    example = "O=-3.0:-0.5"
    given = (
        parse_ranges(chemical_potential, "chemical_potential", example)
        if chemical_potential
        else {}
    )
    for setting, names in (("reservoirs", written), ("chemical_potential", given)):
        if stray := [name for name in names if name not in elements]:
            raise NuggetError(f"{setting}: the number of {stray[0]} atoms does not vary.")
    conditions = _conditions(temperature, partial_pressures)
    chosen, ranges = [], []
    for symbol in elements:
        text = written.get(symbol)
        one = Reservoir.default(symbol) if text is None else Reservoir.parse(symbol, text)
        chosen.append(one)
        if symbol in given:
            ranges.append(given[symbol])
        else:
            ranges.append(UNLIMITED if conditions is None else conditions.range(one))
    return Reservoirs(tuple(chosen), tuple(ranges), dict(energies or {}), conditions)


def _conditions(temperature: str | None, partial_pressures: str | None) -> Conditions | None:
    if temperature is None and partial_pressures is None:
        return None
    if temperature is None or partial_pressures is None:
        raise NuggetError(
            "Chemical potentials from a gas need both temperature (K) and partial_pressures (bar), "
            'as "300:1200" and "O2=1e-10:1".'
        )
    pressures = parse_ranges(partial_pressures, "partial_pressures", "O2=1e-10:1")
    if wrong := [name for name, (low, _) in pressures.items() if not low > 0]:
        raise NuggetError(f"partial_pressures: that of {wrong[0]} must be above 0 bar.")
    return Conditions(parse_range(temperature, "temperature", "300:1200"), pressures)


def delta_function(reservoirs: Reservoirs) -> Callable[[float, Mapping[str, float]], Floats] | None:
    """Δμ of all elements as a function of temperature and pressures, if gases supply all."""
    if reservoirs.conditions is None:
        return None
    if any(
        name not in reservoirs.conditions.pressures
        for r in reservoirs.reservoirs
        for name, _ in r.terms
    ):
        return None

    def delta(temperature: float, pressures: Mapping[str, float]) -> Floats:
        return np.array([one.delta(temperature, pressures) for one in reservoirs.reservoirs])

    return delta
