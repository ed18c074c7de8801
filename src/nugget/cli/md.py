"""`nugget md`: molecular dynamics that learns while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer
from typer import Option

from nugget.cli import _options as opt
from nugget.cli._common import emit, facts


def md(
    start: Annotated[
        Path | None, typer.Argument(help="The structure to start from.", metavar="START")
    ] = None,
    out: opt.Out = None,
    resume: opt.Resume = None,
    engine: opt.Engine = None,
    temperature: Annotated[float | None, Option(min=0.0, help="K. Default: 300.")] = None,
    replica: Annotated[
        list[float] | None,
        Option(
            help="Temperature of a further replica that shares the model, K; repeatable.",
            metavar="TEMPERATURE",
        ),
    ] = None,
    pressure: Annotated[float | None, Option(help="GPa, with npt. Default: 0.")] = None,
    steps: Annotated[int | None, Option(min=1, help="Time steps in all. Default: 1000.")] = None,
    dt: Annotated[float | None, Option(help="Time step, fs. Default: 2.")] = None,
    ensemble: Annotated[
        Literal["nve", "nvt", "npt"] | None, Option(help="Default: nvt (Langevin).")
    ] = None,
    max_force_error: Annotated[
        float | None, Option(help="σ of a force that calls the engine, eV/Å. Default: 0.1.")
    ] = None,
    model: Annotated[
        Path | None, Option(help="A model to start from. Default: none.", metavar="MODEL")
    ] = None,
    preset: Annotated[
        Literal["quick", "balanced", "accurate"] | None,
        Option(help="The model that is made without --model. Default: balanced."),
    ] = None,
    audit: Annotated[
        int | None, Option(min=0, help="Steps between random tests of σ. Default: 500; 0: none.")
    ] = None,
    every: Annotated[int | None, Option(min=1, help="Steps between frames. Default: 20.")] = None,
    seed: opt.Seed = None,
    settings: opt.Settings = None,
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Run molecular dynamics that learns.

    [bold]Examples[/bold]

        nugget md start.xyz --engine emt --temperature 600 --steps 5000 --out run
        nugget md start.xyz --engine gfn1-xtb --max-force-error 0.05 --out run
        nugget md bulk.cif --engine emt --ensemble npt --pressure 1 --out run
        nugget md start.xyz --engine emt --replica 600 --replica 900 --out run
        nugget md --resume run --steps 20000

    The forces are those of a model. The engine is called where σ of a force component exceeds
    --max-force-error, and the model learns what it says. Now and then it is called although σ is
    small, to see whether σ is right. DIR holds the trajectory with uncertainties (md.extxyz), a
    log (md.log), all structures that the engine has seen (labelled.extxyz), and at the end the
    model (learned.model), which `nugget predict` and `nugget evaluate` read. Further replicas
    write md-2.extxyz, md-2.log and so on.

    Ctrl-C ends after the present step. A run that was stopped or killed is continued with
    --resume, to the same trajectory and the same model, bit for bit.
    """
    from nugget.cli._on_the_fly import begin_md, follow_md
    from nugget.onthefly.md import summary

    options = {
        "temperature": temperature, "pressure": pressure, "steps": steps, "dt": dt,
        "ensemble": ensemble, "max_force_error": max_force_error, "preset": preset,
        "audit": audit, "every": every, "seed": seed,
        "replicas": tuple(replica) if replica else None,
    }  # fmt: skip
    chosen = {name: value for name, value in options.items() if value is not None}
    run = begin_md(start, out, resume, engine, model, settings or [], chosen, trust)
    progress = follow_md(run, shown=not json)
    report = summary(progress, run.config)
    ended = progress.step >= run.config.steps
    if json:
        emit({"directory": run.directory, "status": "finished" if ended else "stopped", **report})
    else:
        facts(f"Molecular dynamics: {run.directory}", _rows(report))
        if not ended:
            typer.echo(f"To continue: nugget md --resume {run.directory}")
    if not ended:
        raise typer.Exit(130)


def _rows(report: dict[str, object]) -> list[tuple[str, object]]:
    reasons: dict[str, int] = report["reasons"]  # type: ignore[assignment]
    why = ", ".join(f"{count} {name}" for name, count in reasons.items() if count)
    rows: list[tuple[str, object]] = [
        ("steps", f"{report['steps']} ({report['picoseconds']:.4g} ps)"),
        ("engine calls", f"{report['calls']} ({100 * report['calls_share']:.2g} %: {why})"),  # type: ignore[operator]
    ]
    if report["within_two_std"] is not None:
        rows.append(("forces within 2σ at calls", f"{100 * report['within_two_std']:.1f} %"))  # type: ignore[operator]
    if report["audits"]:
        right = 100 * report["audits_within_two_std"]  # type: ignore[operator]
        error = report["audits_rms_error"]
        rows.append(("at random tests", f"{right:.1f} % within 2σ, RMS error {error:.3g} eV/Å"))
    if report["failures"]:
        rows.append(("failures", report["failures"]))
    rows.append(("speed", f"{report['ns_per_day']:.3g} ns/day"))
    return rows
