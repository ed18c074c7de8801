"""`nugget campaign`: many searches, their success rates and times to solution."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import (
    emit,
    given,
    graceful_stop,
    number,
    progress,
    setting,
    show_verdict,
    table,
)
from nugget.cli.search import INTERRUPTED, read_settings
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from nugget.campaign.campaign import Campaign

RESULTS, PARQUET, SUMMARY, FIGURE = "results.csv", "results.parquet", "summary.json", "success.png"


def campaign(
    target: opt.Target = None,
    vary: list[str] | None = Option(
        None, metavar="KEY=VALUES", help="Values of a setting, as kappa=0,1,2; repeatable."
    ),
    repeats: int | None = Option(
        None, min=1, help="Searches per combination of settings. Default: 10."
    ),
    out: opt.Out = None,
    resume: opt.Resume = None,
    reference: opt.Reference = None,
    engine: opt.Engine = None,
    budget: opt.Budget = None,
    seed: opt.Seed = None,
    settings: opt.Settings = None,
    executor: str | None = Option(
        None, help="Where to run: in-process, processes or dask. Default: processes."
    ),
    workers: opt.Workers = None,
    parquet: bool = Option(False, "--parquet", help="Write results.parquet."),
    trust: opt.Trust = False,
    live: opt.Live = True,
    json: opt.Json = False,
) -> None:
    """Run many searches; compare success rates and times to solution.

    [bold]Examples[/bold]

        nugget campaign Au13 -e emt --reference known.extxyz --budget 60 -o au13
        nugget campaign au20.toml --vary kappa=0,1,2,4 --repeats 50 --out kappas
        nugget campaign au20.toml --vary kappa=0,2 --vary candidates=15,30 -o both
        nugget campaign --resume kappas
        nugget campaign --resume kappas --repeats 100 -j 8

    Every combination of the varied settings is searched with the same seeds.
    `kappa` is short for search.kappa if that is unambiguous. Values are written
    as in TOML; words need no quotes.

    DIR contains campaign.toml, one run directory per search
    (runs/kappa=2/seed-0007, which can be resumed or watched on its own),
    results.csv with one row per search, summary.json with intervals, curves and
    tests, and success.png.

    Ctrl-C stops all searches after the evaluations in flight. --resume
    continues, also after a crash. Finished searches are not repeated; failed
    ones are. The search of a lost worker continues on another one. The section
    `execution` of the TOML file sets up Dask on this machine or under SLURM or
    PBS (see `nugget init`).
    """
    from nugget.campaign.campaign import Campaign
    from nugget.campaign.grid import read_vary
    from nugget.campaign.results import load_pyarrow
    from nugget.report.run_verdicts import campaign_verdict

    changed = {"engine.name": engine, "search.budget": budget, "search.seed": seed}
    changed["search.reference"] = None if reference is None else str(Path(reference).absolute())
    changed = given(**changed)
    where = given(kind=executor, workers=workers)
    if parquet:
        load_pyarrow()
    if resume is not None:
        if target is not None or out is not None or vary or settings or changed:
            raise NuggetError(
                "--resume continues a campaign as it was started; only --repeats, --executor and "
                "--workers can be given with it."
            )
        running = Campaign.resume(resume, repeats, trust)
    elif target is not None and out is not None:
        more = dict(setting(text) for text in settings or [])
        config, base, _ = read_settings(target, {**changed, **more}, trust)
        running = Campaign.create(config, read_vary(vary or []), repeats or 10, out, base)
    else:
        raise NuggetError(
            "Give a TOML file or a formula, and --out DIR (nugget campaign Au20 --vary kappa=0,2 "
            "--out DIR), or --resume DIR."
        )
    status = follow(running, where, live, quiet=json)
    report = finish(running, status, parquet)
    verdict = campaign_verdict(running, running.rows(), report["unit"])
    if json:
        emit({**report, "verdict": verdict.to_dict()})
    else:
        show(report)
        show_verdict(verdict)
        typer.echo(f"Page: nugget report {running.directory}")
    if status != "finished":
        raise typer.Exit(INTERRUPTED)


def follow(campaign: Campaign, where: Mapping[str, Any], live: bool, quiet: bool) -> str:
    """Run and show a campaign; returns how it ended."""
    from nugget.campaign.campaign import with_execution
    from nugget.engines.execution import make_executor
    from nugget.report.terminal import make_campaign_view

    execution = with_execution(campaign, where)
    with progress("reading searches", shown=not quiet) as step:
        campaign.collect(step)
    config = campaign.base
    searches = f"{len(campaign.members)} searches"
    title = f"{config.system.title} · {config.engine.name} · {searches} · {campaign.directory}"
    view = None if quiet else make_campaign_view(title, campaign, live)
    try:
        with (
            make_executor(execution, campaign.directory) as executor,
            view or nullcontext(),
            graceful_stop(campaign.stop, None if view is None else view.note, several=True),
        ):
            campaign.run(executor, None if view is None else view.watch)
    except KeyboardInterrupt:
        return "broken off"
    return "interrupted" if campaign.stopped else "finished"


def finish(campaign: Campaign, status: str, parquet: bool) -> dict[str, Any]:
    """Write the results, the summary and the figure; returns the summary with their paths."""
    import json

    from nugget.campaign.results import write_csv, write_parquet
    from nugget.campaign.statistics import grouped, has_reference, summarise
    from nugget.storage.files import replacing, write_atomically
    from nugget.systems.system_settings import make_goal

    directory, rows = campaign.directory, campaign.rows()
    report: dict[str, Any] = {
        "directory": str(directory),
        "status": status,
        "searches": len(campaign.members),
        "finished": len(rows),
        "unit": make_goal(campaign.base.system).unit,
        "results": str(directory / RESULTS),
        "figure": None,
        **summarise(rows),
    }
    write_csv(directory / RESULTS, rows)
    if parquet:
        write_parquet(directory / PARQUET, rows)
    if rows and has_reference(rows):
        from nugget.report.figures import success_figure

        title = f"{campaign.base.system.title}, {campaign.base.engine.name}"
        figure = success_figure(grouped(rows), title=title)
        with replacing(directory / FIGURE) as partial:
            figure.savefig(partial, dpi=150)
        report["figure"] = str(directory / FIGURE)
    write_atomically(directory / SUMMARY, json.dumps(report, indent=1) + "\n")
    return report


def show(report: dict[str, Any]) -> None:
    """Print the settings, the pairs that differ, and how to continue."""
    cells = report["cells"]
    has_outcome = any("found" in cell for cell in cells)
    if has_outcome:
        columns = ["setting", "searches", "found", "success (95 %)", "median evaluations (95 %)"]
        table("Success within the budget", [*columns, "failed"], [_judged(c) for c in cells])
        _differences(report["tests"])
    elif cells:
        columns = ["setting", "searches", f"best energy, {report['unit']}", "failed"]
        energies = [number(cell["best_energy"], 4, "f") for cell in cells]
        rows = [
            [cell["name"], cell["searches"], energy, cell["errors"] or "–"]
            for cell, energy in zip(cells, energies, strict=True)
        ]
        table("Searches", columns, rows)
    for name in ("results", "figure"):
        if report[name] is not None:
            typer.echo(f"{name}: {report[name]}")
    left = report["searches"] - report["finished"]
    again = f"nugget campaign --resume {report['directory']}"
    if report["status"] == "broken off":
        typer.echo("The evaluations in flight are lost; all others are saved.")
    if left:
        typer.echo(f"{left} of {report['searches']} searches are unfinished. To continue: {again}")
    elif any(cell["errors"] for cell in cells):
        typer.echo(f"Some searches failed (see the column error). To repeat them: {again}")


def _judged(cell: dict[str, Any]) -> list[object]:
    if "found" not in cell:
        return [cell["name"], cell["searches"], "–", "–", "–", cell["errors"] or "–"]
    low, high = cell["success_interval"]
    median = "not reached"
    if cell["median_evaluations"] is not None:
        ends = ["…" if end is None else str(end) for end in cell["median_interval"]]
        median = f"{cell['median_evaluations']} ({ends[0]} to {ends[1]})"
    success = f"{100 * cell['success']:.0f} % ({100 * low:.0f} to {100 * high:.0f})"
    counts = [cell["name"], cell["searches"], cell["found"]]
    return [*counts, success, median, cell["errors"] or "–"]


def _differences(tests: Sequence[dict[str, Any]], level: float = 0.05) -> None:
    if not tests:
        return
    rows = [
        [
            f"{test['a']} – {test['b']}",
            f"{100 * test['success_difference']:+.0f} %",
            f"{test['fisher_p_holm']:.2g}",
            f"{test['logrank_p_holm']:.2g}",
        ]
        for test in tests
        if min(test["fisher_p_holm"], test["logrank_p_holm"]) < level
    ]
    if rows:
        columns = ["pair", "success", "p, success (Fisher)", "p, curves (log-rank)"]
        table(f"Pairs that differ, of {len(tests)} (p < {level} after Holm)", columns, rows)
    else:
        typer.echo(
            f"No pair differs ({len(tests)} pairs, log-rank and Fisher, p > {level} after Holm)."
        )
