"""`nugget md`: molecular dynamics with a model that is trained on the fly."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import typer
from typer import Argument, Option

from nugget.cli import _options as opt
from nugget.cli._console import (
    ConfigType,
    emit,
    engine_config,
    facts,
    given,
    graceful_stop,
    show_verdict,
    validated,
)
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.onthefly.molecular_dynamics import MDProgress, MDRun

_SECONDS = 5.0  # between lines


def md(
    start: Path | None = Argument(None, help="Initial structure.", metavar="START"),
    out: opt.Out = None,
    resume: opt.Resume = None,
    engine: opt.Engine = None,
    temperature: float | None = Option(None, min=0.0, help="Temperature, K. Default: 300."),
    replica: list[float] | None = Option(
        None,
        help="Temperature of another replica with the same model, K; repeatable.",
        metavar="TEMPERATURE",
    ),
    pressure: float | None = Option(None, help="Pressure, GPa, with npt. Default: 0."),
    steps: int | None = Option(None, min=1, help="Number of time steps. Default: 1000."),
    dt: float | None = Option(None, help="Time step, fs. Default: 2."),
    ensemble: Literal["nve", "nvt", "npt"] | None = Option(None, help="Default: nvt (Langevin)."),
    max_force_error: float | None = Option(
        None, help="Largest σ of a force without a call, eV/Å. Default: 0.1."
    ),
    model: Path | None = Option(None, help="Initial model. Default: none.", metavar="MODEL"),
    preset: Literal["quick", "balanced", "accurate"] | None = Option(
        None, help="Preset of the model without --model. Default: balanced."
    ),
    mean: opt.Mean = None,
    audit: int | None = Option(
        None, min=0, help="Steps between random tests of σ. Default: 500; 0: none."
    ),
    every: int | None = Option(None, min=1, help="Steps between frames. Default: 20."),
    warn_above: float | None = Option(
        None, help="σ above which the log names step and atom, eV/atom. Default: none."
    ),
    stop_above: float | None = Option(
        None, help="σ above which the run stops, eV/atom. Default: none."
    ),
    seed: opt.RunSeed = None,
    settings: opt.EngineSettings = None,
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Run molecular dynamics with a model that is trained on the fly.

    [bold]Examples[/bold]

        nugget md start.xyz --engine emt --temperature 600 --steps 5000 --out run
        nugget md start.xyz --engine gfn1-xtb --max-force-error 0.05 --out run
        nugget md bulk.cif --engine emt --ensemble npt --pressure 1 --out run
        nugget md oxide.cif --engine gpaw --mean sevennet --out run
        nugget md start.xyz --engine emt --replica 600 --replica 900 --out run
        nugget md --resume run --steps 20000

    A model predicts the forces. The engine is called when σ of a force component exceeds
    --max-force-error, and its result is added to the training set. It is also called at random
    steps to test σ. DIR contains the trajectory with uncertainties (md.extxyz), a log (md.log),
    all evaluated structures (labelled.extxyz) and at the end the model (learned.model), which
    `nugget predict` and `nugget evaluate` read. Other replicas write md-2.extxyz, md-2.log and so
    on.

    Ctrl-C stops after the current step. A run that was stopped or killed resumes with
    bit-identical results (--resume).
    """
    from nugget.engines.engine_settings import require_trust
    from nugget.onthefly.molecular_dynamics import MDRun, summary
    from nugget.onthefly.run_directory import read_engine_check
    from nugget.onthefly.run_settings import MDConfig, code_of_run
    from nugget.report.onthefly_runs import read_dynamics
    from nugget.report.run_verdicts import md_verdict

    chosen = given(
        temperature=temperature, pressure=pressure, steps=steps, dt=dt, ensemble=ensemble,
        max_force_error=max_force_error, preset=preset, mean=mean, audit=audit, every=every,
        seed=seed, warn_above=warn_above, stop_above=stop_above,
        replicas=tuple(replica) if replica else None,
    )  # fmt: skip
    if resume is not None:
        if start or out or engine or model or settings or chosen.keys() - {"steps"}:
            raise NuggetError(
                "--resume keeps the settings of the run; only --steps can be changed."
            )
        run = MDRun.resume(resume, steps=steps)
        require_trust(code_of_run(run.config), str(resume), trust)
    elif start is None or out is None:
        raise NuggetError("Give a structure and --out DIR, or --resume DIR.")
    else:
        config = run_config(MDConfig, engine, settings or [], chosen)
        run = MDRun.create(read_start(start), config, out, model)
    progress = follow(run, shown=not json)
    report = {
        **summary(progress, run.config), "engine_check": read_engine_check(run.directory)
    }  # fmt: skip
    ended = progress.step >= run.config.steps
    verdict = md_verdict(read_dynamics(run.directory))
    if json:
        status = "finished" if ended else "stopped"
        emit(
            {
                "directory": run.directory,
                "status": status,
                "why": progress.stopped,
                **report,
                "verdict": verdict.to_dict(),
            }
        )
    else:
        facts(f"Molecular dynamics: {run.directory}", _rows(report))
        show_verdict(verdict)
        typer.echo(f"Page: nugget report {run.directory}")
        if progress.stopped is not None:
            typer.echo(progress.stopped)
        if not ended:
            typer.echo(f"To continue: nugget md --resume {run.directory}")
    if not ended:
        raise typer.Exit(130)


