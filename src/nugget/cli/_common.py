"""What commands share: tables, progress bars, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import typer

Progress = Callable[[int, int], None]


def emit(data: dict[str, Any]) -> None:
    """One JSON object on stdout; numbers that are not finite become null."""
    typer.echo(json.dumps(_finite(data), indent=2, default=_plain))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in value]
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return None
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return str(value)
    return value.tolist()  # arrays and scalars of NumPy


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table on stdout; all columns but the first are aligned right."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", title_style="bold")
    for k, column in enumerate(columns):
        made.add_column(column, justify="left" if k == 0 else "right", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, Text) else Text(str(cell)) for cell in row))
    Console().print(made)


def facts(title: str, rows: Sequence[tuple[str, object]]) -> None:
    """Names and values, one per line."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    made = Table(title=title, title_justify="left", title_style="bold", show_header=False)
    made.add_column(style="cyan", no_wrap=True)
    made.add_column(overflow="fold")
    for name, value in rows:
        made.add_row(Text(name), Text(str(value)))
    Console().print(made)


class _Step:
    """What a `progress=` argument takes: called with numbers, and told of phases."""

    def __init__(self, label: str, bar: Any) -> None:
        self._label, self._bar = label, bar
        self._task = bar.add_task(label, total=None, count="")

    def __call__(self, done: int, total: int) -> None:
        self._bar.update(self._task, completed=done, total=total, count=f"{done}/{total}")

    def phase(self, name: str) -> None:
        """A part of the work whose length is not known beforehand."""
        description = f"{self._label}: {name}"
        self._bar.reset(self._task, total=None, description=description, count="")


@contextmanager
def progress(label: str, shown: bool = True) -> Iterator[Progress | None]:
    """A bar on stderr, for terminals only; yields what a `progress=` argument wants."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    texts = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[count]}"))
    columns = (*texts, TimeElapsedColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield _Step(label, bar)


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table, or a dash."""
    return "–" if value is None or value != value else f"{value:.{digits}g}"


def several(count: int, thing: str) -> str:
    """1 structure, 2 structures."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
