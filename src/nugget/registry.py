"""Parts by name: descriptors, kernels, inducing rules, uncertainties, priors and so on.

A part is a class marked with `@registered(kind)`, in any module of the package for its kind. Other
installed packages offer parts as entry points (`GROUPS` names the groups). Both are imported on
first use. Engines are factories of ASE calculators and have a list of their own in
`nugget.engines`.
"""

from __future__ import annotations

import difflib
import inspect
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any, TypeVar

from nugget.errors import NuggetError

# The module of the built-in parts of each kind, or a package whose modules are all imported.
HOMES: dict[str, str] = {
    "descriptor": "nugget.descriptors",
    "kernel": "nugget.gp.kernels",
    "inducing": "nugget.gp.inducing",
    "uncertainty": "nugget.gp.uncertainty",
    "prior": "nugget.potential.mean_functions",
    "acquisition": "nugget.search.acquisition",
    "generator": "nugget.generators",
    "system": "nugget.systems",
}

GROUPS: dict[str, str] = {
    "descriptor": "nugget.descriptors",
    "kernel": "nugget.kernels",
    "inducing": "nugget.inducing",
    "uncertainty": "nugget.uncertainties",
    "prior": "nugget.priors",
    "acquisition": "nugget.acquisitions",
    "generator": "nugget.generators",
    "system": "nugget.systems",
}


Part = TypeVar("Part", bound=type[Any])


_registered: dict[str, dict[str, type[Any]]] = {kind: {} for kind in HOMES}


def registered(kind: str) -> Callable[[Part], Part]:
    """Class decorator for a part that settings and model files can name.

    Its name is the class attribute `name`, or else the name of the class.
    """

    def add(part: Part) -> Part:
        name = part_name(part)
        other = _registered[kind].setdefault(name, part)
        if (other.__module__, other.__qualname__) != (part.__module__, part.__qualname__):
            raise NuggetError(
                f"Two {kind}s are called {name!r}: {other.__module__} and {part.__module__}; "
                "rename one."
            )
        return part

    return add


def part_name(part: type[Any]) -> str:
    """The name of a part in settings and model files."""
    name = vars(part).get("name")
    return name if isinstance(name, str) else part.__name__


@cache
def _built_in(kind: str) -> Mapping[str, type[Any]]:
    home = import_module(HOMES[kind])
    for module in pkgutil.iter_modules(getattr(home, "__path__", ())):
        import_module(f"{home.__name__}.{module.name}")
    return _registered[kind]


@cache
def _outside(kind: str) -> Mapping[str, Any]:
    return {entry.name: entry for entry in entry_points(group=GROUPS[kind])}


def names(kind: str) -> list[str]:
    """All names of a kind, the built-in ones first."""
    return [*_built_in(kind), *(name for name in _outside(kind) if name not in _built_in(kind))]


def find(kind: str, name: str) -> Any:
    """The class or factory with this name; the error suggests a similar name."""
    built_in = _built_in(kind)
    if name in built_in:
        return built_in[name]
    if name in _outside(kind):
        return _outside(kind)[name].load()
    near = difflib.get_close_matches(name, names(kind), n=1, cutoff=0.5)
    hint = f"did you mean {near[0]!r}?" if near else f"choose from {', '.join(names(kind))}."
    raise NuggetError(f"There is no {kind} {name!r}; {hint}")


def make(kind: str, name: str, /, **options: Any) -> Any:
    """A part by name; the error names options that it does not take."""
    factory = find(kind, name)
    try:
        inspect.signature(factory).bind(**options)
    except TypeError as error:
        raise NuggetError(f"The {kind} {name!r}: {error}; it takes {taken(factory)}.") from None
    return factory(**options)


def taken(factory: Callable[..., Any]) -> str:
    """The names of a part's options, for messages."""
    return ", ".join(inspect.signature(factory).parameters) or "no options"


def settings_of(kind: str, part: Any) -> dict[str, Any]:
    """The name and the fields of a part (a dataclass) as plain data, for model files."""
    name = part_name(type(part))
    try:
        same = find(kind, name) is type(part)
    except NuggetError:
        same = False
    if not same:
        raise NuggetError(
            f"The {kind} {type(part).__name__} cannot be saved: mark the class with "
            f"@registered({kind!r}), or offer it as an entry point of the group `{GROUPS[kind]}`."
        )
    plain = {f.name: _plain(kind, getattr(part, f.name)) for f in fields(part) if f.init}
    return {"name": name, **plain}


def _plain(kind: str, value: Any) -> Any:
    """A field as plain data; parts within a part become their settings."""
    if isinstance(value, tuple) and value and all(is_dataclass(item) for item in value):
        return [settings_of(kind, item) for item in value]
    return settings_of(kind, value) if is_dataclass(value) else value


def _part(kind: str, value: Any) -> Any:
    """The inverse of `_plain`."""
    if isinstance(value, Mapping) and "name" in value:
        return from_settings(kind, value)
    if isinstance(value, list) and value and all(isinstance(item, Mapping) for item in value):
        return tuple(from_settings(kind, item) for item in value)
    return value


def from_settings(kind: str, settings: Mapping[str, Any]) -> Any:
    """The inverse of `settings_of`."""
    options = {key: _part(kind, value) for key, value in settings.items()}
    return make(kind, options.pop("name"), **options)
