"""Every error message of nugget, read from the sources."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

from _commands import cell

import nugget

ROOT = Path(nugget.__file__).parent
#: Calls whose first text is shown to a user. `ValueError`s of settings' validators are among them.
RAISED = {"NuggetError", "ValueError", "ConformanceError", "Damaged", "_Bad"}

#: Where the remedy begins, outside of ‹…›: a semicolon, a full stop, a colon and an imperative.
_VERBS = "write|give|say|try|continue|use|choose|pip|add|set|install|remove|run"
_BREAK = re.compile(rf"(;|\.|:(?= (?:{_VERBS})\b)) (?=[^‹›]*(?:‹[^›]*›[^‹›]*)*$)")


def messages() -> str:
    """The messages by package, with what to do; names in ‹…› are filled in."""
    packages: dict[str, list[str]] = {}
    for file in sorted(ROOT.rglob("*.py")):
        package = file.relative_to(ROOT).parts[0].removesuffix(".py")
        texts = [text for node in ast.walk(ast.parse(file.read_text())) if (text := _message(node))]
        packages.setdefault(package, []).extend(texts)
    return "\n\n".join(
        _section(package, sorted(set(texts), key=str.lower))
        for package, texts in sorted(packages.items())
        if texts
    )


def _section(package: str, texts: list[str]) -> str:
    about = (import_module(f"nugget.{package}").__doc__ or "").partition("\n")[0]
    lines = [f"## {package}", "", cell(about), "", "| problem | what to do |", "|---|---|"]
    for text in texts:
        problem, remedy = _parts(text)
        lines.append(f"| {cell(problem)} | {cell(remedy)} |")
    return "\n".join(lines)


def _parts(text: str) -> tuple[str, str]:
    """The problem and the remedy of a message."""
    found = _BREAK.search(text)
    if found is None:
        return text, ""
    remedy = text[found.end() :]
    return text[: found.start()] + ".", remedy[:1].upper() + remedy[1:]


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
