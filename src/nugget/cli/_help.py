"""Help texts that fit any terminal."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

from typer.core import TyperCommand, TyperOption

#: What stands for a value in the help of an option; nothing for flags.
_WORDS: dict[Any, str] = {bool: "", int: "N", float: "X", str: "TEXT", Path: "FILE"}


def flowing(doc: str | None) -> str:
    """A docstring whose paragraphs are one line each, so that the terminal breaks them.

    Indented lines, the examples, stay as they are. Square brackets are text, but for [bold].
    """
    blocks = re.split(r"\n\s*\n", inspect.cleandoc(doc or ""))
    joined = [
        block if block.startswith(" ") else " ".join(line.strip() for line in block.splitlines())
        for block in blocks
    ]
    return re.sub(r"\[(?!/?bold\])", r"\\[", "\n\n".join(joined))


class PlainCommand(TyperCommand):
    """A command that names the values of its options in short words, not in Python's.

    Names to choose from stand in the help instead of the narrow column of the values.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        hints = get_type_hints(self.callback) if self.callback else {}
        for option in self.params:
            if isinstance(option, TyperOption) and option.metavar is None:
                _describe(option, _kind(hints.get(str(option.name), str)))

    def get_help_option(self, ctx: Any) -> Any:
        option = super().get_help_option(ctx)
        if option is not None:
            option.metavar = ""
        return option


def _describe(option: TyperOption, kind: Any) -> None:
    choices = [str(choice) for choice in get_args(kind)]
    option.metavar = "NAME" if choices else _WORDS[kind]
    if not all(choice in (option.help or "") for choice in choices):
        option.help = f"{option.help} One of {', '.join(choices)}."


def _kind(hint: Any) -> Any:
    """The type of one value: what may be left out, or repeated, is no other type."""
    if get_origin(hint) in (None, Literal):
        return hint
    [kind] = [kind for kind in get_args(hint) if kind is not type(None)]
    return _kind(kind)
