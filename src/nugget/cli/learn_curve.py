"""`nugget learn-curve`: would more data help?"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, progress, table
from nugget.cli._output import Force, refuse_existing
from nugget.cli.fit import Preset


def learn_curve(
    data: opt.DataFile,
    index: opt.Index = ":",
    sizes: Annotated[
        str | None,
        typer.Option(help="Training structures, as '25,50,100'. Default: by halving."),
    ] = None,
    test: Annotated[float, typer.Option(help="Share of the structures kept for testing.")] = 0.25,
    repeats: Annotated[int, typer.Option(help="Random training sets of each size.", min=1)] = 3,
    forces: Annotated[
        bool | None, typer.Option("--forces/--no-forces", help="Learn from forces.")
    ] = None,
    preset: Annotated[Preset, typer.Option(help="Range and basis.")] = "balanced",
    plot: Annotated[
        Path | None,
        typer.Option(help="Directory for learning_curve.png and .pdf.", metavar="DIR"),
    ] = None,
    seed: opt.RandomSeed = 0,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Errors against the number of training structures, on structures that are kept apart.

    [bold]Examples[/bold]

        nugget learn-curve all.extxyz
        nugget learn-curve all.extxyz --sizes 50,100,200 --plot figures

    A line that still falls at its end says that more structures would help.
    """
    from nugget.calibration.learning import learning_curve, training_sizes
    from nugget.cli._before_fit import check_energies
    from nugget.structures.io import read_images

    images = read_images(data, index)
    check_energies(images)
    wanted = [int(n) for n in sizes.replace(",", " ").split()] if sizes else None
    chosen = training_sizes(len(images), test, wanted)
    files = [plot / f"learning_curve.{kind}" for kind in ("png", "pdf")] if plot else []
    for file in files:
        if plot is not None and plot.exists():
            refuse_existing(file, force)
    with progress("Learning curve", not json) as step:
        points = learning_curve(
            images, chosen, test=test, repeats=repeats, use_forces=forces,
            preset=preset, seed=seed, progress=step,
        )  # fmt: skip
    if plot is not None:
        from nugget.report.learning_figure import learning_figure

        plot.mkdir(parents=True, exist_ok=True)
        figure = learning_figure(points)
        for file in files:
            figure.savefig(file, dpi=150)
    rows: list[dict[str, Any]] = [point.to_dict() for point in points]
    if json:
        emit({"data": data, "points": rows, "figures": files})
        return
    table(
        "Errors on structures kept apart (mean and range of the repeats)",
        ("structures", "energy, meV/atom", "forces, eV/Å", "in 1 σ", "in 2 σ"),
        [point.cells() for point in points],
    )
    for file in files:
        typer.echo(f"Written: {file}")
