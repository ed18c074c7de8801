"""Equations as MathML, which browsers render themselves: no script, no fonts, no other host."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx

_TAG = re.compile(r"\\tag\{([^}]*)\}")


def visit_math(writer: Any, node: nodes.math) -> None:
    """An equation in the text."""
    writer.body.append(convert(node.astext()))
    raise nodes.SkipNode


def visit_math_block(writer: Any, node: nodes.math_block) -> None:
    """A displayed equation; `\\tag{7}` numbers it as in the paper."""
    text, tag = _TAG.sub("", node.astext()), _TAG.search(node.astext())
    number = f'<span class="eqno">({escape(tag[1])})</span>' if tag else ""
    anchor = f' id="{escape(node["ids"][0])}"' if node.get("ids") else ""
    equation = convert(text, display="block")
    writer.body.append(f'<div class="math-block"{anchor}>{equation}{number}</div>\n')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (visit_math, None), (visit_math_block, None))
    app.config.html_math_renderer = "mathml"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
