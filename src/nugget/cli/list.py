"""`nugget list`: all runs below a directory."""

from __future__ import annotations

from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli._console import Force, emit, refuse_existing, table
from nugget.cli._options import Json
from nugget.display import counted

if TYPE_CHECKING:
    from nugget.report.runs import Run


_COLUMNS = ("run", "kind", "state", "system", "engine", "evaluations", "best, eV", "eV/atom")
_WIDE, _NARROW = 110, (0, 1, 2, 3, 5, 6)  # columns of a terminal, and what is shown on less


def list(
    directory: Annotated[
        Path, typer.Argument(help="Directory to search, with all below it.", metavar="DIR")
    ] = Path("."),
    evaluations: Annotated[
        Path | None,
        typer.Option(help="Write every evaluation of these runs: .csv or .parquet."),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write a page: all runs in a sortable table, with pictures."),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """List all runs below a directory, their state and their best energy.

    [bold]Examples[/bold]

        nugget list runs
        nugget list . --json
        nugget list runs --html runs/index.html
        nugget list runs --evaluations all.parquet

    Runs are searches, campaigns, dynamics, paths, data sets and labelled files. They are only
    read, and may be in progress. Best energies are in eV, and enthalpies for crystals under
    pressure; runs with several formulas have eV/atom only. Evaluations are those of the budget and,
    after a plus sign, of final relaxations. The page links to the pages that
    `nugget report` has written into the run directories. Parquet needs the package pyarrow;
    pandas reads both kinds of table.
    """
    from nugget.report.list_page import list_page
    from nugget.report.page import write_page
    from nugget.report.runs import find_runs, write_evaluations

    for file in (evaluations, html):
        if file is not None:
            refuse_existing(file, force)
    runs = find_runs(directory)
    count = None if evaluations is None else write_evaluations(evaluations, runs)
    if html is not None:
        write_page(html, list_page(runs, directory, html))
    if json:
        written = {"file": evaluations, "evaluations": count, "page": html}
        emit({"directory": directory, "runs": [run.to_dict() for run in runs], **written})
        return
    if not runs:
        typer.echo(f"There is no run in {directory} or below it.")
        return
    shown = range(len(_COLUMNS)) if get_terminal_size().columns >= _WIDE else _NARROW
    rows = [[cells[k] for k in shown] for cells in map(_cells, runs)]
    table(f"{counted(len(runs), 'run')} in {directory}", [_COLUMNS[k] for k in shown], rows)
    for run in runs:
        if run.state in ("unreadable", "failed") and run.reason:
            typer.echo(f"{run.path}: {run.reason}", err=True)
    if evaluations is not None:
        typer.echo(f"Written: {evaluations} ({counted(count or 0, 'evaluation')})")
    if html is not None:
        typer.echo(f"Written: {html}")


def _cells(run: Run) -> tuple[str, ...]:
    count, more = run.evaluations - run.final_evaluations, run.final_evaluations
    done = str(count) if run.budget is None else f"{count}/{run.budget}"
    done += f" + {more}" if more else ""
    failed = f" ({run.failures} failed)" if run.failures else ""
    best = "–" if run.best_energy is None else f"{run.best_energy:.3f}"
    per_atom = "–" if run.best_per_atom is None else f"{run.best_per_atom:.4f}"
    return (
        run.path, run.kind, run.state, run.formula or "–", run.engine or "–",
        "–" if run.kind == "campaign" else done + failed, best, per_atom,
    )  # fmt: skip
