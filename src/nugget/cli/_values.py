"""Values as users type them: TOML first, plain text otherwise."""

from __future__ import annotations

from typing import Any


def typed(text: str) -> Any:
    """A value as in TOML (2, true, [1, 2], {Au = "x"}) or Python ((1, 2), None), else the text."""
    import tomllib
    from ast import literal_eval

    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        pass
    try:
        return literal_eval(text.strip())
    except (ValueError, SyntaxError):
        return text.strip()


def engine_options(texts: list[str]) -> dict[str, Any]:
    """The --option NAME=VALUE of an engine."""
    from nugget.errors import NuggetError

    options: dict[str, Any] = {}
    for text in texts:
        name, sign, value = text.partition("=")
        if not sign or not name.isidentifier():
            raise NuggetError(f"--option {text}: write name=value, as xc=PBE or kpts=[2,2,2].")
        options[name] = typed(value)
    return options


def setting(text: str) -> tuple[str, Any]:
    """The --set KEY=VALUE of a search."""
    import tomllib

    from nugget.errors import NuggetError
    from nugget.search.config import sections_of

    key, equals, value = (part.strip() for part in text.partition("="))
    if not equals or "." not in key:
        sections = [f"{name}.{key}" for name in sections_of(key)] if equals else []
        hint = (
            f"did you mean {' or '.join(sections)}?" if sections else "for example search.hops=2."
        )
        raise NuggetError(f"--set {text}: write section.option=value; {hint}")
    try:
        return key, tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key, value
