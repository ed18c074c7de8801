"""`nugget search`: from a formula to the structure of lowest energy."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nugget.cli._common import Json, emit

INTERRUPTED = 130  # as shells number an end by Ctrl-C


def search(
    target: Annotated[
        str | None,
        typer.Argument(help="A formula such as Au20, or a TOML file.", metavar="FORMULA|CONFIG"),
    ] = None,
    resume: Annotated[
        Path | None, typer.Option(help="Continue the search in this directory.", metavar="DIR")
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Make all proposals of a search again and compare them."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="DIR", help="A new directory. Default: runs/FORMULA-seedN."
        ),
    ] = None,
    engine: Annotated[
        str | None,
        typer.Option(help="A name from `nugget engines`, or module:factory. Default: gfn1-xtb."),
    ] = None,
    budget: Annotated[
        int | None, typer.Option(min=1, help="Evaluations with the engine, in all. Default: 150.")
    ] = None,
    kappa: Annotated[
        float | None, typer.Option(help="Exploration: E − κσ is minimised. Default: 2.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Same seed, same search. Default: 0.")] = None,
    candidates: Annotated[
        int | None, typer.Option(help="Structures relaxed per evaluation. Default: 30.")
    ] = None,
    in_flight: Annotated[
        int | None, typer.Option(help="Evaluations at the same time. Default: 1.")
    ] = None,
    forces: Annotated[
        bool | None,
        typer.Option("--forces/--no-forces", help="Learn from forces too. Default: no."),
    ] = None,
    reference: Annotated[
        str | None,
        typer.Option(metavar="FILE", help="A structure: stop when it has been found."),
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Any other setting, as search.hops=2; repeat it."
        ),
    ] = None,
    live: Annotated[
        bool, typer.Option("--live/--no-live", help="The live view, or a line per evaluation.")
    ] = True,
    json: Json = False,
) -> None:
    """Search for the structure of lowest energy.

    [bold]Examples[/bold]

        nugget search Au20
        nugget search Cu5Au8 --engine emt --budget 60 --seed 3 --out alloy
        nugget search settings.toml --set engine.relax_steps=5
        nugget search --resume runs/Au20-seed0
        nugget search --resume runs/Au20-seed0 --budget 300
        nugget search Au20 --in-flight 4
        nugget search --replay runs/Au20-seed0

    Everything is in the directory DIR: search.db with all structures (`ase gui DIR/search.db`),
    best.extxyz, the settings and a log. Ctrl-C finishes the evaluations in flight; the search can
    be continued then, and after a crash too, and ends as if it had never been stopped.

    --replay needs no engine: it follows the log of a search and ends with exit code 1 if what would
    be proposed now is not, bit for bit, what the database holds.

    `nugget init` writes a file with all settings; a search of a surface or a bulk needs one.
    """
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
        "search.reference": None if reference is None else str(Path(reference).absolute()),
        "model.use_forces": forces,
    }
    changed = {key: value for key, value in changed.items() if value is not None}
    changed |= dict(_setting(text) for text in settings or [])
    if replay is not None:
        if target is not None or resume is not None or out is not None or changed:
            raise NuggetError(
                "--replay DIR follows the log of a search; it takes no other options."
            )
        compare(replay, json)
        return
    if resume is not None:
        if target is not None or out is not None or changed.keys() - {"search.budget"}:
            raise NuggetError(
                "--resume continues a search with the settings that it was started with; only "
                "--budget can be changed."
            )
        running = Search.resume(resume)
    elif target is not None:
        running = begin(*read_settings(target, changed), out)
    else:
        raise NuggetError(
            "Give a formula (nugget search Au20), a TOML file, --resume DIR or --replay DIR."
        )
    result = follow(running, budget, live, quiet=json)
    report = report_of(running, result)
    if json:
        emit(report)
    else:
        summarise(report, broken_off=result is None)
    if result is None or result.interrupted:
        raise typer.Exit(INTERRUPTED)


def _setting(text: str) -> tuple[str, Any]:
    """KEY=VALUE, with a value as in TOML; what is none is taken as text."""
    import tomllib

    from nugget.errors import NuggetError

    key, equals, value = text.partition("=")
    if not equals or "." not in key:
        raise NuggetError(f"--set {text}: write section.option=value, as search.hops=2.")
    try:
        return key.strip(), tomllib.loads(f"value = {value}")["value"]
    except tomllib.TOMLDecodeError:
        return key.strip(), value.strip()
