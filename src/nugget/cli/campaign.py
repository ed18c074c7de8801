"""`nugget campaign`: many searches, and how often and how soon they succeed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nugget.cli._common import Json, emit
from nugget.cli.search import INTERRUPTED


def campaign(
    target: Annotated[
        str | None,
        typer.Argument(help="A TOML file, or a formula such as Au20.", metavar="CONFIG|FORMULA"),
    ] = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(
            metavar="KEY=VALUES", help="A setting and its values, as kappa=0,1,2; repeat it."
        ),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Searches per combination. Default: 10.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="The campaign's directory.")
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the campaign in this directory.", metavar="DIR")
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="The structure to be found; searches stop at it."),
    ] = None,
    engine: Annotated[
        str | None, typer.Option(help="A name from `nugget engines`, or module:factory.")
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Evaluations with the engine per search.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="The first seed. Default: 0.")] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any other setting, as search.hops=2; repeat it."
        ),
    ] = None,
    executor: Annotated[
        str | None,
        typer.Option(help="Where to run: in-process, processes or dask. Default: processes."),
    ] = None,
    workers: Annotated[
        int | None,
        typer.Option("--workers", "-j", min=1, help="Searches at a time. Default: one per core."),
    ] = None,
    parquet: Annotated[
        bool, typer.Option("--parquet", help="Write results.parquet too (needs pyarrow).")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live/--no-live", help="The live table, or a line per search.")
    ] = True,
    json: Json = False,
) -> None:
    """Run many searches and compare how often, and how soon, they succeed.

    [bold]Examples[/bold]

        nugget campaign Au13 --engine emt --reference known.extxyz --budget 60 --repeats 20 -o au13
        nugget campaign au20.toml --vary kappa=0,1,2,4 --repeats 50 --out kappas
        nugget campaign au20.toml --vary kappa=0,2 --vary hops=0,1,2 --repeats 50 --out both
        nugget campaign --resume kappas
        nugget campaign --resume kappas --repeats 100 -j 8

    All combinations of the varied settings are searched with the same seeds. `kappa` stands for
    search.kappa wherever that is clear. Values are those of TOML; words need no quotes.

    Everything is in DIR: campaign.toml, one directory per search (runs/kappa=2/seed-0007, continue
    or watch it like any other), results.csv with a row per search, summary.json with intervals,
    curves and tests, and success.png.

    Ctrl-C stops all searches after the evaluation in flight. --resume goes on where they stopped,
    also after a crash, never repeats a search that has ended, and tries those again that failed.
    Workers may be lost: their searches go on in others. `[execution]` in the TOML file sets up
    Dask, on this machine or under SLURM or PBS (`nugget init` explains it).
    """
    from nugget.cli import _campaign as parts
    from nugget.errors import NuggetError

    changed = {
        "engine.name": engine,
        "search.budget": budget,
        "search.seed": seed,
        "search.reference": None if reference is None else str(Path(reference).absolute()),
    }
    changed = {key: value for key, value in changed.items() if value is not None}
    where = {"kind": executor, "workers": workers}
    where = {key: value for key, value in where.items() if value is not None}
    if parquet:
        parts.load_pyarrow()
    if resume is not None:
        if target is not None or out is not None or vary or settings or changed:
            raise NuggetError(
                "--resume continues a campaign as it was started; only --repeats, --executor and "
                "--workers can be given with it."
            )
        running = parts.Campaign.resume(resume, repeats)
    elif target is not None and out is not None:
        running = parts.begin(target, changed, settings or [], vary or [], repeats or 10, out)
    else:
        raise NuggetError(
            "Give a TOML file or a formula, and --out DIR (nugget campaign Au20 --vary kappa=0,2 "
            "--out DIR), or --resume DIR."
        )
    status = parts.follow(running, where, live, quiet=json)
    report = parts.finish(running, status, parquet)
    if json:
        emit(report)
    else:
        parts.show(report)
    if status != "finished":
        raise typer.Exit(INTERRUPTED)
