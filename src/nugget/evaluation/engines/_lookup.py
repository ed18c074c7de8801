"""Engines by name: built-in ones, those of other packages, and `module:factory`."""

from __future__ import annotations

import difflib
import inspect
import os
import pkgutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.errors import NuggetError
from nugget.evaluation.engines._base import Electrons, Engine, Options, _importable

DEFAULT = "gfn1-xtb"
ENTRY_POINTS = "nugget.engines"


@cache
def engines() -> dict[str, Engine]:
    """All named engines: the built-in ones, then those of other packages."""
    package = import_module(__package__ or "")
    found: dict[str, Engine] = {}
    for module in pkgutil.iter_modules(package.__path__):
        if not module.name.startswith("_"):
            family = import_module(f"{package.__name__}.{module.name}").ENGINES
            found.update({engine.name: engine for engine in family})
    found = dict(sorted(found.items(), key=lambda item: item[0] != DEFAULT))
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name in found:
            raise NuggetError(
                f"two engines are called {entry.name!r}, one from {entry.value}; remove one."
            )

        # Loaded on first use: listing names must not import somebody's DFT code.
        def factory(_entry: Any = entry, **options: Any) -> Calculator:
            loaded = _entry.load()
            if isinstance(loaded, Engine):
                return loaded.calculator(**options)
            return loaded(**options)

        found[entry.name] = Engine(
            entry.name,
            f"from {entry.value}",
            factory,
            entry.module,
            electrons=_as_parameters(entry.load),
            magmoms=True,
        )
    return found


def get_engine(name: str, start: str | None = None) -> Engine:
    """The engine of that name, or of `module:factory`; an error names the nearest alternative.

    Modules are looked for among the installed ones, then in the directory `start` (default: the
    directory where nugget was started).
    """
    known = engines()
    if name in known:
        return known[name]
    module, colon, attribute = name.partition(":")
    if colon and module and attribute:
        return _from_module(name, module, attribute, start or start_directory())
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(sorted(known))}"
    raise NuggetError(f"there is no engine {name!r}; {hint} (or give module:factory).")


def start_directory() -> str:
    """Where nugget was started; evaluations have a current directory of their own."""
    return os.environ.get("NUGGET_START_DIR") or os.getcwd()


def _from_module(name: str, module: str, attribute: str, start: str) -> Engine:
    def load() -> Callable[..., Calculator]:
        if start not in sys.path:
            sys.path.append(start)  # last: nothing there can stand in for an installed module
        written, sys.dont_write_bytecode = sys.dont_write_bytecode, True  # it is the user's place
        try:
            found = getattr(import_module(module), attribute, None)
        finally:
            sys.dont_write_bytecode = written
        if not callable(found):
            raise NuggetError(f"module {module!r} has no function {attribute!r}.")
        return found

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
    """Charge and spin go to parameters of these names; a catch-all might drop them silently."""

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
    """One line of the table of engines."""

    name: str
    installed: bool
    default: bool
    description: str
    how_to_install: str
    missing: str
    settings: str


def describe_engines() -> list[EngineInfo]:
    """What `nugget engines` prints."""
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
