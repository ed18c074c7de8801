"""Reference pages that are made from the code when the site is built.

A page holds a line `<!-- generated: commands -->`; what stands there in the site is made here from
the commands, the settings, the registered parts, the docstrings or the messages themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _commands import commands
from _messages import messages
from _python import python
from _settings import engines, parts, settings

DOCS = Path(__file__).parents[1]
MARK = re.compile(r"^<!-- generated: (\w+) -->$", re.MULTILINE)


def unlisted() -> str:
    """A list of the pages that index.md does not name, so that a new page is never lost."""
    listed = (DOCS / "index.md").read_text(encoding="utf-8").split()
    found = [path.relative_to(DOCS).with_suffix("") for path in sorted(DOCS.rglob("*.md"))]
    names = [str(p) for p in found if p.parts[0] != "_build" and str(p) not in listed]
    names.remove("index")
    if not names:
        return ""
    return "\n".join(["```{toctree}", ":caption: More", ":hidden:", "", *names, "```"])


MAKERS: dict[str, Callable[[], str]] = {
    "unlisted": unlisted,
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
    return [name for name in env.found_docs if name == "index" or name.startswith("reference/")]


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", _fill)
    app.connect("env-get-outdated", _always)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
