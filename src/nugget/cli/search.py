"""`nugget search`: from a formula to the structure of lowest energy."""

from __future__ import annotations

from pathlib import Path

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit
from nugget.cli._values import setting

INTERRUPTED = 130  # as shells number an end by Ctrl-C
_FREE = {"search.budget", "search.stop_when"}  # what --resume may change


def search(
    target: opt.Target = None,
    resume: opt.Resume = None,
    replay: opt.Replay = None,
    out: opt.Out = None,
    engine: opt.Engine = None,
    budget: opt.Budget = None,
    kappa: opt.Kappa = None,
    seed: opt.Seed = None,
    candidates: opt.Candidates = None,
    in_flight: opt.InFlight = None,
    forces: opt.LearnForces = None,
    reference: opt.Reference = None,
    start: opt.Start = None,
    learn: opt.Learn = None,
    stop_when: opt.StopWhen = None,
    crystal: opt.Crystal = False,
    units: opt.Units = None,
    compositions: opt.Compositions = None,
    max_atoms: opt.MaxAtoms = None,
    pressure: opt.Pressure = None,
    settings: opt.Settings = None,
    trust: opt.Trust = False,
    threads: opt.Threads = 1,
    live: opt.Live = True,
    json: opt.Json = False,
) -> None:
    """Search for the structure of lowest energy.

    [bold]Examples[/bold]

        nugget search Au20
        nugget search Cu5Au8 --engine emt --budget 60 --seed 3 --out alloy
        nugget search settings.toml --set engine.relax_steps=5
        nugget search --resume runs/Au20-seed0
        nugget search --resume runs/Au20-seed0 --budget 300
        nugget search Au20 --in-flight 4
        nugget search Au20 --threads 2
        nugget search --replay runs/Au20-seed0
        nugget search Au20 --learn runs/Au20-seed0 --seed 1 --stop-when 0.95
        nugget search SiC --crystal --units 1-4 --engine tersoff
        nugget search --crystal --compositions Cu-Au --max-atoms 8 --engine emt

    Everything is in DIR (default: runs/FORMULA-seedN): search.db with all
    structures (`ase gui DIR/search.db`), best.extxyz, the settings and a log.
    Ctrl-C finishes the evaluations in flight. The search can be continued then,
    and after a crash, and ends as if it had never been stopped.

    --replay needs no engine: it follows the log of a search and ends with exit
    code 1 if what would be proposed now is not, bit for bit, what the database
    holds.

    `nugget init` writes a file with all settings; a search of a surface or a
    bulk needs one.
    """
    from nugget import set_threads
    from nugget.cli._hull import draw_hull
    from nugget.cli._search import begin, compare, follow, read_settings, report_of, summarise
    from nugget.errors import NuggetError
    from nugget.search.loop import Search

    changed = {
        "engine.name": engine,
        "search.budget": budget,
        "search.kappa": kappa,
        "search.seed": seed,
        "search.candidates": candidates,
        "search.in_flight": in_flight,
        "search.stop_when": stop_when,
        "model.use_forces": forces,
        "system.kind": "crystal" if crystal else None,
        "system.units": units,
        "system.compositions": compositions,
        "system.max_atoms": max_atoms,
        "system.pressure": pressure,
    }
    files = {"reference": reference, "start": start, "learn": learn}
    absolute = {
        f"search.{k}": None if v is None else str(Path(v).absolute()) for k, v in files.items()
    }
    changed = {key: value for key, value in (changed | absolute).items() if value is not None}
    changed |= dict(setting(text) for text in settings or [])
    set_threads(threads)  # no setting: it changes no bit of the search
    if replay is not None:
        if target is not None or resume is not None or out is not None or changed:
            raise NuggetError(
                "--replay DIR follows the log of a search; it takes no other options."
            )
        compare(replay, json, trust)
        return
    if resume is not None:
        if target is not None or out is not None or changed.keys() - _FREE:
            raise NuggetError(
                "--resume continues a search with the settings that it was started with; only "
                "--budget and --stop-when can be changed."
            )
        running = Search.resume(resume, trust)
    elif target is not None or compositions is not None:
        running = begin(*read_settings(target, changed, trust), out)
    else:
        raise NuggetError(
            "Give a formula (nugget search Au20), --compositions A-B, a TOML file, --resume DIR or "
            "--replay DIR."
        )
    result = follow(running, budget, live, quiet=json, stop_when=stop_when)
    report = report_of(running, result)
    draw_hull(report)
    if json:
        emit(report)
    else:
        summarise(report, broken_off=result is None)
    if result is None or result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.best is None:
        raise typer.Exit(1)