def run_config(
    kind: type[ConfigType], engine: str | None, settings: Sequence[str], chosen: dict[str, Any]
) -> ConfigType:
    """The settings of a run from the options of the command line."""
    named = engine_config(engine or "gfn1-xtb", settings)
    return validated(
        kind, {"engine": named, **chosen}, lambda option: f"--{option.replace('_', '-')}"
    )


def read_start(path: Path) -> Atoms:
    """The last structure of a file, without results and info."""
    from nugget.structures.io import read_images

    atoms = read_images(path, "-1")[0]
    atoms.calc, atoms.info = None, {}
    return atoms


def follow(run: MDRun, shown: bool) -> MDProgress:
    """Run with a line every few seconds; Ctrl-C stops after the current step."""
    last = time.monotonic()

    def watch(progress: MDProgress) -> None:
        nonlocal last
        if shown and time.monotonic() - last > _SECONDS:
            last = time.monotonic()
            typer.echo(line(progress))

    with graceful_stop(run.stop, typer.echo if shown else None):
        return run.run(watch)


def line(progress: MDProgress) -> str:
    """One line about the progress, the uncertainty and the speed of a run."""
    from nugget.display import duration

    temperatures = ", ".join(f"{temperature:.0f}" for temperature in progress.temperatures)
    return (
        f"step {progress.step}/{progress.steps}  {temperatures} K  "
        f"σ {progress.std:.3f} eV/Å  outside {progress.outside:.2f}  "
        f"calls {len(progress.calls)}  "
        f"{progress.ns_per_day:.3g} ns/day  {duration(progress.seconds_left)} left"
    )


def _rows(report: dict[str, Any]) -> list[tuple[str, object]]:
    why = ", ".join(f"{count} {name}" for name, count in report["reasons"].items() if count)
    rows: list[tuple[str, object]] = [
        ("steps", f"{report['steps']} ({report['picoseconds']:.4g} ps)"),
        ("engine calls", f"{report['calls']} ({100 * report['calls_share']:.2g} %: {why})"),
    ]
    if report["within_two_std"] is not None:
        rows.append(("forces within 2σ at calls", f"{100 * report['within_two_std']:.1f} %"))
    if report["audits"]:
        right, error = 100 * report["audits_within_two_std"], report["audits_rms_error"]
        rows.append(("at random tests", f"{right:.1f} % within 2σ, RMS error {error:.3g} eV/Å"))
    if report["failures"]:
        rows.append(("failures", report["failures"]))
    if report["engine_check"]:
        rows.append(("engine check", report["engine_check"]))
    rows.append(("speed", f"{report['ns_per_day']:.3g} ns/day"))
    return rows
