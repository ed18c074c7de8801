"""`nugget campaign`: many searches, and how often and how soon they succeed."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit
from nugget.cli.search import INTERRUPTED


def campaign(
    target: opt.Target = None,
    vary: Annotated[
        list[str] | None,
        typer.Option(metavar="KEY=VALUES", help="Values of a setting, as kappa=0,1,2; repeatable."),
    ] = None,
    repeats: Annotated[
        int | None, typer.Option(min=1, help="Searches per combination. Default: 10.")
    ] = None,
    out: opt.Out = None,
    resume: opt.Resume = None,
    reference: opt.Reference = None,
    engine: opt.Engine = None,
    budget: opt.Budget = None,
    seed: opt.Seed = None,
    settings: opt.Settings = None,
    executor: Annotated[
        str | None,
        typer.Option(help="Where to run: in-process, processes or dask. Default: processes."),
    ] = None,
    workers: opt.Workers = None,
    parquet: Annotated[bool, typer.Option("--parquet", help="Write results.parquet.")] = False,
    trust: opt.Trust = False,
    live: opt.Live = True,
    json: opt.Json = False,
) -> None:
    """Run many searches; compare how often and how soon they succeed.

    [bold]Examples[/bold]

        nugget campaign Au13 -e emt --reference known.extxyz --budget 60 -o au13
        nugget campaign au20.toml --vary kappa=0,1,2,4 --repeats 50 --out kappas
        nugget campaign au20.toml --vary kappa=0,2 --vary hops=0,1,2 -o both
        nugget campaign --resume kappas
        nugget campaign --resume kappas --repeats 100 -j 8

    All combinations of the varied settings are searched with the same seeds.
    `kappa` means search.kappa where that is unambiguous. Values are those of
    TOML; words need no quotes.

    Everything is in DIR: campaign.toml, one directory per search
    (runs/kappa=2/seed-0007, continue or watch it like any other), results.csv
    with a row per search, summary.json with intervals, curves and tests, and
    success.png.

    Ctrl-C stops all searches after the evaluation in flight. --resume
    continues, also after a crash. It never repeats a search that has ended, and
    tries failed ones again. The search of a lost worker goes on in another. The
    section `execution` of the TOML file sets up Dask, on this machine or under
    SLURM or PBS (`nugget init` explains it).
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
        running = parts.Campaign.resume(resume, repeats, trust)
    elif target is not None and out is not None:
        running = parts.begin(
            target, changed, settings or [], vary or [], repeats or 10, out, trust
        )
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
