"""The parts of `nugget campaign`: settings, running under Ctrl-C, files and tables at the end."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import typer

from nugget.campaign.grid import read_vary
from nugget.campaign.results import load_pyarrow, write_csv, write_parquet
from nugget.campaign.run import Campaign, with_execution
from nugget.campaign.summary import grouped, has_reference, summarise
from nugget.cli._common import progress, table
from nugget.cli._search import graceful_stop, read_settings
from nugget.cli._values import setting
from nugget.evaluation.executors import make_executor
from nugget.report.campaign_live import make_campaign_view
from nugget.search.goal import make_goal
from nugget.structures.files import replacing, write_atomically

RESULTS, PARQUET, SUMMARY, FIGURE = "results.csv", "results.parquet", "summary.json", "success.png"

__all__ = ["Campaign", "begin", "finish", "follow", "load_pyarrow", "show"]


def begin(
    target: str,
    changed: Mapping[str, Any],
    settings: Sequence[str],
    vary: Sequence[str],
    repeats: int,
    out: Path,
    trust: bool = False,
) -> Campaign:
    """A new campaign from the options of the command line."""
    more = dict(setting(text) for text in settings)
    config, base, _ = read_settings(target, {**changed, **more}, trust)
    return Campaign.create(config, read_vary(vary), repeats, out, base)


def follow(campaign: Campaign, where: Mapping[str, Any], live: bool, quiet: bool) -> str:
    """Run and show a campaign; how it ended."""
    execution = with_execution(campaign, where)
    with progress("reading searches", shown=not quiet) as step:
        campaign.collect(step)
    config = campaign.base
    searches = f"{len(campaign.members)} searches"
    title = f"{config.system.title} · {config.engine.name} · {searches} · {campaign.directory}"
    view = None if quiet else make_campaign_view(title, campaign, live)
    try:
        with (
            make_executor(execution) as executor,
            view or nullcontext(),
            graceful_stop(campaign.stop, view, several=True),
        ):
            campaign.run(executor, None if view is None else view.watch)
    except KeyboardInterrupt:
        return "broken off"
    return "interrupted" if campaign.stopped else "finished"


def finish(campaign: Campaign, status: str, parquet: bool) -> dict[str, Any]:
    """Write the results, the summary and the figure; the summary with where they are."""
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
        from nugget.report.success_figure import success_figure

        figure = success_figure(grouped(rows), title=_title(campaign))
        with replacing(directory / FIGURE) as partial:
            figure.savefig(partial, dpi=150)
        report["figure"] = str(directory / FIGURE)
    write_atomically(directory / SUMMARY, json.dumps(report, indent=1) + "\n")
    return report


def _title(campaign: Campaign) -> str:
    config = campaign.base
    return f"{config.system.title}, {config.engine.name}"


def show(report: dict[str, Any]) -> None:
    """The cells in one table, pairs that differ, and how to continue."""
    cells = report["cells"]
    judged = any("found" in cell for cell in cells)
    if judged:
        columns = ["cell", "searches", "found", "success (95 %)", "median evaluations (95 %)"]
        table("Success within the budget", [*columns, "failed"], [_judged(c) for c in cells])
        _differences(report["tests"])
    elif cells:
        columns = ["cell", "searches", f"best energy, {report['unit']}", "failed"]
        rows = [
            [c["name"], c["searches"], _number(c["best_energy"]), c["errors"] or "–"] for c in cells
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
        typer.echo(f"{left} of {report['searches']} searches have not ended. To continue: {again}")
    elif any(cell["errors"] for cell in cells):
        typer.echo(f"Some searches failed (see the column error). To try them again: {again}")


def _judged(cell: dict[str, Any]) -> list[object]:
    if "found" not in cell:
        return [cell["name"], cell["searches"], "–", "–", "–", cell["errors"] or "–"]
    low, high = cell["success_interval"]
    median = "not reached"
    if cell["median_evaluations"] is not None:
        ends = ["…" if end is None else str(end) for end in cell["median_interval"]]
        median = f"{cell['median_evaluations']} ({ends[0]} to {ends[1]})"
    return [
        cell["name"],
        cell["searches"],
        cell["found"],
        f"{100 * cell['success']:.0f} % ({100 * low:.0f} to {100 * high:.0f})",
        median,
        cell["errors"] or "–",
    ]


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
            f"No two cells differ: {len(tests)} pairs, log-rank and Fisher, p > {level} after Holm."
        )


def _number(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
