"""`nugget lammps`: dynamics in LAMMPS with a model."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import typer
from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import emit, facts, given, graceful_stop, validated
from nugget.errors import NuggetError


def lammps(
    model: opt.ModelFile,
    data: Path | None = Option(None, help="Initial structure.", metavar="START"),
    out: opt.Out = None,
    script: Path | None = Option(
        None, "--input", help="Run this input script, in the current directory.", metavar="SCRIPT"
    ),
    resume: Path | None = Option(None, help="Continue a run of this command.", metavar="DIR"),
    temperature: float | None = Option(None, min=0.0, help="Temperature, K. Default: 300."),
    pressure: float | None = Option(None, help="Pressure, GPa, with npt. Default: 0."),
    steps: int | None = Option(None, min=0, help="Number of time steps. Default: 1000."),
    dt: float | None = Option(None, help="Time step, fs. Default: 2."),
    ensemble: Literal["nve", "nvt", "npt"] | None = Option(None, help="Default: nvt."),
    every: int | None = Option(
        None, min=1, help="Steps between frames with values of single atoms. Default: 20."
    ),
    skin: float | None = Option(None, help="Skin of the neighbour list, Å. Default: 0.5."),
    halt_above: float | None = Option(
        None, help="Halt where σ of the energy is larger, eV/atom. Default: never."
    ),
    halt_atom: float | None = Option(
        None, help="Halt where σ of an atom's energy is larger, eV, in a frame. Default: never."
    ),
    halt_outside: float | None = Option(
        None, help="Halt where an atom is farther outside of the training domain (0 to 1)."
    ),
    species: str | None = Option(
        None, help="Elements of the atom types of SCRIPT: Cu,Au. Default: by their masses."
    ),
    seed: opt.RunSeed = None,
    write_only: bool = Option(False, "--write", help="Write the files to DIR, and do not run."),
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Run molecular dynamics in LAMMPS with a model.

    [bold]Examples[/bold]

        nugget lammps au.model --data start.cif --temperature 600 --out run
        nugget lammps au.model --data start.cif --halt-outside 0.5 --out run
        nugget lammps better.model --resume run
        nugget lammps au.model --input in.lammps

    DIR contains the input script (in.lammps), the structure, LAMMPS' log, restart files, and frames
    with σ and the distance from the training domain of every atom (frames.lammpstrj). If a limit is
    exceeded, the run halts after the step and writes the structure to halted.extxyz. Label it, fit
    a model to the extended training set, and continue with --resume. The exit code is then 3.

    Your own input script must have `units metal`, no pair style, and the line "# nugget attach"
    where the model is to be defined.
    """
    from nugget.interop.lammps_run import LammpsConfig, LammpsRun, ScriptRun
    from nugget.potential.potential import Potential

    chosen = given(
        temperature=temperature, pressure=pressure, steps=steps, dt=dt, ensemble=ensemble,
        every=every, skin=skin, halt_above=halt_above, halt_atom=halt_atom,
        halt_outside=halt_outside, seed=seed,
    )  # fmt: skip
    if [script, resume, data].count(None) != 2 or (data is None) != (out is None):
        raise NuggetError("Give --data START and --out DIR, --resume DIR, or --input SCRIPT.")
    config = validated(LammpsConfig, chosen, lambda name: f"--{name.replace('_', '-')}")
    potential = Potential.load(model, trust)
    run: LammpsRun | ScriptRun
    if script is not None:
        _refuse(chosen, {"every", "halt_above", "halt_atom", "halt_outside"}, "--input")
        types = species.split(",") if species else None
        text = script.read_text(encoding="utf-8")
        run = ScriptRun(text, types, config.every, config.limits, screen=not json)
        where = Path()
    elif resume is not None:
        _refuse(chosen, set(chosen) - {"seed", "ensemble", "dt", "every"}, "--resume")
        run, where = LammpsRun.resume(resume, screen=not json, **chosen), resume
    else:
        assert data is not None
        assert out is not None
        from nugget.cli.md import read_start

        run, where = LammpsRun.create(read_start(data), config, out, screen=not json), out
    if write_only:
        typer.echo(f"Written: {where}")
        return
    with graceful_stop(run.stop, None if json else typer.echo):
        summary = run.run(potential)
    if json:
        emit({"directory": where, **summary.to_dict()})
    else:
        facts(f"LAMMPS: {where}", summary.rows())
        if summary.halt is not None:
            typer.echo(f"{summary.halt}\nWritten: {where / 'halted.extxyz'}")
    if summary.halt is not None:
        raise typer.Exit(3)


def _refuse(chosen: dict[str, Any], allowed: set[str], option: str) -> None:
    for name in chosen.keys() - allowed:
        raise NuggetError(f"--{name.replace('_', '-')} cannot be given with {option}.")
