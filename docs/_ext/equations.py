"""Equations as outlines in SVG, drawn by Matplotlib: no script, no font, no other host.

Browsers render MathML well only with an OpenType font for mathematics, which many systems lack.
Outlines look the same everywhere and take the colour of the text, in both themes.
"""

from __future__ import annotations

import re
from html import escape
from typing import Any

import numpy as np
from docutils import nodes
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import text_to_path
from sphinx.application import Sphinx

#: Size of the outlines; lengths are divided by it, so that they are in em.
UNIT = 100.0
FONT = FontProperties(size=UNIT, math_fontfamily="stix")
LETTER = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}
_TAG = re.compile(r"\\tag\{([^}]*)\}")
_SPLIT = re.compile(r"\\begin\{split\}(.*)\\end\{split\}", re.DOTALL)


def outline(latex: str) -> str:
    """One line of LaTeX as an SVG element whose lengths are in em."""
    text = f"${' '.join(latex.split())}$"
    width, height, depth = text_to_path.get_text_width_height_descent(text, FONT, ismath=True)
    vertices, codes = text_to_path.get_text_path(FONT, text, ismath=True)
    drawing = _drawing(np.asarray(vertices), np.asarray(codes))
    style = (
        f"width:{width / UNIT:.3f}em;height:{height / UNIT:.3f}em;"
        f"vertical-align:{-depth / UNIT:.3f}em"
    )
    return (
        f'<svg role="math" aria-label="{escape(latex, quote=True)}" style="{style}" '
        f'viewBox="0 {depth - height:.1f} {width:.1f} {height:.1f}"><path d="{drawing}"/></svg>'
    )


def _drawing(vertices: np.ndarray, codes: np.ndarray) -> str:
    """The commands of an SVG path; SVG's y axis points down."""
    words: list[str] = []
    last = None
    for (x, y), code in zip(vertices, codes, strict=True):
        if code == Path.CLOSEPOLY:
            words.append("Z")
        else:
            # The points of one curve follow a single letter; SVG repeats the command by itself.
            words.append(f"{'' if code == last else LETTER[code]}{x:.1f} {-y:.1f}")
        last = None if code in (Path.CLOSEPOLY, Path.MOVETO) else code
    return " ".join(words)


def visit_math(writer: Any, node: nodes.math) -> None:
    """An equation in the text."""
    writer.body.append(outline(node.astext()))
    raise nodes.SkipNode


def visit_math_block(writer: Any, node: nodes.math_block) -> None:
    r"""A displayed equation. `\tag{7}` numbers it; `split` breaks it into lines."""
    text, tag = _TAG.sub("", node.astext()), _TAG.search(node.astext())
    text = _SPLIT.sub(r"\1", text).replace("&", " ").replace(r"\frac", r"\dfrac")
    lines = text.split(r"\\")
    equation = "<br>".join(outline(line) for line in lines)
    number = f'<span class="eqno">({escape(tag[1])})</span>' if tag else ""
    anchor = f' id="{escape(node["ids"][0])}"' if node.get("ids") else ""
    writer.body.append(
        f'<div class="math-block"{anchor}><div class="equation">{equation}</div>{number}</div>\n'
    )
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("outlines", (visit_math, None), (visit_math_block, None))
    app.config.html_math_renderer = "outlines"
    return {"parallel_read_safe": True, "parallel_write_safe": True}
