"""Reference pages that are generated from the code when the site is built.

A page contains a line such as `<!-- generated: settings -->` or, with names,
`<!-- generated: commands fit predict -->`. In the site this line is replaced by text generated
from the commands, the settings, the registered parts, the docstrings or the messages.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from _commands import command_table, commands
from _messages import messages
from _python import contents, python
from _settings import engines, options, parts, settings

DOCS = Path(__file__).parents[1]
MARK = re.compile(r"^<!-- generated: (\w+)(?: ([\w. ]+))? -->$", re.MULTILINE)


def _listed() -> set[str]:
    """The pages that index.md and the index pages of folders name."""
    names = {"index"}
    for path in DOCS.rglob("index.md"):
        folder = path.parent.relative_to(DOCS)
        names.update(str(folder / word) for word in path.read_text(encoding="utf-8").split())
    return names


def unlisted() -> str:
    """A list of the pages that no index names, so that a new page is never lost."""
    listed = _listed()
    names = []
    for path in sorted(DOCS.rglob("*.md")):
        page = path.relative_to(DOCS).with_suffix("")
        orphan = path.read_text(encoding="utf-8").startswith("---\norphan: true")
        if page.parts[0] != "_build" and not orphan and str(page) not in listed:
            names.append(str(page))
    if not names:
        return ""
    return "\n".join(["```{toctree}", ":caption: More", ":hidden:", "", *names, "```"])


MAKERS: dict[str, Callable[..., str]] = {
    "unlisted": unlisted,
    "commands": commands,
    "command_table": command_table,
    "settings": settings,
    "parts": parts,
    "engines": engines,
    "options": options,
    "python": python,
    "contents": contents,
    "messages": messages,
}


def _fill(app: Any, docname: str, source: list[str]) -> None:
    source[0] = MARK.sub(lambda mark: MAKERS[mark[1]](*filter(None, [mark[2]])), source[0])


def _always(app: Any, env: Any, added: Any, changed: Any, removed: Any) -> list[str]:
    """Generated pages are read again at every build, because the code may have changed."""
    return [name for name in env.found_docs if name == "index" or name.startswith("reference/")]


def setup(app: Any) -> dict[str, Any]:
    app.connect("source-read", _fill)
    app.connect("env-get-outdated", _always)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
