"""From plain data to one HTML file."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib import resources
from pathlib import Path
from typing import Any

from nugget.report.page.data import Data, to_json, written
from nugget.report.page.sections import Section
from nugget.report.page.structures import Structures
from nugget.structures.files import write_atomically

#: In the order in which they are put together. Each file may use what stands in those before it.
SCRIPTS = (
    "dom", "colors", "store", "scale", "marks", "legend", "plot", "plot_input", "geometry",
    "viewer", "viewer_input", "files", "inspector", "sections", "structure_sections",
    "live", "main",
)  # fmt: skip


def page(
    title: str,
    sections: Sequence[Section],
    *,
    structures: Structures | None = None,
    data: Sequence[Data] = (),
    subtitle: str = "",
    badge: tuple[str, str] | None = None,
    footer: str = "",
    live: Mapping[str, Any] | None = None,
    bare: bool = False,
) -> str:
    """The HTML of a page.

    `badge` is a word beside the title and its kind: good, busy, bad or plain. `live` is for pages
    that are served: the `address` of news, and the `session` and `revision` that the page holds.
    A `bare` page has neither header nor inspector: a frame in something larger.
    """
    spec: dict[str, Any] = {
        "title": title,
        "subtitle": subtitle,
        "badge": badge,
        "footer": footer,
        "live": live,
        "bare": bare,
        "structures": (structures or Structures()).spec(),
        "data": {one.name: one.spec() for one in data},
        "sections": list(sections),
    }
    style, script = asset("page.css"), assembled_script()
    origin = "'self'" if live else "'none'"
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; "
        f"img-src data: blob:; connect-src {origin}; base-uri 'none'; form-action 'none'"
    )
    head = (
        "<!doctype html>\n"
        '<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        '<meta name="referrer" content="no-referrer">\n'
        '<link rel="icon" href="data:,">\n'
        f"<title>{escape(written(title))}</title>\n<style>{style}</style>\n</head>\n"
    )
    return (
        f"{head}<body>\n"
        "<noscript>This page draws with JavaScript; allow it for this file.</noscript>\n"
        f'<script type="application/json" id="page-data">{to_json(spec)}</script>\n'
        f"<script>{script}</script>\n</body>\n</html>\n"
    )


def write_page(path: Path, html: str) -> None:
    """Write a page in one step."""
    write_atomically(path, html)


def asset(name: str) -> str:
    """A file that the package carries."""
    return (resources.files(__package__) / "assets" / name).read_text(encoding="utf-8")


def assembled_script() -> str:
    """All scripts as one, in a scope of their own."""
    parts = "\n".join(asset(f"{name}.js") for name in SCRIPTS)
    return f'(() => {{\n"use strict";\n{parts}}})();\n'


def _hash(content: str) -> str:
    """What a content security policy knows a script or a style by."""
    return "sha256-" + b64encode(sha256(content.encode("utf-8")).digest()).decode("ascii")
