"""Reference pages that are made from the code when the site is built.

A page holds a line `<!-- generated: commands -->`; what stands there in the site is made here from
the commands, the settings, the registered parts, the docstrings or the messages themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from _commands import commands
from _messages import messages
from _python import python
from _settings import engines, parts, settings

MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)
MAKERS: dict[str, Callable[[], str]] = {
    "commands": commands,
    "settings": settings,
    "parts": parts,
    "engines": engines,
    "python": python,
    "messages": messages,
}


def _fill(app: Any, docname: str, source: list[str]) -> None:
    source[0] = MARK.sub(lambda found: MAKERS[found[1]](), source[0])


def _always(app: Any, env: Any, added: Any, changed: Any, removed: Any) -> list[str]:
    """Generated pages are read anew at every build: the code may have changed."""
    return [name for name in env.found_docs if name.startswith("reference/")]


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", _fill)
    app.connect("env-get-outdated", _always)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
