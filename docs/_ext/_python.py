"""The reference of Python names, from signatures and docstrings: one page per module."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from importlib import import_module
from types import ModuleType
from typing import Any


def python(name: str) -> str:
    """The public names of a module, as directives of Sphinx's Python domain."""
    module = import_module(name)
    parts = [text(inspect.getdoc(module) or "")]
    constants = []
    for key in public_names(module):
        value = getattr(module, key)
        if inspect.isclass(value) or inspect.isfunction(value):
            parts.append(_object(f"{name}.{key}", value))
        else:
            constants.append(f"- `{key}` = `{shortened(value)}`")
    return "\n\n".join([*parts, "\n".join(constants)])


def contents(name: str) -> str:
    """One line per public name of a module, for the overview."""
    module = import_module(name)
    rows = []
    for key in public_names(module):
        value = getattr(module, key)
        if inspect.isclass(value) or inspect.isfunction(value):
            summary = (inspect.getdoc(value) or "").partition("\n\n")[0]
            rows.append(
                f"| {{py:obj}}`{key} <{name}.{key}>` | {_escaped(' '.join(summary.split()))} |"
            )
    return "\n".join(["| name | description |", "|---|---|", *rows])


def public_names(module: ModuleType) -> list[str]:
    """`__all__`, or the public names that the module defines itself."""
    defined = [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    ]
    return list(getattr(module, "__all__", defined))


def shortened(value: Any) -> str:
    """The value of a constant, cut where it becomes long."""
    shown = " ".join(repr(value).split()).replace("`", "'")
    return shown if len(shown) < 90 else f"{shown[:87]}..."


def _object(path: str, value: Any) -> str:
    kind = "class" if inspect.isclass(value) else "function"
    body = [text(inspect.getdoc(value) or ""), *(_members(value) if kind == "class" else ())]
    return _directive(kind, f"{path}{_signature(value)}", body, ":" * 6)


def _members(value: type) -> Iterator[str]:
    """Public methods and properties of a class that have a docstring."""
    for key, member in sorted(vars(value).items()):
        plain = member.__func__ if isinstance(member, classmethod | staticmethod) else member
        doc = inspect.cleandoc(plain.__doc__ or "") if hasattr(plain, "__doc__") else ""
        if key.startswith("_") or not doc:
            continue
        if isinstance(plain, property):
            yield _directive("property", key, [text(doc)], ":" * 4)
        elif inspect.isfunction(plain):
            bound = not isinstance(member, staticmethod)
            option = {classmethod: ":classmethod:", staticmethod: ":staticmethod:"}
            body = [text(doc)]
            if (word := option.get(type(member))) is not None:
                body.insert(0, word)
            yield _directive("method", f"{key}{_signature(plain, bound)}", body, ":" * 4)


def _directive(kind: str, head: str, body: list[str], fence: str) -> str:
    options = [part for part in body if re.fullmatch(r":\w+:", part)]
    rest = [part for part in body if part and part not in options]
    lines = "\n".join([f"{fence}{{py:{kind}}} {head}", *options])
    return "\n\n".join([lines, *rest, fence])


def _signature(value: Any, bound: bool = False) -> str:
    """A signature with types, without `self`, and with `...` for defaults that have no literal."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return "()"
    parameters = list(found.parameters.values())
    if bound and parameters:
        parameters = parameters[1:]
    returns = found.return_annotation
    if inspect.isclass(value) or returns is None or returns == "None":
        returns = inspect.Signature.empty
    shown = str(
        inspect.Signature([_plain(p) for p in parameters], return_annotation=_Words.of(returns))
    )
    return re.sub(r"<[^<>]*>", "...", shown)


class _Words(str):
    """An annotation that is shown as it is written."""

    def __repr__(self) -> str:
        return str(self)

    @classmethod
    def of(cls, annotation: Any) -> Any:
        if annotation is inspect.Signature.empty:
            return annotation
        name = annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
        return cls(re.sub(r"(?:\w+\.)+\w+", _last_word, name))


def _last_word(dotted: re.Match[str]) -> str:
    """The class without its module; NumPy's stay as they are, since some of ours share a name."""
    name = dotted[0]
    return name if name.startswith(("np.", "numpy.")) else name.rpartition(".")[2]


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """The parameter with a short annotation, and `...` in place of a long default."""
    default = parameter.default
    if default is not inspect.Parameter.empty and len(repr(default)) > 40:
        default = _Words("...")
    return parameter.replace(annotation=_Words.of(parameter.annotation), default=default)


def text(doc: str) -> str:
    """A docstring as Markdown: `name : meaning` lines become a list, indented lines code."""
    blocks = []
    # Underlined words, as "Parameters", head a list; a directive must not contain a heading.
    doc = re.sub(r"^(\w[\w ]*)\n[-=]{3,}$", r"\1:\n", doc, flags=re.MULTILINE)
    for block in re.split(r"\n\s*\n", doc):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines):
            blocks.append("```text\n" + "\n".join(line[4:] for line in lines) + "\n```")
            continue
        out: list[str] = []
        for line in lines:
            entry = re.match(r"^([\w*, .]+?) : (.*)$", line)
            if entry:
                out.append(f"- `{entry[1]}`: {_escaped(entry[2])}")
            elif line.startswith(" ") and out:
                out[-1] += " " + _escaped(line.strip())
            else:
                if out and out[-1].startswith("- "):
                    out.append("")
                out.append(_escaped(line))
        blocks.append("\n".join(out))
    return "\n\n".join(blocks)


def _escaped(line: str) -> str:
    """Stars, brackets and angles of formulas are no markup; code in backticks stays."""
    pieces = re.split(r"(`[^`]*`)", line)
    keep = [p if p.startswith("`") else re.sub(r"([*<>\[\]|_#~$])", r"\\\1", p) for p in pieces]
    return "".join(keep)
