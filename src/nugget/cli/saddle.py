"""`nugget saddle`: a saddle point from one structure with few evaluations."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from nugget.cli import _options as opt
from nugget.cli._console import emit, facts, given, show_verdict, table
from nugget.cli.md import read_start, run_config
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.numerics.arrays import Floats
    from nugget.onthefly.saddle_run import SaddleRun


def saddle(
    start: Path | None = Argument(None, help="Structure near a saddle point.", metavar="START"),
    out: opt.Out = None,
    resume: opt.Resume = None,
    engine: opt.Engine = None,
    mode: str = Option(
        "auto",
        metavar="FILE|auto",
        help="Mode to follow: a file with an array `mode`, or a displaced copy of START. "
        "auto follows the lowest mode.",
    ),
    multiplicity: int | None = Option(None, min=1, help="2S + 1. Default: that of the engine."),
    fmax: float | None = Option(
        None, help="Largest force of the engine at the saddle, eV/Å. Default: 0.01."
    ),
    max_calls: int | None = Option(None, min=2, help="Calls of the search. Default: 100."),
    baseline: str | None = Option(
        None,
        "--baseline",
        "--mean",
        help="Engine of the mean function, none or auto. Default: auto.",
    ),
    connect: bool = Option(False, "--connect", help="Relax to the minima on both sides."),
    check_modes: bool = Option(
        False, "--check-modes", help="Count negative modes with the engine; two calls a coordinate."
    ),
    explore: int | None = Option(
        None, min=1, metavar="N", help="START is a minimum: find the N lowest ways out of it."
    ),
    temperature: float | None = Option(None, help="Of the rates of --explore, K. Default: 300."),
    seed: int | None = Option(None, min=0, help="Of --explore. Default: 0."),
    settings: opt.EngineSettings = None,
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Find a saddle point from one structure.

    [bold]Examples[/bold]

        nugget saddle guess.xyz --engine gfn2-xtb --connect --out ts
        nugget saddle guess.xyz --engine pyscf --multiplicity 2 --out ts
        nugget saddle slab.traj --engine emt --mode moved.traj --out hop
        nugget saddle minimum.traj --engine emt --explore 3 --out ways
        nugget saddle --resume ts

    Each step climbs along the lowest mode of a local model and descends along all others. The
    engine evaluates the end of the step. For molecules with an expensive engine, the model learns
    the difference between the engine and GFN2-xTB. DIR contains the saddle with its mode
    (saddle.extxyz), between both minima if --connect is given, and all evaluated structures
    (labelled.extxyz).

    With --explore, saddles around a minimum are searched first on a potential that is trained on
    all calls, and then with the engine. DIR contains the minimum, the saddles and the products
    (ways.extxyz), barriers and rates (result.json), and a disconnectivity graph (ways.png).

    The exit code is 1 if no saddle with exactly one negative mode was found.
    """
    from nugget.engines.engine_settings import require_trust
    from nugget.onthefly.run_directory import read_engine_check
    from nugget.onthefly.run_settings import SaddleConfig, code_of_run
    from nugget.onthefly.saddle_run import SaddleRun, report_of
    from nugget.report.saddle_page import read_saddle, saddle_verdict

    chosen = given(
        fmax=fmax, max_calls=max_calls, baseline=baseline, connect=connect or None,
        check_modes=check_modes or None, explore=explore, temperature=temperature, seed=seed,
    )  # fmt: skip
    if resume is not None:
        if start or out or engine or settings or chosen or mode != "auto" or multiplicity:
            raise NuggetError("--resume continues a run with its own settings and takes no others.")
        run = SaddleRun.resume(resume)
        require_trust(code_of_run(run.config), str(resume), trust)
    elif start is None or out is None:
        raise NuggetError("Give a structure and --out DIR, or --resume DIR.")
    else:
        more = [] if multiplicity is None else [f"engine.spin={multiplicity}"]
        config = run_config(SaddleConfig, engine, [*(settings or []), *more], chosen)
        atoms = read_start(start)
        run = SaddleRun.create(atoms, config, out, _mode(mode, atoms))
    if run.config.explore:
        _explore(run, json)
        return
    result = run.run(None if json else typer.echo)
    report = {**report_of(result), "engine_check": read_engine_check(run.directory)}
    verdict = saddle_verdict(read_saddle(run.directory))
    if json:
        emit({"directory": run.directory, **report, "verdict": verdict.to_dict()})
    else:
        rows: list[tuple[str, object]] = [
            ("energy", f"{report['energy']:.4f} ± {report['error']:.4f} eV"),
            ("above the start", f"{report['above_start']:+.4f} eV"),
            ("largest force", f"{report['fmax']:.4f} eV/Å"),
            ("engine calls", f"{report['calls']}, {report['search_calls']} of them for the search"),
        ]
        for kind, lowest in (("model", report["model_modes"]), ("engine", report["engine_modes"])):
            if lowest:
                values = ", ".join(f"{value:.2f}" for value in lowest)
                rows.append((f"lowest modes ({kind})", f"{values} eV/Å²"))
        for number, height in enumerate(report["barriers"], start=1):
            text = f"{height:.4f} ± {report['error']:.4f} eV"
            rows.append((f"barrier, minimum {number}", text))
        facts(f"Saddle search {report['reason']}: {run.directory}", rows)
        show_verdict(verdict)
        typer.echo(f"Page: nugget report {run.directory}")
    if not result.converged:
        raise typer.Exit(1)


def _explore(run: SaddleRun, json: bool) -> None:
    """The lowest ways out of a minimum, as a table and a figure."""
    from nugget.onthefly.saddle_run import report_of_ways
    from nugget.report.saddle_page import draw_ways, read_saddle, saddle_verdict

    found = run.explore(None if json else typer.echo)
    report = report_of_ways(found)
    draw_ways(report, run.directory / "ways.png")
    verdict = saddle_verdict(read_saddle(run.directory))
    if json:
        emit({"directory": run.directory, **report, "verdict": verdict.to_dict()})
    else:
        heads = ["barrier, eV", "±", "back, eV", "prefactor, 1/s", "rate, 1/s", "from", "to"]
        rows = [
            [f"{way['barrier']:.4f}", f"{way['error']:.4f}", f"{way['barrier_back']:.4f}",
             *(f"{way[key]:.2e}" for key in ("prefactor", "rate", "rate_low", "rate_high"))]
            for way in report["ways"]
        ]  # fmt: skip
        table(f"Ways out at {report['temperature']:g} K: {run.directory}", heads, rows)
        show_verdict(verdict)
        typer.echo(f"Page: nugget report {run.directory}")
    if len(found.ways) < run.config.explore:
        raise typer.Exit(1)


def _mode(name: str, start: Atoms) -> Floats | None:
    """The displacements of the mode to follow; None for the lowest."""
    import numpy as np
    from ase.geometry import find_mic

    from nugget.structures.io import read_images

    if name == "auto":
        return None
    atoms = read_images(Path(name), "-1")[0]
    if len(atoms) != len(start):
        raise NuggetError(f"{name} has {len(atoms)} atoms, START has {len(start)}.")
    if "mode" in atoms.arrays:
        return np.asarray(atoms.arrays["mode"], dtype=float)
    return np.asarray(find_mic(atoms.positions - start.positions, start.cell, start.pbc)[0])
