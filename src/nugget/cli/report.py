"""`nugget report`: one file to look at, keep and send."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, progress
from nugget.cli._output import Force, refuse_existing


def report(
    run: Annotated[
        Path,
        typer.Argument(help="A directory of search, campaign, md or neb.", metavar="RUN"),
    ],
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The page. Default: RUN/report.html."),
    ] = None,
    searches: Annotated[
        bool,
        typer.Option("--searches/--no-searches", help="Of a campaign: a page for every search."),
    ] = True,
    trust: opt.Trust = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Write a page about a run: energies, error bars, structures in 3D.

    [bold]Examples[/bold]

        nugget report runs/Au20-seed0
        nugget report runs/Au20-seed0 -o au20.html --force
        nugget report runs/campaign

    RUN is what `nugget search`, `nugget campaign`, `nugget md` or `nugget neb`
    has written; which it is, is seen. It may still be running: `nugget watch RUN`
    shows the page of a search while it grows.

    The page is one file. It works offline and as an attachment: it holds all
    structures, and asks no other host for anything. Pages of a campaign's searches
    are in a folder beside its page, and those that are there already are kept.
    """
    from nugget.report.directories import make_pages
    from nugget.report.page import write_page

    target = output or run / "report.html"
    if run.is_dir():
        refuse_existing(target, force)
    with progress("Reading searches", not json) as step:
        made = make_pages(run, target.stem, trust, searches, step)
    write_page(target, made.html)
    written = 0
    with progress("Pages of searches", not json) as step:
        for k, (name, page) in enumerate(made.others.items()):
            file = target.parent / name
            if force or not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                write_page(file, page())
                written += 1
            if step is not None:
                step(k + 1, len(made.others))
    size = len(made.html.encode())
    if json:
        emit({"page": target, "bytes": size, "pages_of_searches": written, **made.numbers})
        return
    typer.echo(f"Written: {target} ({size / 1e6:.2g} MB)")
    if made.others:
        kept = len(made.others) - written
        typer.echo(f"Written: {written} pages in {target.with_suffix('')} ({kept} kept)")
