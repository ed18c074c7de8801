"""`nugget compare`: several searches side by side."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, table
from nugget.cli._output import Force, refuse_existing

if TYPE_CHECKING:
    from nugget.report.courses import Comparison


def compare(
    runs: Annotated[
        list[Path], typer.Argument(help="Directories of searches.", metavar="RUN RUN ...")
    ],
    output: Annotated[
        Path | None, typer.Option("--html", "-o", help="A page, too.", metavar="FILE")
    ] = None,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Compare searches: best energies, how soon, and whether it is the same structure.

    [bold]Examples[/bold]

        nugget compare runs/Au20-seed0 runs/Au20-seed1
        nugget compare runs/Au20-* --html au20.html

    The same letter means the same structure. Settings that differ are listed.
    Searches may still be running; nothing is written into their directories.
    """
    from nugget.report.compare_page import compare_page
    from nugget.report.courses import compared
    from nugget.report.page import write_page

    if output is not None:
        refuse_existing(output, force)
    found = compared(runs)
    if output is not None:
        write_page(output, compare_page(found))
    if json:
        comparable, differing = found.comparable, found.differing
        rows = {"searches": found.rows(), "settings": differing, "comparable": comparable}
        emit({**rows, "page": output})
        return
    _show(found)
    if output is not None:
        typer.echo(f"Written: {output}")


def _show(found: Comparison) -> None:
    from nugget.report.courses import CLOSE

    unit = found.courses[0].goal.unit
    if not found.comparable:
        typer.echo(
            "These searches differ in system, pressure or engine, or have a convex hull each: "
            "their energies cannot be compared."
        )
    heads = [
        "search", f"lowest, {unit}", "above", "structure", "found at", "close at", "of", "state",
    ]  # fmt: skip
    rows = [
        [
            row["run"], _text(row["best"]), _text(row["above_lowest"]), row["structure"] or "–",
            row["evaluations_to_best"] or "–", row["evaluations_to_lowest"] or "–",
            row["evaluations"], row["state"],
        ]
        for row in found.rows()
    ]  # fmt: skip
    table("Searches", heads, rows)
    typer.echo(
        "The same letter: the same structure. found at: the evaluation of its lowest; close at: "
        f"the first within {CLOSE} {unit} of the lowest of all."
    )
    if found.differing:
        settings = [[name, *values] for name, values in found.differing.items()]
        table("Settings that differ", ["setting", *found.names], settings)


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
