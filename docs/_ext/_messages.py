"""Every error message of nugget, read from the sources."""

from __future__ import annotations

import ast
from pathlib import Path

from _commands import cell

import nugget

ROOT = Path(nugget.__file__).parent
#: Calls whose first text is shown to a user. `ValueError`s of settings' validators are among them.
RAISED = {"NuggetError", "ValueError", "ConformanceError", "Damaged", "_Bad"}


def messages() -> str:
    """The messages by package; names in ‹…› are filled in."""
    packages: dict[str, list[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        package = file.relative_to(ROOT).parts[0].removesuffix(".py")
        texts = [text for node in ast.walk(ast.parse(file.read_text())) if (text := _message(node))]
        packages.setdefault(package, []).extend(texts)
    blocks = []
    for package, texts in sorted(packages.items()):
        distinct = sorted(set(texts), key=str.lower)
        if distinct:
            blocks.append(f"## {package}\n\n" + "\n".join(f"- {cell(text)}" for text in distinct))
    return "\n\n".join(blocks)


def _message(node: ast.AST) -> str:
    if not isinstance(node, ast.Call) or not node.args:
        return ""
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    text = _plain(node.args[0]) if name in RAISED else ""
    return text if " " in text.strip("‹›") else ""


def _plain(node: ast.AST) -> str:
    """A text or an f-string, with what is filled in between ‹ and ›."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        return "".join(_plain(part) for part in node.values)
    if isinstance(node, ast.FormattedValue):
        words = ast.unparse(node.value)
        return f"‹{words}›" if len(words) < 30 else "‹…›"
    if isinstance(node, ast.BinOp):
        return _plain(node.left) + _plain(node.right)
    return "‹…›"
