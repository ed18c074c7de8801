"""`nugget learn-curve`: would more data help?"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, echo_written, emit, figure_files, progress, table
from nugget.cli.fit import Preset


def learn_curve(
    data: opt.DataFile,
    index: opt.Index = ":",
    sizes: str | None = Option(
        None, help="Training structures, as '25,50,100'. Default: by halving."
    ),
    test: float = Option(0.25, help="Share of the structures kept for testing."),
    repeats: int = Option(3, help="Random training sets of each size.", min=1),
    forces: bool | None = Option(None, "--forces/--no-forces", help="Learn from forces."),
    preset: Preset = Option("balanced", help="Range and basis."),
    plot: Path | None = Option(
        None, help="Directory for learning_curve.png and .pdf.", metavar="DIR"
    ),
    seed: opt.RandomSeed = 0,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Measure errors on test structures against the number of training structures.

    [bold]Examples[/bold]

        nugget learn-curve all.extxyz
        nugget learn-curve all.extxyz --sizes 50,100,200 --plot figures

    If the error still decreases at the largest size, more structures would help.
    """
    from nugget.cli._fit import check_energies
    from nugget.potential.learning_curve import learning_curve, training_sizes
    from nugget.presets import PRESETS
    from nugget.structures.io import read_images

    images = read_images(data, index)
    check_energies(images)
    wanted = [int(n) for n in sizes.replace(",", " ").split()] if sizes else None
    chosen = training_sizes(len(images), test, wanted)
    files = figure_files(plot, ("learning_curve",), force)
    with progress("Learning curve", not json) as step:
        points = learning_curve(
            PRESETS[preset], images, chosen, test=test, repeats=repeats, use_forces=forces,
            seed=seed, progress=step,
        )  # fmt: skip
    if plot is not None:
        from nugget.report.figures import learning_figure

        plot.mkdir(parents=True, exist_ok=True)
        figure = learning_figure(points)
        for file in files:
            figure.savefig(file, dpi=150)
    rows: list[dict[str, Any]] = [point.to_dict() for point in points]
    if json:
        emit({"data": data, "points": rows, "figures": files})
        return
    table(
        "Errors on the test set (mean and range of the repeats)",
        ("structures", "energy, meV/atom", "forces, eV/Å", "in 1 σ", "in 2 σ"),
        [point.cells() for point in points],
    )
    echo_written(files)
