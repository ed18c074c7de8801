"""Find the programs behind ASE's calculators: options, ASE's configuration, environment, PATH."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ase.config import cfg

Options = Mapping[str, Any]
CONFIGURATION = "ASE's configuration (~/.config/ase/config.ini)"


def find_command(
    section: str, options: Options, variables: Sequence[str], programs: Sequence[str]
) -> str | None:
    """The command that starts the code: the option `command`, ASE's configuration file, environment
    variables, then programs on PATH."""
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
    """A setting such as a directory of pseudopotentials, from the same places."""
    places = [options.get(key), cfg.parser.get(section, key, fallback=None)]
    places += [os.environ.get(variable) for variable in variables]
    return next((str(place) for place in places if place), None)


def needs_command(
    section: str, variables: Sequence[str], programs: Sequence[str]
) -> Callable[[Options], str | None]:
    """An `unavailable` for engines that need nothing but a program."""

    def unavailable(options: Options) -> str | None:
        command = find_command(section, options, variables, programs)
        if command is None:
            wanted = [f"no program {' or '.join(programs)} on PATH"] if programs else []
            wanted.append(f"no environment variable {' or '.join(variables)}")
            wanted.append(f"no command in section [{section}] of {CONFIGURATION}")
            return ", ".join(wanted)
        first = next((word for word in shlex.split(command) if "=" not in word), "")
        if shutil.which(first) is None:
            return f"its command {command!r} starts with {first!r}, which is not on PATH"
        return None

    return unavailable


def merged(defaults: Options, changes: Options) -> dict[str, Any]:
    """Nested settings: changes over defaults, table by table."""
    new = dict(defaults)
    for key, value in changes.items():
        old = new.get(key)
        both = isinstance(old, Mapping) and isinstance(value, Mapping)
        new[key] = merged(old, value) if both else value  # type: ignore[arg-type]
    return new
