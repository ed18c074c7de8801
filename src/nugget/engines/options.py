"""The options of an engine, and what each of them may do: set a value, run code, write files.

An engine declares its options. A plain one needs no trust, whoever wrote the file that contains it.
All others do: options that run a program or load code, options that write files outside of the
scratch directory, and options that the engine does not declare. `engine_settings` asks for trust.
"""

from __future__ import annotations

import math
import os
import re
import unicodedata
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from nugget.errors import NuggetError

Options = Mapping[str, Any]


class Use(StrEnum):
    """What an option may do."""

    PLAIN = "plain"  # sets a value
    CODE = "code"  # runs a program or loads code
    WRITES = "writes files"  # names a file that is written


@dataclass(frozen=True)
class Option:
    """One option of an engine.

    types : permitted types; float includes int, list includes tuple, None is always permitted.
    harmless : whether a value needs no trust, for options of which some values do.
    """

    use: Use
    types: tuple[type, ...]
    harmless: Callable[[Any], bool] | None = None

    def use_of(self, value: Any) -> Use:
        """What this value may do."""
        if value is None or (self.harmless is not None and self.harmless(value)):
            return Use.PLAIN
        return Use.CODE if self.use is Use.PLAIN and self.harmless is not None else self.use

    def accepts(self, value: Any) -> bool:
        """Whether the value has a permitted type."""
        kinds: tuple[type, ...] = self.types
        if float in kinds:
            kinds += (int,)
        if list in kinds:
            kinds += (tuple,)
        if isinstance(value, bool):
            return bool in kinds
        return value is None or isinstance(value, kinds)

    @property
    def type_names(self) -> str:
        """The permitted types in words."""
        words = {float: "number", int: "integer", str: "text", bool: "true or false"}
        words |= {list: "list", dict: "table"}
        return ", ".join(words[kind] for kind in self.types)


def plain(
    names: str, *types: type, harmless: Callable[[Any], bool] | None = None
) -> dict[str, Option]:
    """Options that only set a value; `names` are separated by blanks."""
    return {name: Option(Use.PLAIN, types, harmless) for name in names.split()}


def code(
    names: str, *types: type, harmless: Callable[[Any], bool] | None = None
) -> dict[str, Option]:
    """Options that run a program or load code."""
    return {name: Option(Use.CODE, types or (str,), harmless) for name in names.split()}


def writes(
    names: str, *types: type, harmless: Callable[[Any], bool] | None = None
) -> dict[str, Option]:
    """Options that name a file to write; a bare name stays in the scratch directory."""
    safe = matching(r"[\w-]+(\.[\w-]+)*") if harmless is None else harmless
    return {name: Option(Use.WRITES, types or (str,), safe) for name in names.split()}


def matching(pattern: str) -> Callable[[Any], bool]:
    """Text is harmless if all of it matches the regular expression."""
    return lambda value: isinstance(value, str) and re.fullmatch(pattern, value) is not None


def bare_name(engine: str, option: str, value: str) -> str:
    """A name that a program knows; NuggetError if the current directory has a file of this name.

    Programs that take a name or a file prefer the file, and reading it may run code. A path needs
    trust, a bare name does not, so that it must not be a file.
    """
    if not os.path.dirname(value) and os.path.lexists(value):
        raise NuggetError(
            f"engine {engine!r}: the current directory has a file {value}, which would be read for "
            f"the option {option}. Give its path as ./{value} if it is meant, or rename it."
        )
    return value


# Options of engines without a table: names of programs, and text that may be a command or a path.
_PROGRAM = re.compile(
    r"command|cmd|exe|program|binary|script|launch|shell|mpi|module|plugin|python|code|profile",
    re.IGNORECASE,
)

_SUSPICIOUS = re.compile(r"[\s/\\;|&$`<>%]|\.(py|so|sh)$")


def use_of_undeclared(name: str, value: Any) -> Use:
    """What an option may do of an engine that declares none."""
    if _PROGRAM.search(name) or any(_SUSPICIOUS.search(text) for text in _texts(value)):
        return Use.CODE
    return Use.PLAIN


# Control characters, and the separators at which Python breaks lines, too.
_CONTROLS = ("Cc", "Zl", "Zp")


def check_options(engine: str, options: Options, table: Mapping[str, Option] | None) -> None:
    """Refuse wrong types, numbers that are not finite, and control characters in plain text."""
    for name, value in options.items():
        option = None if table is None else table.get(name)
        if option is not None and not option.accepts(value):
            raise NuggetError(
                f"engine {engine!r}: the option {name} is {value!r}; it must be "
                f"{option.type_names}."
            )
        if not all(math.isfinite(number) for number in _numbers(value)):
            raise NuggetError(f"engine {engine!r}: the option {name} is {value!r}, not finite.")
        if option is not None and option.use is Use.CODE and isinstance(value, str):
            continue  # blocks of input have several lines, and need trust
        if any(unicodedata.category(c) in _CONTROLS for text in _texts(value) for c in text):
            raise NuggetError(
                f"engine {engine!r}: the option {name} contains a line break or another control "
                "character; write it in one line."
            )


def _texts(value: Any) -> Iterator[str]:
    """All text in a value, keys of tables included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield str(key)
            yield from _texts(item)
    elif isinstance(value, list | tuple):
        for item in value:
            yield from _texts(item)


def _numbers(value: Any) -> Iterator[float]:
    if isinstance(value, float):
        yield value
    elif isinstance(value, Mapping):
        value = list(value.values())
    if isinstance(value, list | tuple):
        for item in value:
            yield from _numbers(item)
