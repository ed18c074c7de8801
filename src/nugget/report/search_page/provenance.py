"""How a search can be made again: its command, settings and versions."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import Any

from nugget.search._toml import toml_value
from nugget.search.config import Config, make_config

#: Options of `nugget search` that have a name of their own.
_FLAGS = {
    "engine.name": "--engine",
    "search.budget": "--budget",
    "search.seed": "--seed",
    "search.kappa": "--kappa",
    "search.in_flight": "--in-flight",
    "search.candidates": "--candidates",
    "system.pressure": "--pressure",
}
_ALWAYS = ("engine.name", "search.budget", "search.seed")
_FILES = ("system.template", "search.reference", "search.start", "search.learn", "model.baseline")


def command(config: Config, directory: Path, out: str = "again") -> list[str]:
    """`nugget search …` with every setting that is not a default."""
    words = ["nugget", "search", config.system.formula]
    kind = config.system.kind
    start: dict[str, Any] = {"system": {"formula": config.system.formula}}
    if kind == "crystal":  # they have defaults of their own
        words.append("--crystal")
        start["system"]["kind"] = kind
    usual = make_config(start).model_dump()
    files = _present_files(config, directory)
    for section, options in config.model_dump(exclude={"execution"}).items():
        for name, value in options.items():
            key = f"{section}.{name}"
            value = files.get(key, value)
            if key == "system.formula" or value is None:
                continue
            if value == usual[section][name] and key not in _ALWAYS:
                continue
            if key in _FLAGS:
                words += [_FLAGS[key], str(value)]
            else:
                words += ["--set", f"{key}={toml_value(value)}"]
    return [*words, "--out", out]


def _present_files(config: Config, directory: Path) -> dict[str, str]:
    """Settings that name files of the search's directory, with their paths from here."""
    found = {}
    for key in _FILES:
        section, name = key.split(".")
        value = getattr(getattr(config, section), name)
        if isinstance(value, str) and (directory / value).is_file():
            found[key] = str(directory / value)
    return found


def as_line(words: list[str]) -> str:
    """A line for a shell, broken before every option."""
    text = ""
    for word in words:
        text += (" \\\n    " if word.startswith("--") else " " if text else "") + shlex.quote(word)
    return text
