"""`nugget dataset`: structures from generators or searches, labelled by an engine."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import typer
from typer import Argument, Option

from nugget.cli import _options as opt
from nugget.cli._console import emit, engine_options, facts, progress, table
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from nugget.dataset import Recipe, Report


def dataset(
    formulas: list[str] | None = Argument(
        None, help="As Au20 or Cu3Au5; Au10-Au20 is a range, Au10-20:2 every second."
    ),
    count: int = Option(100, "--count", "-n", help="Number of structures.", min=1),
    out: opt.Out = None,
    resume: opt.Resume = None,
    engine: opt.Engine = None,
    option: list[str] | None = Option(
        None, help="Option of the engine, as electronic_temperature=300; repeatable."
    ),
    workers: int = Option(1, "--workers", "-j", help="Parallel processes.", min=1),
    seed: opt.RandomSeed = 0,
    generator: list[str] | None = Option(
        None, help="Generators. Default: random_cluster and symmetric."
    ),
    source: list[Path] | None = Option(
        None, "--from", help="Take structures from a search.db or another file instead."
    ),
    relax_steps: int = Option(5, help="Relaxation steps with the engine before labelling.", min=0),
    rattle: float = Option(
        0.3, help="Largest random displacement of generated structures, Å.", min=0
    ),
    split: str = Option("8:1:1", help="Shares of train, validation and test, as 8:1:1."),
    time_limit: float = Option(600.0, help="Time limit per structure, s."),
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Build a data set of distinct structures, labelled and split.

    [bold]Examples[/bold]

        nugget dataset Au10-20:2 -n 300 --engine gfn1-xtb -j 2 --out gold
        nugget dataset --resume gold -j 4
        nugget dataset --from run/search.db -n 100 --relax-steps 0 -o again
        nugget dataset Cu3Au5 Cu4Au4 -n 40 -e emt --split 225:25:50 -o alloy

    Writes train.extxyz, validation.extxyz and test.extxyz into DIR. Every
    evaluation, including failures, is a row of DIR/dataset.db. An interrupted or
    killed run is continued by the same command. A larger --count extends a data
    set.
    """
    from nugget.dataset import Recipe, build, expanded, read_recipe
    from nugget.engines.engine_settings import engine_code, require_trust

    if resume is not None:
        if formulas or source or out is not None:
            raise NuggetError("--resume DIR takes no other options; the recipe is in DIR.")
        recipe, out = read_recipe(resume), resume
        require_trust(engine_code(recipe.engine, recipe.options), str(resume), trust)
    elif out is None:
        raise NuggetError("Give the directory of the data set with --out DIR (or --resume DIR).")
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
    try:
        train, validation, test = (float(part) for part in text.split(":"))
    except ValueError as error:
        raise NuggetError(f"--split {text} is not three numbers such as 8:1:1.") from error
    return train, validation, test


def _print(recipe: Recipe, report: Report, seconds: float) -> None:
    kinds = sorted({kind for counts in report.streams.values() for kind in counts})
    rows = [(name, *(n.get(kind, 0) for kind in kinds)) for name, n in report.streams.items()]
    table("Candidates", ("", *kinds), rows)
    facts(
        "Data set",
        [
            ("structures", f"{report.structures} of {report.wanted}"),
            *((part, f"{n} in {part}.extxyz") for part, n in report.parts.items()),
            ("engine", f"{recipe.engine}, {recipe.relax_steps} relaxation steps"),
            ("labelled", f"{report.labelled_now} now, {report.labelled_before} before"),
            ("failures", ", ".join(f"{n} {k}" for k, n in report.failures.items()) or "none"),
            *([("engine check", report.engine_check)] if report.engine_check else []),
            ("time", f"{seconds:.0f} s now, {report.engine_seconds:.0f} s of engine in all"),
            ("directory", report.directory),
        ],
    )
    if not report.complete:
        few = f"Only {report.structures} distinct structures were generated"
        typer.echo(f"{few}; use more formulas or other generators.", err=True)
