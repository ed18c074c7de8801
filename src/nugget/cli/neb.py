"""`nugget neb`: the barrier between two structures, in few engine calls."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Option

from nugget.cli import _options as opt
from nugget.cli._common import emit, facts


def neb(
    start: Annotated[
        Path | None, typer.Argument(help="One end of the path.", metavar="START")
    ] = None,
    end: Annotated[Path | None, typer.Argument(help="The other end.", metavar="END")] = None,
    out: opt.Out = None,
    resume: opt.Resume = None,
    engine: opt.Engine = None,
    images: Annotated[int | None, Option(min=3, help="With both ends. Default: 9.")] = None,
    fmax: Annotated[
        float | None, Option(help="Force of the engine left at the saddle, eV/Å. Default: 0.05.")
    ] = None,
    max_force_error: Annotated[
        float | None, Option(help="σ of a force left on the path, eV/Å. Default: 0.1.")
    ] = None,
    max_calls: Annotated[int | None, Option(min=3, help="Engine calls. Default: 100.")] = None,
    vibrations: Annotated[
        bool, Option("--vibrations", help="Whether the saddle has one imaginary mode (model).")
    ] = False,
    preset: Annotated[
        Literal["quick", "balanced", "accurate"] | None,
        Option(help="The model that is made. Default: balanced."),
    ] = None,
    settings: opt.Settings = None,
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Find the path and the barrier between two structures.

    [bold]Examples[/bold]

        nugget neb initial.traj final.traj --engine emt --out path
        nugget neb a.xyz b.xyz --images 7 --vibrations --out path
        nugget neb --resume path

    Both ends are relaxed with the engine, then a climbing-image NEB goes on in a model. The engine
    is called where the path is least certain, and at its highest point, until its own forces there
    are small. DIR holds the path with uncertainties (path.extxyz), a figure (path.png), all
    structures that the engine has seen (labelled.extxyz) and the model (learned.model).

    The exit code is 1 if the saddle was not found within --max-calls.
    """
    from nugget.cli._on_the_fly import begin_neb
    from nugget.onthefly.neb import report_of
    from nugget.report.path_figure import draw_path

    options = {
        "images": images, "fmax": fmax, "max_force_error": max_force_error,
        "max_calls": max_calls, "vibrations": vibrations or None, "preset": preset,
    }  # fmt: skip
    chosen = {name: value for name, value in options.items() if value is not None}
    run = begin_neb(start, end, out, resume, engine, settings or [], chosen, trust)
    result = run.run(None if json else typer.echo)
    draw_path(result, run.directory / "path.png")
    report = report_of(result)
    if json:
        emit({"directory": run.directory, **report})
    else:
        rows: list[tuple[str, object]] = [
            ("barrier", f"{report['barrier']:.4f} ± {report['error']:.4f} eV"),
            ("back", f"{report['barrier_back']:.4f} eV"),
            ("engine's force there", f"{report['saddle_fmax']:.3f} eV/Å"),
            ("engine calls", f"{report['calls']}, {report['end_calls']} of them for the ends"),
        ]
        if result.imaginary is not None:
            rows.append(("imaginary modes", f"{result.imaginary} (of the model)"))
        facts(f"Path {report['reason']}: {run.directory}", rows)
    if not result.converged:
        raise typer.Exit(1)
