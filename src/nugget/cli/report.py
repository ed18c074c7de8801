"""`nugget report`: one file to look at, keep and send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit
from nugget.cli._output import Force, refuse_existing


def report(
    run: Annotated[Path, typer.Argument(help="The directory of a search.", metavar="RUN")],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The page. Default: RUN/report.html."),
    ] = None,
    trust: opt.Trust = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Write a page about a search: energies, error bars, structures in 3D.

    [bold]Examples[/bold]

        nugget report runs/Au20-seed0
        nugget report runs/Au20-seed0 -o au20.html --force

    The page is one file. It works offline and as an attachment: it holds all
    structures, and asks no other host for anything. The search may still be
    running; `nugget watch RUN` shows the same page while it does.
    """
    from nugget.report.page import write_page
    from nugget.report.search_page import SearchPage

    target = output or run / "report.html"
    made = SearchPage(run, trust)
    refuse_existing(target, force)
    made.read()
    html = made.html()
    write_page(target, html)
    size = len(html.encode())
    if json:
        emit({"page": target, "bytes": size, "evaluations": len(made.records)})
    else:
        typer.echo(f"Written: {target} ({size / 1e6:.2g} MB)")
