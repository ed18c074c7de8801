"""`nugget dataset`: structures from generators or searches, labelled by an engine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, facts, progress, table
from nugget.cli._values import engine_options

if TYPE_CHECKING:
    from nugget.dataset import Recipe, Report


def dataset(
    formulas: Annotated[
        list[str] | None,
        typer.Argument(help="As Au20 or Cu3Au5; Au10-Au20 is a range, Au10-20:2 every second."),
    ] = None,
    count: Annotated[int, typer.Option("--count", "-n", help="Structures in all.", min=1)] = 100,
    out: opt.Out = None,
    resume: opt.Resume = None,
    engine: opt.Engine = None,
    option: Annotated[
        list[str] | None,
        typer.Option(help="For the engine, as electronic_temperature=300; repeatable."),
    ] = None,
    workers: Annotated[int, typer.Option("--workers", "-j", help="Processes.", min=1)] = 1,
    seed: opt.RandomSeed = 0,
    generator: Annotated[
        list[str] | None,
        typer.Option(help="Makers of structures. Default: random_cluster and symmetric."),
    ] = None,
    source: Annotated[
        list[Path] | None,
        typer.Option("--from", help="Take structures from a search.db or any file instead."),
    ] = None,
    relax_steps: Annotated[
        int, typer.Option(help="Relaxation steps with the engine before the label.", min=0)
    ] = 5,
    rattle: Annotated[
        float, typer.Option(help="Shake generated structures by up to this, Å.", min=0)
    ] = 0.3,
    split: Annotated[
        str, typer.Option(help="Shares of train, validation and test, as 8:1:1.")
    ] = "8:1:1",
    time_limit: Annotated[float, typer.Option(help="Seconds for one structure.")] = 600.0,
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Build a data set of different structures, labelled and split.

    [bold]Examples[/bold]

        nugget dataset Au10-20:2 -n 300 --engine gfn1-xtb -j 2 --out gold
        nugget dataset --resume gold -j 4
        nugget dataset --from run/search.db -n 100 --relax-steps 0 -o again
        nugget dataset Cu3Au5 Cu4Au4 -n 40 -e emt --split 225:25:50 -o alloy

    Writes train.extxyz, validation.extxyz and test.extxyz into DIR; every
    label, failures too, is a row of DIR/dataset.db. Stop it at any time, even
    with kill -9: the same command goes on. A larger --count extends a data set.
    """
    from nugget.dataset import Recipe, build, expanded, read_recipe
    from nugget.errors import NuggetError
    from nugget.evaluation.trust import engine_code, require_trust

    if resume is not None:
        if formulas or source or out is not None:
            raise NuggetError("--resume DIR needs nothing else: the recipe is in DIR.")
        recipe, out = read_recipe(resume), resume
        require_trust(engine_code(recipe.engine, recipe.options), str(resume), trust)
    elif out is None:
        raise NuggetError("Say where the data set goes: --out DIR (or --resume DIR).")
    else:
        recipe = Recipe(
            formulas=expanded(formulas or []),
            count=count,
            engine=engine or Recipe.engine,
            options=engine_options(option or []),
            seed=seed,
            generators=tuple(generator or Recipe.generators),
            sources=tuple(str(path.absolute()) for path in source or []),
            relax_steps=relax_steps,
            rattle=rattle,
            split=_shares(split),
            time_limit=time_limit,
        )
    start = time.perf_counter()
    with progress("Labelling", not json) as step:
        report = build(out, recipe, workers, step)
    seconds = time.perf_counter() - start
    if json:
        emit({"recipe": recipe.to_dict(), "seconds": seconds, **report.to_dict()})
    else:
        _print(recipe, report, seconds)


def _shares(text: str) -> tuple[float, float, float]:
    from nugget.errors import NuggetError

    try:
        train, validation, test = (float(part) for part in text.split(":"))
    except ValueError as error:
        raise NuggetError(f"--split {text} is not three numbers such as 8:1:1.") from error
    return train, validation, test


def _print(recipe: Recipe, report: Report, seconds: float) -> None:
    kinds = sorted({kind for counts in report.streams.values() for kind in counts})
    table(
        "Candidates",
        ("", *kinds),
        [(name, *(counts.get(k, 0) for k in kinds)) for name, counts in report.streams.items()],
    )
    facts(
        "Data set",
        [
            ("structures", f"{report.structures} of {report.wanted}"),
            *((part, f"{n} in {part}.extxyz") for part, n in report.parts.items()),
            ("engine", f"{recipe.engine}, {recipe.relax_steps} relaxation steps"),
            ("labelled", f"{report.labelled_now} now, {report.labelled_before} before"),
            ("failures", ", ".join(f"{n} {k}" for k, n in report.failures.items()) or "none"),
            ("time", f"{seconds:.0f} s now, {report.engine_seconds:.0f} s of engine in all"),
            ("directory", report.directory),
        ],
    )
    if not report.complete:
        typer.echo(
            f"Only {report.structures} different structures were found: use more formulas or "
            "other generators.",
            err=True,
        )
