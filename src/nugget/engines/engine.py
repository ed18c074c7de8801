"""The contract of an engine, and the lookup of engines and their programs.

Engines come from `nugget.engines.programs`, from entry points of other packages, and from
`module:factory`. Programs are searched for in the options, ASE's configuration file, environment
variables and PATH.
"""

from __future__ import annotations

import difflib
import inspect
import os
import pkgutil
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ase.calculators.calculator import Calculator
from ase.config import cfg

from nugget.engines.batched import BatchedModel
from nugget.engines.options import Option, Options, Use, check_options, use_of_undeclared
from nugget.engines.wrappers import Boxed
from nugget.errors import NuggetError

CONFIGURATION = "ASE's configuration (~/.config/ase/config.ini)"


def find_command(
    section: str, options: Options, variables: Sequence[str], programs: Sequence[str]
) -> str | None:
    """The command that starts the code: from the option `command`, ASE's configuration file,
    environment variables, or programs on PATH, in this order."""
    if options.get("command"):
        return str(options["command"])
    configured = cfg.parser.get(section, "command", fallback=None)
    if configured:
        return str(configured)
    for variable in variables:
        if os.environ.get(variable):
            return os.environ[variable]
    return next((name for name in programs if shutil.which(name)), None)


def configured(section: str, key: str, options: Options, variables: Sequence[str]) -> str | None:
    """A setting such as the directory of pseudopotentials, from the same sources."""
    values = [options.get(key), cfg.parser.get(section, key, fallback=None)]
    values += [os.environ.get(variable) for variable in variables]
    return next((str(value) for value in values if value), None)


def needs_command(
    section: str, variables: Sequence[str], programs: Sequence[str]
) -> Callable[[Options], str | None]:
    """The function `unavailable` of engines that need only a program."""

    def unavailable(options: Options) -> str | None:
        command = find_command(section, options, variables, programs)
        if command is None:
            missing = [f"no program {' or '.join(programs)} on PATH"] if programs else []
            missing.append(f"no environment variable {' or '.join(variables)}")
            missing.append(f"no command in section [{section}] of {CONFIGURATION}")
            return ", ".join(missing)
        first = next((word for word in shlex.split(command) if "=" not in word), "")
        if shutil.which(first) is None:
            if "/" in first:
                return f"{first} does not exist or is not executable"
            return f"the program {first} of its command {command!r} is not on PATH"
        return None

    return unavailable


