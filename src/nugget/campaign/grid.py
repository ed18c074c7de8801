"""The grid of a campaign: all combinations of the varied options of a search."""

from __future__ import annotations

import itertools
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from nugget.errors import NuggetError
from nugget.search.search_settings import (
    Config,
    current_name,
    make_config,
    may_be_none,
    sections_of,
)

#: Settings that cannot be varied, and why.
FIXED = {
    "search.seed": "seeds are varied by --repeats; the first is --seed",
    "search.reference": "all searches of a campaign look for the same structure",
    "system.template": "all searches of a campaign use the same template",
}


@dataclass(frozen=True)
class Setting:
    """One combination of the varied options; `values` are as they were typed."""

    values: dict[str, str]
    config: Config

    @property
    def name(self) -> str:
        return setting_name(self.values)


def setting_name(values: Mapping[str, str]) -> str:
    """The name of its directory, such as kappa=2,uncertainty=label-noise."""
    name = ",".join(f"{key}={value}" for key, value in values.items())
    return name.replace("/", "%2F") or "all"


def read_vary(options: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Short names of options and their values as typed, from texts such as kappa=0,1,2."""
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
    """Split at commas outside brackets and quotes."""
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
    if "." in key:
        full = current_name(key)
        if key.split(".")[0] == "execution":
            raise NuggetError(f"{key} cannot be varied: it is not a setting of a search.")
    else:
        homes = [f"{name}.{key}" for name in sections_of(key) if name != "execution"]
        if len(homes) > 1:
            raise NuggetError(f"{key} is not one setting: write {' or '.join(homes)}.")
        if not homes:
            tables = Config().model_dump(exclude={"execution"}).values()
            names = sorted({name for table in tables for name in table})
            raise NuggetError(f"{key} is not a setting; known: {', '.join(names)}.")
        full = current_name(homes[0])
    if full in FIXED:
        raise NuggetError(f"{full} cannot be varied: {FIXED[full]}.")
    return full


def short(full: str) -> str:
    """The name without its section, if that is unique."""
    bare = full.rpartition(".")[2]
    try:
        return bare if resolve(bare) == full else full
    except NuggetError:
        return full


def parse(full: str, text: str) -> Any:
    """A value as in TOML; a bare word is text, and none is None if the option allows that."""
    if text == "none" and may_be_none(full):
        return None
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def make_settings(base: Config, vary: Mapping[str, Sequence[str]]) -> list[Setting]:
    """All combinations, in order, each with its validated settings."""
    axes = []
    for key, texts in vary.items():
        full = resolve(key)
        if full.partition(".")[0] not in Config.model_fields:
            make_config({full.partition(".")[0]: {}}, "--vary")  # an error that lists the sections
        values = [parse(full, text) for text in texts]
        for k, value in enumerate(values):
            if value in values[:k]:
                raise NuggetError(f"--vary {key}: {texts[k]} is given twice.")
        axes.append([(key, full, text, value) for text, value in zip(texts, values, strict=True)])
    settings = []
    for point in itertools.product(*axes):
        tree = base.model_dump()
        for _, full, _, value in point:
            plant(tree, full, value)
        typed = {key: text for key, _, text, _ in point}
        settings.append(Setting(typed, make_config(tree, f"--vary {setting_name(typed)}")))
    return settings


def plant(tree: dict[str, Any], full: str, value: Any) -> None:
    """Set a value by its full name, as search.kappa."""
    *sections, option = full.split(".")
    for section in sections:
        tree = tree.setdefault(section, {})
        if not isinstance(tree, dict):
            raise NuggetError(f"{full} is not a setting: {section} is a value, not a section.")
    tree[option] = value
