"""What commands share: options, tables, progress bars, JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any

import typer

Json = Annotated[
    bool, typer.Option("--json", help="Print one JSON object for machines instead of tables.")
]
Index = Annotated[
    str, typer.Option("--index", "-i", help="Which structures of DATA: '0:100', '::10', '-1'.")
]
ModelFile = Annotated[
    Path, typer.Argument(help="A model that `nugget fit` wrote.", metavar="MODEL")
]
DataFile = Annotated[
    Path, typer.Argument(help="Structures: any file that ASE reads, also .gz.", metavar="DATA")
]
Trust = Annotated[
    bool,
    typer.Option(
        "--trust", help="Accept a model whose prior names code (module:factory) to be run."
    ),
]

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
    """A table on stdout; all columns but the first are set right."""
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


@contextmanager
def progress(label: str, shown: bool = True) -> Iterator[Progress | None]:
    """A bar on stderr, for terminals only; yields what a `progress=` argument wants."""
    if not shown or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (TextColumn(label), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(label, total=None)

        def step(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield step


class Stages:
    """What a long command is doing: `tell` names the stage, `step` counts within it."""

    def __init__(self, bar: Any = None, task: Any = None) -> None:
        self._bar, self._task = bar, task

    def tell(self, name: str) -> None:
        if self._bar is not None:
            self._bar.update(self._task, description=name, completed=0, total=None)

    def step(self, done: int, total: int) -> None:
        if self._bar is not None:
            self._bar.update(self._task, completed=done, total=total)


@contextmanager
def stages(shown: bool = True) -> Iterator[Stages]:
    """A bar on stderr, for terminals only, whose text tells the stage; it moves in every stage."""
    if not shown or not sys.stderr.isatty():
        yield Stages()
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        SpinnerColumn,
        TextColumn,
        TimeElapsedColumn,
    )
    from rich.progress import Progress as Bar

    columns = (
        SpinnerColumn(), TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(),
        TimeElapsedColumn(),
    )  # fmt: skip
    with Bar(*columns, console=Console(stderr=True), transient=True) as bar:
        yield Stages(bar, bar.add_task("", total=None))


def number(value: float | None, digits: int = 4) -> str:
    """A number for a table, or a dash."""
    return "–" if value is None or value != value else f"{value:.{digits}g}"
