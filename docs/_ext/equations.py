"""Equations as outlines in SVG, drawn by Matplotlib: no script, no font, no other host.

Browsers render MathML well only with an OpenType font for mathematics, which many systems lack.
Outlines look the same everywhere and take the colour of the text, in both themes.
"""

from __future__ import annotations

from html import escape
from typing import Any

from _outlines import displayed, outline
from docutils import nodes
from sphinx.application import Sphinx


def visit_math(writer: Any, node: nodes.math) -> None:
    """An equation in the text."""
    writer.body.append(outline(node.astext()))
    raise nodes.SkipNode


def visit_math_block(writer: Any, node: nodes.math_block) -> None:
    """A displayed equation."""
    lines, tag = displayed(node.astext())
    equation = "<br>".join(lines)
    number = f'<span class="eqno">({escape(tag)})</span>' if tag else ""
    anchor = f' id="{escape(node["ids"][0])}"' if node.get("ids") else ""
    writer.body.append(
        f'<div class="math-block"{anchor}><div class="equation">{equation}</div>{number}</div>\n'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("outlines", (visit_math, None), (visit_math_block, None))
    app.config.html_math_renderer = "outlines"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
