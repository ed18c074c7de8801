"""The reference of commands, from the functions behind them and the help of their options."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from typer.models import ArgumentInfo

from nugget.cli._console import flowing
from nugget.cli.main import COMMANDS

PAGES = Path(__file__).parents[1] / "reference" / "commands"
MARK = re.compile(r"^<!-- generated: commands ([\w ]+) -->$", re.MULTILINE)


def commands(names: str) -> str:
    """The named commands in Markdown."""
    functions = {command.__name__: command for command in COMMANDS}
    return "\n\n".join(_command(functions[name]) for name in names.split())


def command_table() -> str:
    """All commands with links to their pages; KeyError if a command is on no page."""
    page = {
        name: path.name
        for path in PAGES.glob("*.md")
        for mark in MARK.findall(path.read_text(encoding="utf-8"))
        for name in mark.split()
    }
    rows = ["| command | purpose |", "|---|---|"]
    for command in COMMANDS:
        name = command.__name__.replace("_", "-")
        purpose = cell(flowing(command.__doc__).split("\n\n")[0])
        rows.append(f"| [`nugget {name}`]({page[command.__name__]}#nugget-{name}) | {purpose} |")
    return "\n".join(rows)


def _command(function: Callable[..., Any]) -> str:
    name = function.__name__.replace("_", "-")
    hints = get_type_hints(function, include_extras=True)
    rows, arguments = [], []
    for key, parameter in inspect.signature(function).parameters.items():
        kind, info = _parts(hints[key], parameter)
        row, shown = _row(key, kind, info, parameter.default)
        rows.append(row)
        if isinstance(info, ArgumentInfo):
            needed = parameter.default is inspect.Parameter.empty
            arguments.append(shown if needed else f"[{shown}]")
    usage = " ".join(["nugget", name, *arguments, "[OPTIONS]"])
    head = "| option | value | meaning |\n|---|---|---|"
    return "\n\n".join(
        [
            f"## nugget {name}",
            f"```text\n{usage}\n```",
            _text(flowing(function.__doc__).replace("\\[", "[")),
            "\n".join([head, *rows]),
        ]
    )


def _parts(hint: Any, parameter: inspect.Parameter) -> tuple[Any, Any]:
    """The type of an option, and what typer is told of it."""
    if hasattr(hint, "__metadata__"):
        return get_args(hint)[0], hint.__metadata__[-1]
    return hint, parameter.default


def _text(text: str) -> str:
    """Help as Markdown: indented lines are examples, [bold] is markup of the terminal."""
    parts = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines if line.strip()):
            parts.append("```text\n" + "\n".join(line[4:] for line in lines) + "\n```")
        else:
            parts.append(re.sub(r"\[/?bold\]", "**", block).replace("<", r"\<"))
    return "\n\n".join(parts)


def _row(key: str, kind: Any, info: Any, default: Any) -> tuple[str, str]:
    dashed = "--" + key.replace("_", "-")
    shown = info.metavar or key.upper()
    if not isinstance(info, ArgumentInfo):
        shown = ", ".join(info.param_decls or [dashed])
    meaning = str(info.help or "")
    if default not in (None, False, True, inspect.Parameter.empty) and not hasattr(default, "help"):
        meaning += f" Default: {default}."
    if default is inspect.Parameter.empty and not isinstance(info, ArgumentInfo):
        meaning += " Required."
    return f"| {code(shown)} | {code(_value(kind, info))} | {cell(meaning)} |", shown


def _value(kind: Any, info: Any) -> str:
    inner = [a for a in get_args(kind) if a is not type(None)]
    if get_origin(kind) is Literal:
        return ", ".join(map(str, get_args(kind)))
    if type(None) in get_args(kind) and len(inner) == 1:
        return _value(inner[0], info)
    if kind is bool:
        return ""
    if get_origin(kind) is list:
        kind = inner[0]
    name = info.metavar or getattr(kind, "__name__", str(kind)).lower()
    name = {"str": "text", "int": "integer", "float": "number", "path": "file"}.get(name, name)
    if info.min is not None and info.max is not None:
        return f"{name}, {info.min} to {info.max}"
    return name if info.min is None else f"{name} ≥ {info.min}"


def code(text: str) -> str:
    """Code inside a table."""
    return f"`{text}`".replace("|", r"\|") if text else ""


def cell(text: str) -> str:
    """Text inside a table."""
    return " ".join(text.split()).replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;")
