"""The reference of settings, parts and engines, from pydantic's fields and the registry."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, is_dataclass
from typing import Any, Literal, get_args, get_origin

from _commands import cell

from nugget import registry
from nugget.engines import engines as all_engines
from nugget.engines.engine import describe_options
from nugget.engines.options import Use
from nugget.onthefly.run_settings import MDConfig, NEBConfig
from nugget.search.search_settings import Config


def settings() -> str:
    """All tables of a settings file, and the settings of runs that learn on the fly."""
    sections = [
        _section(f"[{name}]", field.annotation) for name, field in Config.model_fields.items()
    ]
    extra = [_section("nugget md", MDConfig), _section("nugget neb", NEBConfig)]
    return "\n\n".join([*sections, *extra])


def _section(title: str, model: Any) -> str:
    lines = [f"## {title}", "", (model.__doc__ or "").strip(), ""]
    lines += ["| setting | permitted values | default | meaning |", "|---|---|---|---|"]
    for name, field in model.model_fields.items():
        if name == "engine":
            continue
        default = field.get_default(call_default_factory=True)
        shown = "none" if default is None else str(default)
        row = (f"`{name}`", cell(_permitted(name, field)), f"`{shown}`", cell(field.description))
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


#: Settings whose values are names of registered parts.
PARTS = {
    "descriptor": "descriptor",
    "kernel": "kernel",
    "inducing": "inducing",
    "uncertainty": "uncertainty",
    "baseline": "prior",
    "acquisition": "acquisition",
}


def _permitted(name: str, field: Any) -> str:
    if name == "kind" and field.annotation is str:
        return ", ".join(registry.names("system"))
    if name in PARTS:
        also = ["auto"] if name == "acquisition" else []
        names = ", ".join([*also, *registry.names(PARTS[name])])
        return names + (", none, engine:NAME, FILE.model" if name == "baseline" else "")
    words = [_type(field.annotation)]
    for limit in field.metadata:
        for sign, attribute in (("≥", "ge"), (">", "gt"), ("≤", "le"), ("below", "lt")):
            if (value := getattr(limit, attribute, None)) is not None:
                words.append(f"{sign} {value}")
    return ", ".join(words)


def _type(annotation: Any) -> str:
    arguments = get_args(annotation)
    if get_origin(annotation) is Literal:
        return ", ".join(map(str, arguments))
    if type(None) in arguments:
        rest = [_type(a) for a in arguments if a is not type(None)]
        return ", ".join([*rest, "none"])
    names = {
        int: "integer",
        float: "number",
        str: "text",
        bool: "true, false",
        dict: "table",
        tuple: "list",
    }
    return names.get(get_origin(annotation) or annotation, str(annotation))


def parts() -> str:
    """Every part that has a name in settings and model files."""
    blocks = []
    for kind in registry.HOMES:
        lines = [f"## {kind}", "", "| name | options | what it is |", "|---|---|---|"]
        for name in registry.names(kind):
            part = registry.find(kind, name)
            first = (inspect.getdoc(part) or "").partition("\n\n")[0]
            lines.append(f"| `{name}` | {_options(part)} | {cell(first)} |")
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _options(part: Any) -> str:
    if not is_dataclass(part):
        return ", ".join(f"`{name}`" for name in inspect.signature(part).parameters)
    shown = []
    for field in fields(part):
        if field.init:
            default = "" if field.default is MISSING else f" = {field.default}"
            shown.append(f"`{field.name}{default}`")
    return ", ".join(shown).replace("|", r"\|")


def engines() -> str:
    """The engines that come along, with their options."""
    lines = ["| engine | what it is | options | to install |", "|---|---|---|---|"]
    for engine in all_engines().values():
        install = cell(engine.how_to_install) or "comes with nugget"
        row = (f"`{engine.name}`", cell(engine.description), cell(engine.settings), install)
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def options() -> str:
    """The options of each engine by what they may do: plain, code, writes files."""
    lines = ["| engine | plain | code | writes files |", "|---|---|---|---|"]
    uses: dict[str, dict[str, list[str]]] = {}
    for engine, option, use, _ in describe_options():
        uses.setdefault(engine, {}).setdefault(use, []).append(f"`{option}`")
    for engine, by_use in uses.items():
        cells = (", ".join(by_use.get(str(use), [])) or "–" for use in Use)
        lines.append(f"| `{engine}` | {' | '.join(cells)} |")
    return "\n".join(lines)
