"""`nugget report`: a page about a run in one HTML file."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, emit, progress, refuse_existing


def report(
    run: Path = Argument(
        ..., help="Directory of a search, campaign, md, neb or saddle run.", metavar="RUN"
    ),
    output: Path | None = Option(
        None, "--output", "-o", help="File of the page. Default: RUN/report.html."
    ),
    searches: bool = Option(
        True, "--searches/--no-searches", help="Pages for the searches of a campaign."
    ),
    trust: opt.Trust = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Write a page about a run with energies, error bars and 3D structures.

    [bold]Examples[/bold]

        nugget report runs/Au20-seed0
        nugget report runs/Au20-seed0 -o au20.html --force
        nugget report runs/campaign

    RUN is a directory written by `nugget search`, `nugget campaign`, `nugget md`
    `nugget neb` or `nugget saddle`; the kind is detected automatically. The run may be in
    progress; `nugget watch RUN` shows a page of a search that updates itself.

    The page is one file that contains all structures and needs no network
    access. The pages of a campaign's searches are in a folder beside its page;
    existing ones are kept.
    """
    from nugget.report.directories import make_pages
    from nugget.report.page import write_page

    target = output or run / "report.html"
    if run.is_dir():
        refuse_existing(target, force)
    with progress("Reading searches", not json) as step:
        pages = make_pages(run, target.stem, trust, searches, step)
    write_page(target, pages.html)
    written = 0
    with progress("Pages of searches", not json) as step:
        for k, (name, page) in enumerate(pages.others.items()):
            file = target.parent / name
            if force or not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                write_page(file, page())
                written += 1
            if step is not None:
                step(k + 1, len(pages.others))
    size = len(pages.html.encode())
    if json:
        emit({"page": target, "bytes": size, "pages_of_searches": written, **pages.numbers})
        return
    typer.echo(f"Written: {target} ({size / 1e6:.2g} MB)")
    if pages.others:
        kept = len(pages.others) - written
        typer.echo(f"Written: {written} pages in {target.with_suffix('')} ({kept} kept)")
