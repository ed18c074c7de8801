"""The reference of Python names, from signatures and docstrings."""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from types import ModuleType
from typing import Any

MODULES = (
    "nugget",
    "nugget.presets",
    "nugget.calculators",
    "nugget.calibration",
    "nugget.datafiles",
    "nugget.modelfile",
    "nugget.engines",
    "nugget.relax",
    "nugget.search",
    "nugget.campaign",
    "nugget.dataset",
    "nugget.identity",
    "nugget.generators",
    "nugget.evaluation.executors",
    "nugget.report",
    "nugget.testing",
)


def python() -> str:
    """Every public name with its signature and its docstring."""
    return "\n\n".join(_module(import_module(name)) for name in MODULES)


def _module(module: ModuleType) -> str:
    parts = [f"## {module.__name__}", text(inspect.getdoc(module) or "")]
    plain = []
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            parts.append(_object(f"{module.__name__}.{name}", name, value, "###"))
        else:
            plain.append(f"- `{name}` = `{shortened(value)}`")
    return "\n\n".join([*parts, "\n".join(plain)])


def shortened(value: Any) -> str:
    shown = " ".join(repr(value).split()).replace("`", "'")
    return shown if len(shown) < 90 else f"{shown[:87]}..."


def _object(path: str, name: str, value: Any, level: str) -> str:
    # A module and a function may share a name, as nugget.relax and nugget.relax.relax do.
    parts = [f"{level} {path if level == '###' else name}", _signature(name, value)]
    parts.append(text(inspect.getdoc(value) or ""))
    if inspect.isclass(value):
        for key, member in sorted(vars(value).items()):
            if key.startswith("_"):
                continue
            plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
            if isinstance(plain, property):
                note = text(inspect.getdoc(plain) or "").partition("\n\n")[0]
                parts.append(f"**{key}** (property). {note}")
            elif inspect.isfunction(plain) and inspect.getdoc(plain):
                parts.append(_signature(key, plain) + "\n\n" + text(inspect.getdoc(plain) or ""))
    return "\n\n".join(part for part in parts if part)


def _signature(name: str, value: Any) -> str:
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return ""
    bare = [p.replace(annotation=inspect.Parameter.empty) for p in found.parameters.values()]
    short = str(found.replace(parameters=bare, return_annotation=inspect.Signature.empty))
    short = re.sub(r"<factory>|<[^>]*>", "...", short)
    word = "class " if inspect.isclass(value) else "def "
    return f"```python\n{word}{name}{short}\n```"


def text(doc: str) -> str:
    """A docstring as Markdown: `name : meaning` lines become a list, indented lines code."""
    made = []
    for block in re.split(r"\n\s*\n", doc):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines):
            made.append("```text\n" + "\n".join(line[4:] for line in lines) + "\n```")
            continue
        out: list[str] = []
        for line in lines:
            entry = re.match(r"^([\w*, .]+?) : (.*)$", line)
            if entry:
                out.append(f"- `{entry[1]}`: {_escaped(entry[2])}")
            elif line.startswith(" ") and out:
                out[-1] += " " + _escaped(line.strip())
            else:
                if out and out[-1].startswith("- "):
                    out.append("")
                out.append(_escaped(line))
        made.append("\n".join(out))
    return "\n\n".join(made)


def _escaped(line: str) -> str:
    """Stars, brackets and angles of formulas are no markup; code in backticks stays."""
    pieces = re.split(r"(`[^`]*`)", line)
    keep = [p if p.startswith("`") else re.sub(r"([*<>\[\]|_#~])", r"\\\1", p) for p in pieces]
    return "".join(keep)
