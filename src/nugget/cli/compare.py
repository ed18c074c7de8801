"""`nugget compare`: several searches side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, emit, number, refuse_existing, table

if TYPE_CHECKING:
    from nugget.report.searches_page import Comparison


def compare(
    runs: list[Path] = Argument(..., help="Run directories of searches.", metavar="RUN RUN ..."),
    output: Path | None = Option(
        None, "--html", "-o", help="Write a page as well.", metavar="FILE"
    ),
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Compare best energies, times to solution and lowest structures of searches.

    [bold]Examples[/bold]

        nugget compare runs/Au20-seed0 runs/Au20-seed1
        nugget compare runs/Au20-* --html au20.html

    Searches with the same letter have the same lowest structure. Settings that
    differ are listed. Searches may be running; their directories are only read.
    """
    from nugget.report.page import write_page
    from nugget.report.searches_page import compare_page, compared

    if output is not None:
        refuse_existing(output, force)
    comparison = compared(runs)
    if output is not None:
        write_page(output, compare_page(comparison))
    if json:
        report = {"searches": comparison.rows(), "settings": comparison.differing}
        emit({**report, "comparable": comparison.comparable, "page": output})
        return
    _show(comparison)
    if output is not None:
        typer.echo(f"Written: {output}")


def _show(comparison: Comparison) -> None:
    from nugget.report.searches_page import CLOSE, NOT_COMPARABLE

    unit = comparison.courses[0].goal.unit
    if not comparison.comparable:
        typer.echo(NOT_COMPARABLE)
    heads = {
        "run": "search", "best": f"lowest, {unit}", "above_lowest": "above", "structure": "letter",
        "evaluations_to_best": "found at", "evaluations_to_lowest": "close at",
        "evaluations": "of", "state": "state",
    }  # fmt: skip
    rows = [
        [number(v, 4, "f") if isinstance(v, float | None) else v for v in map(row.get, heads)]
        for row in comparison.rows()
    ]
    table("Searches", list(heads.values()), rows)
    typer.echo(
        "Searches with the same letter have the same lowest structure. found at: evaluation of the "
        f"lowest structure; close at: first evaluation within {CLOSE} {unit} of the lowest of all."
    )
    if comparison.differing:
        settings = [[name, *values] for name, values in comparison.differing.items()]
        table("Settings that differ", ["setting", *comparison.names], settings)
