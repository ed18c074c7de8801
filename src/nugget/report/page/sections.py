"""What can stand on a page. Each function makes the plain data of one section."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

Section = dict[str, Any]
Scale = Literal["linear", "log"]


def _without_none(**items: Any) -> Section:
    return {key: value for key, value in items.items() if value is not None and value != ""}


def text(*paragraphs: str, title: str = "") -> Section:
    """Plain paragraphs."""
    return _without_none(kind="text", title=title, paragraphs=list(paragraphs))


def figures(items: Sequence[tuple[str, str, str]], title: str = "") -> Section:
    """A few large numbers: label, value, and a note below it."""
    return _without_none(kind="figures", title=title, items=[list(one) for one in items])


# --------------------------------------------------------------------------- plots


def points(x: str, y: str, error: str | None = None, **more: Any) -> Section:
    """One mark per row; `error` is a column of standard deviations along y."""
    return _without_none(kind="points", x=x, y=y, error=error, **more)


def line(
    x: str, y: str, name: str = "", reduce: Literal["", "min", "rms"] = "", steps: bool = False
) -> Section:
    """A line through the rows; `reduce` takes the lowest so far, or the rms of the last 20."""
    return _without_none(kind="line", x=x, y=y, name=name, reduce=reduce, steps=steps or None)


def curve(
    name: str,
    x: Sequence[float],
    y: Sequence[float],
    low: Sequence[float] | None = None,
    high: Sequence[float] | None = None,
    steps: bool = False,
) -> Section:
    """A curve of its own numbers, with a band from `low` to `high`."""
    return _without_none(
        kind="curve", name=name, x=list(x), y=list(y), steps=steps or None,
        low=None if low is None else list(low), high=None if high is None else list(high),
    )  # fmt: skip


def level(y: float, name: str = "") -> Section:
    """A horizontal line."""
    return _without_none(kind="level", y=y, name=name)


def zone(low: float, high: float, name: str = "") -> Section:
    """A horizontal band."""
    return _without_none(kind="zone", low=low, high=high, name=name)


def diagonal() -> Section:
    """y = x."""
    return {"kind": "diagonal"}


def axis(
    label: str = "",
    scale: Scale = "linear",
    relative: bool | str = False,
    limits: tuple[float | None, float | None] | None = None,
    robust: bool = False,
) -> Section:
    """`relative`: above the lowest value, or above the lowest one of the column of that name.

    `robust`: few far values do not stretch the axis.
    """
    return _without_none(
        label=label, scale=scale, relative=relative or None, robust=robust or None,
        limits=None if limits is None else list(limits),
    )  # fmt: skip


def plot(
    data: str,
    layers: Sequence[Section],
    *,
    title: str = "",
    caption: str = "",
    x: Section | None = None,
    y: Section | None = None,
    colors: Sequence[str] = (),
    square: bool = False,
) -> Section:
    """A plot of the rows of `data` (empty: of curves only).

    `colors` are columns to colour points by: words get colours and shapes, numbers a scale. If
    there are several, the reader chooses. `square` gives both axes one scale.
    """
    return _without_none(
        kind="plot", data=data, layers=list(layers), title=title, caption=caption, x=x, y=y,
        colors=list(colors), square=square or None,
    )  # fmt: skip


# --------------------------------------------------------------------------- structures


def gallery(
    items: Sequence[Mapping[str, Any]],
    *,
    title: str = "",
    caption: str = "",
    values: Mapping[str, str] | None = None,
    empty: str = "",
) -> Section:
    """Structures side by side; `values` names numbers per atom and describes them.

    An item has `structure` (its number), `title`, `facts` (pairs of label and value).
    """
    return _without_none(
        kind="gallery", items=list(items), title=title, caption=caption, values=values, empty=empty
    )


def item(structure: int, title: str, facts: Sequence[tuple[str, str]] = ()) -> Section:
    """One structure of a gallery."""
    return {"structure": structure, "title": title, "facts": [list(one) for one in facts]}


def film(
    structures: Sequence[int],
    *,
    title: str = "",
    caption: str = "",
    values: Mapping[str, str] | None = None,
) -> Section:
    """Structures one after the other: dynamics, a path. `values` as in a gallery."""
    return _without_none(
        kind="film", structures=list(structures), title=title, caption=caption, values=values
    )


# --------------------------------------------------------------------------- words and numbers


def table(
    columns: Sequence[str],
    rows: Sequence[Sequence[Any]],
    *,
    title: str = "",
    caption: str = "",
    structures: Sequence[int | None] | None = None,
    links: Sequence[str | None] | None = None,
    digits: Sequence[int | None] | None = None,
    empty: str = "None.",
    folded: bool = False,
) -> Section:
    """A table; a click on a row shows its structure. `links` are addresses relative to the page.

    `digits` after the point, by column; without them numbers are shown with four figures.
    """
    return _without_none(
        kind="table", columns=list(columns), rows=[list(row) for row in rows], title=title,
        caption=caption, empty=empty, folded=folded or None,
        structures=None if structures is None else list(structures),
        links=None if links is None else list(links),
        digits=None if digits is None else list(digits),
    )  # fmt: skip


def rows(data: str, *, title: str = "", folded: bool = True) -> Section:
    """All rows of a `Data` as a table."""
    return _without_none(kind="rows", data=data, title=title, folded=folded or None)


def bars(items: Sequence[tuple[str, float, str]], *, title: str = "", caption: str = "") -> Section:
    """Horizontal bars: label, length, and what is written beside it."""
    return _without_none(
        kind="bars", items=[list(one) for one in items], title=title, caption=caption
    )


def code(content: str, *, title: str = "", filename: str = "", folded: bool = False) -> Section:
    """Text as it is, to copy, or to download under `filename`."""
    return _without_none(
        kind="code", text=content, title=title, filename=filename, folded=folded or None
    )


def side_by_side(*parts: Section) -> Section:
    """Sections beside each other where there is room."""
    return {"kind": "row", "sections": list(parts)}
