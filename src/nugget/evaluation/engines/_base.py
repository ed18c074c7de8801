"""What an engine is, whatever code stands behind it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.errors import NuggetError
from nugget.evaluation.engines._box import Boxed

Options = Mapping[str, Any]


@dataclass(frozen=True)
class Electrons:
    """Charge and spin of a calculation, in words that hold for every engine.

    charge : total charge in e.
    spin : multiplicity 2S + 1; None leaves it to the engine.
    magmoms : initial magnetic moments by element, μB per atom.
    """

    charge: int = 0
    spin: int | None = None
    magmoms: Mapping[str, float] = field(default_factory=dict)


#: Adds charge and spin to an engine's options, in that engine's own words.
SetElectrons = Callable[[Options, Electrons], dict[str, Any]]


def option_names(charge: str | None, spin: str | None) -> SetElectrons:
    """For engines that have one option for the charge and one for the multiplicity."""

    def add(options: Options, electrons: Electrons) -> dict[str, Any]:
        new = dict(options)
        for name, option, value, unset in (
            ("charge", charge, electrons.charge, 0),
            ("spin", spin, electrons.spin, None),
        ):
            if value == unset:
                continue
            if option is None:
                raise NuggetError(f"it takes no {name}")
            new.setdefault(option, value)
        return new

    return add


@dataclass(frozen=True)
class Engine:
    """A named source of energies and forces.

    module : must be importable; None: nothing beyond what nugget needs.
    unavailable : says in a few words what is missing for these options, None if nothing is.
    settings : the options that it takes, for the table of engines.
    electrons : how charge and spin are passed on; None if the engine knows neither.
    magmoms : does it use initial magnetic moments?
    vacuum : Å around structures without a cell, for codes that need one.
    code : options that name a program or a file with code; see `nugget.evaluation.trust`.
    one_k_point : the option that repeats small cells, of codes that know the Γ point only.
    cheap : does it answer within about a second? Then searches think less before they ask it.
    explain : reads in the directory of a calculation that raised an error why it did: whether it
        did not converge, and the program's own words; None if it finds nothing.
    forgetful : options with which a calculator that is reset keeps nothing of what it calculated.
    """

    name: str
    description: str
    factory: Callable[..., Calculator]
    module: str | None = None
    how_to_install: str = ""
    unavailable: Callable[[Options], str | None] | None = None
    settings: str = ""
    electrons: SetElectrons | None = None
    magmoms: bool = False
    vacuum: float | None = None
    code: tuple[str, ...] = ()
    one_k_point: str | None = None
    cheap: bool = False
    explain: Callable[[Path], tuple[bool, str] | None] | None = None
    forgetful: Options = field(default_factory=dict)

    def missing(self, options: Options | None = None) -> str | None:
        """Why it cannot run here, in a few words; None if it can. Imports no engine."""
        if self.module is not None and not _importable(self.module):
            return f"the Python module {self.module} is not installed"
        if self.unavailable is not None:
            return self.unavailable(options or {})
        return None

    def installed(self) -> bool:
        """Can it run here? Looks for modules and programs without starting them."""
        return self.missing() is None

    def require(self, options: Options | None = None) -> None:
        """Raise NuggetError if it cannot run here."""
        if (reason := self.missing(options)) is not None:
            hint = f" To install it: {self.how_to_install}" if self.how_to_install else ""
            raise NuggetError(f"engine {self.name!r} is not installed: {reason}.{hint}")

    def full_options(self, options: Options, electrons: Electrons) -> dict[str, Any]:
        """The options with charge and spin in this engine's words; NuggetError if it has none."""
        if electrons.magmoms and not self.magmoms:
            raise NuggetError(f"engine {self.name!r} knows no magnetic moments: leave magmoms out.")
        if not electrons.charge and electrons.spin is None:
            return dict(options)
        add = self.electrons or option_names(None, None)
        try:
            return add(options, electrons)
        except NuggetError as error:
            raise NuggetError(
                f"engine {self.name!r} cannot do this: {error}. Leave engine.charge and "
                "engine.spin out, or choose another engine."
            ) from None

    def calculator(
        self,
        electrons: Electrons | None = None,
        vacuum: float | None = None,
        /,
        **options: Any,
    ) -> Calculator:
        """A fresh ASE calculator; options go to the factory."""
        self.require(options)
        options = self.full_options(options, electrons or Electrons())
        try:
            inspect.signature(self.factory).bind(**options)
        except TypeError as error:
            raise NuggetError(
                f"engine {self.name!r} does not take options {sorted(options)}: {error}."
            ) from error
        made = self.factory(**options)
        if not callable(getattr(made, "get_potential_energy", None)):
            raise NuggetError(
                f"engine {self.name!r} gave {type(made).__name__}, which is not an ASE calculator: "
                "its function must return an object with get_potential_energy and get_forces."
            )
        box = self.vacuum if vacuum is None else vacuum
        return made if box is None else Boxed(made, box)


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # the parent package of a dotted name is missing or broken
        return False
