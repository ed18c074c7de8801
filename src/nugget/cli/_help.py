"""Help texts that fit any terminal."""

from __future__ import annotations

import inspect
import re


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
