"""LaTeX as outlines in SVG, by Matplotlib's own interpreter of formulas."""

from __future__ import annotations

import re
from html import escape

import numpy as np
from matplotlib.font_manager import FontProperties
from matplotlib.path import Path
from matplotlib.textpath import text_to_path

#: Size of the outlines; lengths are divided by it, so that they are in em.
UNIT = 100.0
FONT = FontProperties(size=UNIT, math_fontfamily="stix")
TAG = re.compile(r"\\tag\{([^}]*)\}")
SPLIT = re.compile(r"\\begin\{split\}(.*)\\end\{split\}", re.DOTALL)
LETTER = {Path.MOVETO: "M", Path.LINETO: "L", Path.CURVE3: "Q", Path.CURVE4: "C"}


def displayed(latex: str) -> tuple[list[str], str]:
    r"""Lines of a displayed equation, and its number or nothing.

    `\tag{7}` numbers the equation; `split` breaks it into lines.
    """
    text, tag = TAG.sub("", latex), TAG.search(latex)
    text = SPLIT.sub(r"\1", text).replace("&", " ").replace(r"\frac", r"\dfrac")
    return [outline(line) for line in text.split(r"\\")], tag[1] if tag else ""


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
