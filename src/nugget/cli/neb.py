"""`nugget neb`: the barrier between two structures with few evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import typer
from typer import Argument, Option

from nugget.cli import _options as opt
from nugget.cli._console import emit, facts, given, show_verdict
from nugget.cli.md import read_start, run_config
from nugget.errors import NuggetError


def neb(
    start: Path | None = Argument(None, help="One end of the path.", metavar="START"),
    end: Path | None = Argument(None, help="The other end.", metavar="END"),
    out: opt.Out = None,
    resume: opt.Resume = None,
    engine: opt.Engine = None,
    images: int | None = Option(None, min=3, help="Images, including both ends. Default: 9."),
    fmax: float | None = Option(
        None, help="Largest force of the engine at the saddle, eV/Å. Default: 0.05."
    ),
    max_force_error: float | None = Option(
        None, help="Largest σ of a force on the path, eV/Å. Default: 0.1."
    ),
    max_calls: int | None = Option(None, min=3, help="Most calls of the engine. Default: 100."),
    vibrations: bool = Option(
        False, "--vibrations", help="Count the imaginary modes of the model at the saddle."
    ),
    preset: Literal["quick", "balanced", "accurate"] | None = Option(
        None, help="Preset of the model. Default: balanced."
    ),
    mean: opt.Mean = None,
    settings: opt.EngineSettings = None,
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Find the path and the barrier between two structures.

    [bold]Examples[/bold]

        nugget neb initial.traj final.traj --engine emt --out path
        nugget neb a.xyz b.xyz --images 7 --vibrations --out path
        nugget neb --resume path

    Both ends are relaxed with the engine; then a climbing-image NEB runs on a model. The engine is
    called where σ is largest and at the highest image, until its forces there are small. DIR
    contains the path with uncertainties (path.extxyz), a figure (path.png), all evaluated
    structures (labelled.extxyz) and the model (learned.model).

    The exit code is 1 if the saddle was not found within --max-calls.
    """
    from nugget.engines.engine_settings import require_trust
    from nugget.onthefly.reaction_path import NEBRun, report_of
    from nugget.onthefly.run_directory import read_engine_check
    from nugget.onthefly.run_settings import NEBConfig, code_of_run
    from nugget.report.figures import draw_path
    from nugget.report.onthefly_runs import read_path
    from nugget.report.run_verdicts import path_verdict

    chosen = given(
        images=images, fmax=fmax, max_force_error=max_force_error, max_calls=max_calls,
        vibrations=vibrations or None, preset=preset, mean=mean,
    )  # fmt: skip
    if resume is not None:
        if start or end or out or engine or settings or chosen:
            raise NuggetError("--resume continues a run with its own settings and takes no others.")
        run = NEBRun.resume(resume)
        require_trust(code_of_run(run.config), str(resume), trust)
    elif start is None or end is None or out is None:
        raise NuggetError("Give two structures and --out DIR, or --resume DIR.")
    else:
        config = run_config(NEBConfig, engine, settings or [], chosen)
        run = NEBRun.create(read_start(start), read_start(end), config, out)
    result = run.run(None if json else typer.echo)
    draw_path(result, run.directory / "path.png")
    report = {**report_of(result), "engine_check": read_engine_check(run.directory)}
    verdict = path_verdict(read_path(run.directory))
    if json:
        emit({"directory": run.directory, **report, "verdict": verdict.to_dict()})
    else:
        rows: list[tuple[str, object]] = [
            ("barrier", f"{report['barrier']:.4f} ± {report['error']:.4f} eV"),
            ("reverse barrier", f"{report['barrier_back']:.4f} eV"),
            ("force at the saddle", f"{report['saddle_fmax']:.3f} eV/Å"),
            ("engine calls", f"{report['calls']}, {report['end_calls']} of them for the ends"),
        ]
        if report["engine_check"]:
            rows.append(("engine check", report["engine_check"]))
        if result.imaginary is not None:
            rows.append(("imaginary modes", f"{result.imaginary} (model)"))
        facts(f"Path {report['reason']}: {run.directory}", rows)
        show_verdict(verdict)
        typer.echo(f"Page: nugget report {run.directory}")
    if not result.converged:
        raise typer.Exit(1)
