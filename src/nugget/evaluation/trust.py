"""Code is run only when the user asked for it.

`module:factory` on the command line is the user's own word. In a settings file, a run directory, a
data set or a campaign it may be a stranger's: then it needs `--trust`, or a place in the user's
list of trusted names. The same holds for options that name a program, and for settings of a Dask
cluster that do. Built-in engines and those of installed packages need no trust.

The list is `~/.config/nugget/trusted.toml` (or `$XDG_CONFIG_HOME/nugget/trusted.toml`, or the file
that `$NUGGET_TRUSTED` names):

    code = ["my_engine:make", "vasp:command=mpirun -n 8 vasp_std"]
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from nugget.errors import NuggetError
from nugget.evaluation.config import EngineConfig, ExecutionConfig
from nugget.evaluation.engines import engines

# Options of Dask's clusters that are plain numbers and names; all others may start programs.
_HARMLESS = frozenset(
    {
        "account", "cores", "death_timeout", "interface", "job_name", "memory", "n_workers", "name",
        "processes", "project", "queue", "resource_spec", "threads_per_worker", "walltime",
    }
)  # fmt: skip


def code_in(engine: EngineConfig, execution: ExecutionConfig | None = None) -> list[str]:
    """What these settings would run besides nugget's own engines, one line each."""
    return engine_code(engine.name, engine.options) + execution_code(execution or ExecutionConfig())


def engine_code(name: str, options: dict[str, Any]) -> list[str]:
    """The code that an engine with these options runs."""
    known = engines().get(name)
    if known is None:
        return [name] if ":" in name else []  # an unknown name runs nothing
    return [f"{name}:{option}={options[option]}" for option in known.code if option in options]


def execution_code(execution: ExecutionConfig) -> list[str]:
    """The code that an executor with these settings runs."""
    found = [
        f"dask:{option}={value}"
        for option, value in execution.options.items()
        if option not in _HARMLESS
    ]
    if execution.address is not None:
        found.append(f"dask:address={execution.address}")  # its scheduler decides what runs
    return found


def require_trust(code: Iterable[str], origin: str, trust: bool = False) -> None:
    """Raise NuggetError, showing what would be run, unless the user trusts it.

    code : from `code_in`, or any `module:factory`; origin : the file that names it.
    """
    wanted = list(code)
    if trust or not wanted:
        return
    trusted = trusted_code()
    if strange := [name for name in wanted if name not in trusted]:
        raise NuggetError(
            f"{origin} would run {' and '.join(repr(name) for name in strange)}. If you trust it, "
            f"say --trust, or add it to the list `code` in {trusted_file()}."
        )


def trusted_file() -> Path:
    """Where the user's list of trusted names is."""
    if named := os.environ.get("NUGGET_TRUSTED"):
        return Path(named)
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "nugget" / "trusted.toml"


def trusted_code() -> frozenset[str]:
    """The names in the user's list; none if there is no list."""
    path = trusted_file()
    try:
        listed = tomllib.loads(path.read_text(encoding="utf-8")).get("code", [])
    except FileNotFoundError:
        return frozenset()
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise NuggetError(f"{path} cannot be read: {error}.") from None
    if not isinstance(listed, list) or not all(isinstance(name, str) for name in listed):
        raise NuggetError(f'{path}: code must be a list of names, as code = ["my_engine:make"].')
    return frozenset(listed)
