"""Text for people: objects in a terminal or notebook, times, numbers of things, progress."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape

#: Called with the number of finished steps and their total.
Progress = Callable[[int, int], None]

_CELL = "text-align:left;padding:2px 10px 2px 0;vertical-align:top;background:transparent"

_NUMBER = _CELL + ";font-variant-numeric:tabular-nums"

_HEAD = _CELL + ";font-weight:600;border-bottom:1px solid currentColor"

_ROWS = 12  # of a long table; the rest is counted


@dataclass(frozen=True)
class Contents:
    """What there is to show: a line of words, named facts, a table, and pictures."""

    title: str
    words: Sequence[str]  # of the line, joined by commas
    facts: Mapping[str, str] = field(default_factory=dict)
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[str]] = ()
    #: Makes SVG pictures, which only notebooks show.
    pictures: Callable[[], Sequence[str]] | None = None


class Shown:
    """Gives `__repr__` and `_repr_html_` to a class that defines `contents`."""

    def contents(self) -> Contents:
        raise NotImplementedError

    def __repr__(self) -> str:
        found = self.contents()
        return f"<{found.title}: {', '.join(found.words)}>"

    def _repr_html_(self) -> str:
        """Pictures and a table for notebooks, in their colours; all text is escaped."""
        found = self.contents()
        parts = [f"<div><strong>{escape(found.title)}</strong> {escape(', '.join(found.words))}"]
        if found.pictures is not None and (pictures := "".join(found.pictures())):
            parts.append(f"<div>{pictures}</div>")
        if found.facts:
            facts = [(_cell("th", name), _cell("td", text)) for name, text in found.facts.items()]
            parts.append(_table(facts))
        if found.rows:
            lines: list[Iterable[str]] = [[_cell("th", name, _HEAD) for name in found.columns]]
            lines += [[_cell("td", text, _NUMBER) for text in row] for row in found.rows[:_ROWS]]
            parts.append(_table(lines))
            if (more := len(found.rows) - _ROWS) > 0:
                parts.append(f"<div>… and {more} more</div>")
        return "".join([*parts, "</div>"])


def _cell(tag: str, text: str, style: str = _CELL) -> str:
    return f'<{tag} style="{style}">{escape(text)}</{tag}>'


def _table(lines: Iterable[Iterable[str]]) -> str:
    inside = "".join(f"<tr>{''.join(cells)}</tr>" for cells in lines)
    return f'<table style="border-collapse:collapse;margin:4px 0">{inside}</table>'


def duration(seconds: float) -> str:
    """A time for people: 0.42 s, 17 s, 3 min 05 s, 2 h 10 min."""
    if seconds < 9.95:
        return f"{seconds:.2g} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


def counted(number: int, noun: str, plural: str = "") -> str:
    """As "1 structure" or "3 structures"; `plural` if an s is not enough."""
    return f"{number} {noun if number == 1 else plural or f'{noun}s'}"


def spread(values: Iterable[float], form: str = ".3f") -> str:
    """One value, or the smallest and the largest."""
    import numpy as np  # only here: commands must start quickly

    numbers = np.fromiter(values, float)
    low, high = f"{numbers.min():{form}}", f"{numbers.max():{form}}"
    return low if low == high else f"{low} to {high}"
