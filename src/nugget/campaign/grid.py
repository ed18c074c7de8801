"""The grid of a campaign: all combinations of the varied settings, each with many seeds."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, get_args

from nugget.errors import NuggetError
from nugget.search.config import Config, make_config

#: Settings that cannot be varied, and why.
FIXED = {
    "search.seed": "seeds are varied by --repeats; the first is --seed",
    "search.reference": "all searches of a campaign look for the same structure",
    "system.template": "all searches of a campaign stand on the same template",
}


@dataclass(frozen=True)
class Cell:
    """One combination of the varied settings; values as they were typed."""

    values: dict[str, str]
    config: Config

    @property
    def name(self) -> str:
        return cell_name(self.values)


def cell_name(values: Mapping[str, str]) -> str:
    """kappa=2,uncertainty=label-noise: the name of the cell's directory."""
    name = ",".join(f"{key}={value}" for key, value in values.items())
    return name.replace("/", "%2F") or "all"


def cell_values(name: str) -> dict[str, str]:
    """The inverse of `cell_name`."""
    if name == "all":
        return {}
    pairs = [part.partition("=") for part in split(name.replace("%2F", "/"))]
    return {key: value for key, _, value in pairs}


def read_vary(options: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """From kappa=0,1,2 and the like: short names of settings, and the values as typed."""
    vary: dict[str, tuple[str, ...]] = {}
    for option in options:
        key, equals, values = option.partition("=")
        if not equals or not values.strip():
            raise NuggetError(f"--vary {option}: write a setting and its values, as kappa=0,1,2.")
        name = short(resolve(key.strip()))
        if name in vary:
            raise NuggetError(f"--vary {option}: {name} is varied twice; list all values at once.")
        vary[name] = tuple(split(values))
    return vary


def split(text: str) -> list[str]:
    """At commas that stand in no brackets and no quotes."""
    parts, depth, quote = [""], 0, ""
    for char in text:
        if quote:
            quote = "" if char == quote else quote
        elif char in "\"'":
            quote = char
        elif char in "[{":
            depth += 1
        elif char in "]}":
            depth -= 1
        if char == "," and depth == 0 and not quote:
            parts.append("")
        else:
            parts[-1] += char
    return [part.strip() for part in parts]


def resolve(key: str) -> str:
    """The full name of a setting (search.kappa) that may be given bare (kappa)."""
    sections = {
        name: field.annotation.model_fields  # type: ignore[union-attr]
        for name, field in Config.model_fields.items()
        if name != "execution"
    }
    if "." in key:
        full = key
        if key.split(".")[0] == "execution":
            raise NuggetError(f"{key} cannot be varied: it is not a setting of a search.")
    else:
        homes = [f"{name}.{key}" for name, fields in sections.items() if key in fields]
        if len(homes) > 1:
            raise NuggetError(f"{key} is not one setting: write {' or '.join(homes)}.")
        if not homes:
            known = sorted({name for fields in sections.values() for name in fields})
            raise NuggetError(f"{key} is not a setting; known: {', '.join(known)}.")
        full = homes[0]
    if full in FIXED:
        raise NuggetError(f"{full} cannot be varied: {FIXED[full]}.")
    return full


def short(full: str) -> str:
    """The bare name where it is enough."""
    bare = full.rpartition(".")[2]
    try:
        return bare if resolve(bare) == full else full
    except NuggetError:
        return full


def parse(full: str, text: str) -> Any:
    """A value as in TOML; a bare word is text, and none is None where a setting allows that."""
    section, _, option = full.partition(".")
    fields = Config.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
    if text == "none" and option in fields and type(None) in get_args(fields[option].annotation):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def make_cells(base: Config, vary: Mapping[str, Sequence[str]]) -> list[Cell]:
    """All combinations, in order, each with its validated settings."""
    axes = []
    for key, texts in vary.items():
        full = resolve(key)
        if full.partition(".")[0] not in Config.model_fields:
            make_config({full.partition(".")[0]: {}}, "--vary")  # says what is known
        values = [parse(full, text) for text in texts]
        for k, value in enumerate(values):
            if value in values[:k]:
                raise NuggetError(f"--vary {key}: {texts[k]} is given twice.")
        axes.append([(key, full, text, value) for text, value in zip(texts, values, strict=True)])
    cells = []
    for point in itertools.product(*axes):
        tree = base.model_dump()
        for _, full, _, value in point:
            _plant(tree, full, value)
        typed = {key: text for key, _, text, _ in point}
        cells.append(Cell(typed, make_config(tree, f"--vary {cell_name(typed)}")))
    return cells


def _plant(tree: dict[str, Any], full: str, value: Any) -> None:
    *sections, option = full.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise NuggetError(f"{full} is not a setting: {section} is a value, not a section.")
    tree[option] = value
