"""The sections of a page; each function returns the plain data of one section.

`more` stands for the options of a section, which are omitted if they are empty: `title`, `caption`,
`span` (half, third, or wide for two thirds of the page), and those that the function names. NumPy
arrays and tuples become lists in the JSON of the page.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from numpy.typing import NDArray

Section = dict[str, Any]
Values = Sequence[float | None] | NDArray[Any] | None


def _section(kind: str, **items: Any) -> Section:
    return {"kind": kind, **_given(items)}


def _given(items: Section) -> Section:
    return {k: v for k, v in items.items() if v is not None and v is not False and v != ""}


def text(*paragraphs: str, title: str = "") -> Section:
    """Plain paragraphs."""
    return _section("text", title=title, paragraphs=list(paragraphs))


def remark(text: str) -> Section:
    """A sentence between the panels."""
    return _section("remark", text=text)


def figures(items: Sequence[tuple[str, str, str]], title: str = "") -> Section:
    """Key figures, each with a label, a value and a note."""
    return _section("figures", title=title, items=[list(one) for one in items])


def verdict(data: Section) -> Section:
    """A verdict as plain data (`Verdict.to_dict`): sentences, badges, uses, methods."""
    return _section("verdict", title="Verdict", **data)


def heading(name: str) -> Section:
    """The beginning of a group of sections, which the navigation of the page leads to."""
    return _section("heading", name=name)


# --------------------------------------------------------------------------- plots


def points(x: str, y: str, error: str | None = None, **more: Any) -> Section:
    """One mark per row; `error` is a column of standard deviations along y.

    `more` is mark; "step" draws short horizontal lines.
    """
    return _section("points", x=x, y=y, error=error, **more)


def line(
    x: str, y: str, name: str = "", reduce: Literal["", "min", "rms"] = "", steps: bool = False
) -> Section:
    """A line through the rows; `reduce` gives the lowest so far, or the rms of the last 20."""
    return _section("line", x=x, y=y, name=name, reduce=reduce, steps=steps)


def curve(
    name: str, x: Values, y: Values, low: Values = None, high: Values = None, steps: bool = False
) -> Section:
    """A curve with its own values and an optional band from `low` to `high`; None leaves a gap."""
    lists = {"x": x, "y": y, "low": low, "high": high}
    given = {side: list(values) for side, values in lists.items() if values is not None}
    return _section("curve", name=name, steps=steps, **given)


def level(y: float, name: str = "") -> Section:
    """A horizontal line."""
    return _section("level", y=y, name=name)


def zone(low: float, high: float, name: str = "") -> Section:
    """A horizontal band."""
    return _section("zone", low=low, high=high, name=name)


def diagonal() -> Section:
    """y = x."""
    return _section("diagonal")


def axis(label: str = "", scale: Literal["linear", "log"] = "linear", **more: Any) -> Section:
    """An axis; `more` is relative, limits, robust, floor and integer.

    With `relative`, values are relative to the lowest one, or to the lowest one of the column of
    that name. `limits` are two numbers or None. With `robust`, a few outliers do not stretch the
    axis. `floor` is the lowest value of a logarithmic axis, which readers may make linear; smaller
    values stand there. With `integer`, ticks are whole numbers.
    """
    return _given({"label": label, "scale": scale, **more})


def plot(
    data: str, layers: Sequence[Section], *, colors: Sequence[str] = (), **more: Any
) -> Section:
    """A plot of the rows of `data`, which is empty for plots of curves only.

    `colors` are columns that can colour the points: categories get colours and shapes, numbers a
    colour scale. The reader chooses among several. `more` is x and y (see `axis`), square, which
    gives both axes one scale, and axes, the columns that readers may choose for x and y.
    """
    return _section("plot", data=data, layers=list(layers), colors=list(colors), **more)


# --------------------------------------------------------------------------- structures


def gallery(items: Sequence[Section], **more: Any) -> Section:
    """Structures (see `item`) side by side; `more` is empty and values.

    `values` maps names of values per atom to their labels, `empty` is the text without structures.
    """
    return _section("gallery", items=list(items), **more)


def item(structure: int, title: str, facts: Sequence[tuple[str, str]] = ()) -> Section:
    """One structure of a gallery, with facts as pairs of label and value."""
    return {"structure": structure, "title": title, "facts": [list(one) for one in facts]}


def film(structures: Sequence[int], **more: Any) -> Section:
    """Structures in sequence, as of dynamics or a path; `more` is values, as in a gallery."""
    return _section("film", structures=list(structures), **more)


# --------------------------------------------------------------------------- tables and texts


def table(
    columns: Sequence[str], rows: Sequence[Sequence[Any]], *, empty: str = "None.", **more: Any
) -> Section:
    """A table; `more` is structures, thumbnails, links, digits, folded and whole.

    A click on a row shows its structure. `thumbnails` are structures drawn in front of the rows.
    `links` are addresses relative to the page. A `whole` table is as long as its rows. `digits` are
    decimals by column; without them numbers have four significant digits.
    """
    cells = [list(row) for row in rows]
    return _section("table", columns=list(columns), rows=cells, empty=empty, **more)


def rows(data: str, *, title: str = "", folded: bool = True) -> Section:
    """All rows of a `Data` as a table."""
    return _section("rows", data=data, title=title, folded=folded)


def bars(items: Sequence[tuple[str, float, str]], **more: Any) -> Section:
    """Horizontal bars, each with a label, a length and a text."""
    return _section("bars", items=[list(one) for one in items], **more)


def code(content: str, **more: Any) -> Section:
    """Preformatted text to copy, or to download as `filename`; `more` is filename and folded."""
    return _section("code", text=content, **more)


def side_by_side(*parts: Section) -> Section:
    """Sections beside each other if the window is wide enough."""
    return {"kind": "row", "sections": list(parts)}
