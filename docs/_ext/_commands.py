"""The reference of commands, from what `nugget COMMAND --help` is made of."""

from __future__ import annotations

import re
from typing import Any

import click
import typer

from nugget.cli.main import app


def commands() -> str:
    """All commands in Markdown."""
    group: Any = typer.main.get_command(app)
    context = click.Context(group, info_name="nugget")
    return "\n\n".join(
        _command(name, group.get_command(context, name), context)
        for name in group.list_commands(context)
    )


def _command(name: str, command: Any, parent: click.Context) -> str:
    context = click.Context(command, info_name=f"nugget {name}")
    usage = " ".join(command.collect_usage_pieces(context))
    parts = [f"## nugget {name}", f"```text\nnugget {name} {usage}\n```", _text(command.help or "")]
    rows = [row for parameter in command.params if (row := _row(parameter, context)) is not None]
    head = "| option | value | meaning |\n|---|---|---|"
    return "\n\n".join([*parts, "\n".join([head, *rows])])


def _text(text: str) -> str:
    """Help as Markdown: indented lines are examples, [bold] is markup of the terminal."""
    parts = []
    for block in re.split(r"\n\s*\n", text):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines if line.strip()):
            parts.append("```text\n" + "\n".join(line[4:] for line in lines) + "\n```")
        else:
            plain = " ".join(line.strip() for line in lines)
            parts.append(re.sub(r"\[/?bold\]", "**", plain))
    return "\n\n".join(parts)


def _row(parameter: Any, context: click.Context) -> str | None:
    if getattr(parameter, "hidden", False) or "--help" in parameter.opts:
        return None
    if parameter.param_type_name == "argument":
        names = parameter.metavar or parameter.name.upper()
    else:
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    flag = getattr(parameter, "is_flag", False)
    kind = "" if flag else _kind(parameter)
    meaning = str(getattr(parameter, "help", "") or "")
    default = parameter.default
    if default not in (None, (), [], False, True) and not callable(default) and not flag:
        meaning += f" Default: {default}."
    if parameter.required and parameter.param_type_name == "option":
        meaning += " Required."
    return f"| {_code(names)} | {_code(kind)} | {cell(meaning)} |"


def _kind(parameter: Any) -> str:
    kind = parameter.type
    if hasattr(kind, "choices"):
        values = [getattr(choice, "value", choice) for choice in kind.choices]
        return ", ".join(map(str, values))
    low, high = getattr(kind, "min", None), getattr(kind, "max", None)
    name = parameter.metavar or kind.name.replace(" range", "")
    if low is not None and high is not None:
        return f"{name}, {low} to {high}"
    return name if low is None else f"{name} ≥ {low}"


def _code(text: str) -> str:
    return f"`{text}`".replace("|", r"\|") if text else ""


def cell(text: str) -> str:
    """Text inside a table."""
    return " ".join(text.split()).replace("|", r"\|").replace("*", r"\*").replace("<", "&lt;")