def merged(defaults: Options, changes: Options) -> dict[str, Any]:
    """Nested settings with `changes` applied to `defaults`, table by table."""
    new = dict(defaults)
    for key, value in changes.items():
        old = new.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        new[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return new


@dataclass(frozen=True)
class Electrons:
    """Charge and spin of a calculation, independent of the engine.

    charge : total charge in e.
    spin : multiplicity 2S + 1; None for the default of the engine.
    magmoms : initial magnetic moments by element, μB per atom.
    """

    charge: int = 0
    spin: int | None = None
    magmoms: Mapping[str, float] = field(default_factory=dict)

    def check_spin(self, numbers: Iterable[int]) -> None:
        """Raise NuggetError if a molecule or cluster of these elements cannot have this spin.

        Skipped for f elements, of which some engines treat f electrons as core.
        """
        numbers = [int(z) for z in numbers]
        if self.spin is None or any(58 <= z <= 71 or 90 <= z <= 103 for z in numbers):
            return
        electrons = sum(numbers) - self.charge
        if self.spin - 1 > electrons or (electrons - self.spin + 1) % 2:
            kind = "even" if electrons % 2 else "odd"
            raise NuggetError(
                f"spin = {self.spin} is impossible for {electrons} electrons: their multiplicity "
                f"2S + 1 is {kind}. Change engine.spin or engine.charge."
            )


#: Adds charge and spin to the options of an engine, under the names that it uses.
SetElectrons = Callable[[Options, Electrons], dict[str, Any]]


def option_names(charge: str | None, spin: str | None) -> SetElectrons:
    """For engines with one option for the charge and one for the multiplicity."""

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

    module : Python module that must be installed, if any.
    unavailable : what is missing with these options, in a few words; None if nothing is.
    settings : the options that it takes, for the table of engines.
    electrons : passes charge and spin on; None if the engine supports neither.
    magmoms : whether it uses initial magnetic moments.
    vacuum : Å around structures without a cell, for codes that need one.
    options : all options by name, see `nugget.engines.options`; others need trust in a file. An
        engine of another package may leave this out.
    code : in that case, options that name a program or a file with code.
    check : raises NuggetError for options that the engine would not understand.
    one_k_point : the option that repeats small cells, for codes limited to the Γ point.
    cheap : whether it takes at most about a second; searches then spend less time per evaluation.
    explain : reads from the directory of a calculation that raised an error whether it did not
        converge, and the program's error message; None if there is none.
    forgetful : options with which a calculator keeps no state after a reset.
    batched : factory of a model that evaluates many structures in one call, with the same options
        as `factory`; None if there is none.
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
    options: Mapping[str, Option] | Callable[[], Mapping[str, Option]] | None = None
    code: tuple[str, ...] = ()
    check: Callable[[Options], None] | None = None
    one_k_point: str | None = None
    cheap: bool = False
    explain: Callable[[Path], tuple[bool, str] | None] | None = None
    forgetful: Options = field(default_factory=dict)
    batched: Callable[..., BatchedModel] | None = None
    load: Callable[[], Any] | None = None  # of an entry point: imports the engine or its factory

    @cached_property
    def table(self) -> Mapping[str, Option] | None:
        """The declared options by name; None if the engine declares none."""
        return self.options() if callable(self.options) else self.options

    def use_of(self, name: str, value: Any) -> Use:
        """What an option with this value may do."""
        if name in self.code:
            return Use.CODE
        if self.table is None:
            return use_of_undeclared(name, value)
        return self.table[name].use_of(value) if name in self.table else Use.CODE

    def check_options(self, options: Options) -> None:
        """Refuse options with wrong values; see `nugget.engines.options.check_options`."""
        table = {} if self.table is None else dict(self.table)
        declared = {name: Option(Use.CODE, (object,)) for name in self.code}
        check_options(self.name, options, {**declared, **table})
        if self.check is not None:
            self.check(options)

    def missing(self, options: Options | None = None) -> str | None:
        """Why it cannot run here, in a few words; None if it can. Does not import the engine."""
        if self.module is not None and not _importable(self.module):
            return f"the Python module {self.module} is not installed"
        if self.unavailable is not None:
            return self.unavailable(options or {})
        return None

    def installed(self) -> bool:
        """Whether its modules and programs are installed."""
        return self.missing() is None

    def require(self, options: Options | None = None) -> None:
        """Raise NuggetError if it cannot run here."""
        if (reason := self.missing(options)) is not None:
            hint = f" To install it: {self.how_to_install}" if self.how_to_install else ""
            raise NuggetError(f"engine {self.name!r} is not installed: {reason}.{hint}")

    def full_options(self, options: Options, electrons: Electrons) -> dict[str, Any]:
        """The options with charge and spin; NuggetError if the engine does not support them."""
        self.check_options(options)
        if electrons.magmoms and not self.magmoms:
            raise NuggetError(f"engine {self.name!r} takes no magnetic moments; remove magmoms.")
        if not electrons.charge and electrons.spin is None:
            return dict(options)
        add = self.electrons or option_names(None, None)
        try:
            return add(options, electrons)
        except NuggetError as error:
            raise NuggetError(
                f"engine {self.name!r}: {error}. Remove engine.charge and engine.spin, or choose "
                "another engine."
            ) from None

    def calculator(
        self,
        electrons: Electrons | None = None,
        vacuum: float | None = None,
        /,
        **options: Any,
    ) -> Calculator:
        """A fresh ASE calculator; options go to the factory."""
        options = self._checked(self.batched or self.factory, options, electrons or Electrons())
        calculator = self.factory(**options)
        if not callable(getattr(calculator, "get_potential_energy", None)):
            raise NuggetError(
                f"engine {self.name!r} gave {type(calculator).__name__}, which is not an ASE "
                "calculator: it must have get_potential_energy and get_forces."
            )
        box = self.vacuum if vacuum is None else vacuum
        return calculator if box is None else Boxed(calculator, box)

    def batched_model(self, **options: Any) -> BatchedModel:
        """A model that evaluates many structures in one call."""
        if self.batched is None:
            raise NuggetError(f"engine {self.name!r} evaluates one structure at a time.")
        return self.batched(**self._checked(self.batched, options, Electrons()))

    def _checked(
        self, factory: Callable[..., Any], options: Options, electrons: Electrons
    ) -> dict[str, Any]:
        """All options of the factory; NuggetError if the engine or an option is missing."""
        self.require(options)
        options = self.full_options(options, electrons)
        try:
            inspect.signature(factory).bind(**options)
        except TypeError as error:
            raise NuggetError(
                f"engine {self.name!r} does not take options {sorted(options)}: {error}."
            ) from error
        return options


def _importable(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except (ImportError, ValueError):  # the parent package of a dotted name is missing or broken
        return False


DEFAULT = "gfn1-xtb"

ENTRY_POINTS = "nugget.engines"


@cache
def engines() -> dict[str, Engine]:
    """All named engines: the built-in ones, then those of other packages."""
    package = import_module("nugget.engines.programs")
    named: dict[str, Engine] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            family = import_module(f"{package.__name__}.{module.name}").ENGINES
            named.update({engine.name: engine for engine in family})
    named = dict(sorted(named.items(), key=lambda item: item[0] != DEFAULT))
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name in named:
            raise NuggetError(
                f"two engines are called {entry.name!r}, one from {entry.value}; remove one."
            )

        # Loaded on first use, since listing names must not import other packages.
        def factory(_entry: Any = entry, **options: Any) -> Calculator:
            loaded = _entry.load()
            if isinstance(loaded, Engine):
                return loaded.calculator(**options)
            return loaded(**options)

        named[entry.name] = Engine(
            entry.name,
            f"from {entry.value}",
            factory,
            entry.module,
            electrons=_as_parameters(entry.load),
            magmoms=True,
            load=entry.load,
        )
    return named


def get_engine(name: str, start: str | None = None) -> Engine:
    """The engine of that name or of `module:factory`; errors suggest a similar name.

    Modules are searched for among the installed ones, then in the directory `start` (default: the
    directory in which nugget was started).
    """
    named = engines()
    if name in named:
        return _loaded(named[name])
    module, colon, attribute = name.partition(":")
    if colon and module and attribute:
        return _from_module(name, module, attribute, start or start_directory())
    near = difflib.get_close_matches(name, named, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(sorted(named))}"
    raise NuggetError(f"there is no engine {name!r}; {hint} (or give module:factory).")


def _loaded(engine: Engine) -> Engine:
    """The engine itself if an entry point offers an `Engine`, with all that it declares."""
    if engine.load is None or engine.missing() is not None:
        return engine
    try:
        loaded = engine.load()
    except Exception as error:  # another package may raise anything
        raise NuggetError(
            f"engine {engine.name!r} cannot be imported ({type(error).__name__}: {error})."
        ) from error
    return replace(loaded, name=engine.name) if isinstance(loaded, Engine) else engine


def start_directory() -> str:
    """The directory in which nugget was started; evaluations have their own current directory."""
    return os.environ.get("NUGGET_START_DIR") or os.getcwd()


def _from_module(name: str, module: str, attribute: str, start: str) -> Engine:
    def load() -> Callable[..., Calculator]:
        if start not in sys.path:
            sys.path.append(start)  # last, so that nothing there replaces an installed module
        written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # do not write files there
        try:
            factory = getattr(import_module(module), attribute, None)
        finally:
            sys.dont_write_bytecode = written
        if not callable(factory):
            raise NuggetError(f"module {module!r} has no function {attribute!r}.")
        return factory

    def unavailable(options: Options) -> str | None:
        top = module.partition(".")[0]
        if _importable(module) or PathFinder.find_spec(top, [start]) is not None:
            return None
        return f"there is no module {module!r} among the installed ones or in {start}"

    return Engine(
        name,
        f"{attribute} of module {module}",
        lambda **options: load()(**options),
        how_to_install=f"start nugget in the directory of {module.partition('.')[0]}.py, or add "
        "that directory to PYTHONPATH",
        unavailable=unavailable,
        electrons=_as_parameters(load),
        magmoms=True,
    )


def _as_parameters(load: Callable[[], Any]) -> Callable[[Options, Electrons], dict[str, Any]]:
    """Pass charge and spin to parameters of these names, but not to a `**` parameter."""

    def add(options: Options, electrons: Electrons) -> dict[str, Any]:
        loaded = load()
        if isinstance(loaded, Engine):
            return loaded.full_options(options, electrons)
        taken = inspect.signature(loaded).parameters
        new = dict(options)
        for key, value, unset in (
            ("charge", electrons.charge, 0),
            ("spin", electrons.spin, None),
        ):
            if value != unset and key not in taken:
                raise NuggetError(f"its function has no parameter {key!r}")
            if value != unset:
                new.setdefault(key, value)
        return new

    return add


def make_calculator(engine: str, /, **options: Any) -> Calculator:
    """A fresh calculator of the named engine."""
    return get_engine(engine).calculator(**options)


@dataclass(frozen=True)
class EngineInfo:
    """One row of the table of engines."""

    name: str
    installed: bool
    default: bool
    description: str
    how_to_install: str
    missing: str
    settings: str


def describe_options(name: str | None = None) -> list[tuple[str, str, str, str]]:
    """Rows of the table of options: engine, option, what it may do, permitted types."""
    chosen = engines().values() if name is None else [get_engine(name)]
    rows = [
        (engine.name, key, str(option.use), option.type_names)
        for engine in chosen
        for key, option in sorted((engine.table or {}).items(), key=_by_use)
    ]
    rows += [(e.name, key, str(Use.CODE), "") for e in chosen for key in e.code]
    return rows


def _by_use(item: tuple[str, Option]) -> tuple[int, str]:
    return list(Use).index(item[1].use), item[0]


def describe_engines() -> list[EngineInfo]:
    """The rows that `nugget engines` prints."""
    return [
        EngineInfo(
            e.name,
            (missing := e.missing()) is None,
            e.name == DEFAULT,
            e.description,
            e.how_to_install,
            missing or "",
            e.settings,
        )
        for e in engines().values()
    ]
