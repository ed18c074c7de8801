"""The parts of `nugget md` and `nugget neb`."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import typer
from ase import Atoms
from pydantic import ValidationError

from nugget.cli._relax import engine_config
from nugget.cli._search import graceful_stop
from nugget.errors import NuggetError
from nugget.evaluation.config import EngineConfig, Section
from nugget.evaluation.trust import code_in, require_trust
from nugget.onthefly.config import MDConfig, NEBConfig
from nugget.onthefly.md import MDRun, Progress
from nugget.onthefly.neb import NEBRun
from nugget.report.digest import duration
from nugget.structures.io import read_images

Config = TypeVar("Config", bound=Section)

_SECONDS = 5.0  # between lines


def begin_md(
    start: Path | None,
    out: Path | None,
    resume: Path | None,
    engine: str | None,
    model: Path | None,
    settings: Sequence[str],
    chosen: dict[str, Any],
    trust: bool,
) -> MDRun:
    """A new run, or one that is continued."""
    if resume is not None:
        if start or out or engine or model or settings or chosen.keys() - {"steps"}:
            raise NuggetError("--resume goes on with the run's own settings; only --steps changes.")
        run = MDRun.resume(resume, chosen.get("steps"))
        require_trust(code_in(run.config.engine), str(resume), trust)
        return run
    if start is None or out is None:
        raise NuggetError("Give a structure and --out DIR, or --resume DIR.")
    config = _config(MDConfig, engine, settings, chosen)
    return MDRun.create(read_one(start), config, out, model)


def begin_neb(
    start: Path | None,
    end: Path | None,
    out: Path | None,
    resume: Path | None,
    engine: str | None,
    settings: Sequence[str],
    chosen: dict[str, Any],
    trust: bool,
) -> NEBRun:
    """A new run, or one that is continued."""
    if resume is not None:
        if start or end or out or engine or settings or chosen:
            raise NuggetError("--resume goes on with the run's own settings; it takes no others.")
        run = NEBRun.resume(resume)
        require_trust(code_in(run.config.engine), str(resume), trust)
        return run
    if start is None or end is None or out is None:
        raise NuggetError("Give two structures and --out DIR, or --resume DIR.")
    config = _config(NEBConfig, engine, settings, chosen)
    return NEBRun.create(read_one(start), read_one(end), config, out)


def _config(
    kind: type[Config], engine: str | None, settings: Sequence[str], chosen: dict[str, Any]
) -> Config:
    named: EngineConfig = engine_config(engine or "gfn1-xtb", settings)
    try:
        return kind.model_validate({"engine": named, **chosen})
    except ValidationError as error:
        first = error.errors()[0]
        name = str(first["loc"][0]).replace("_", "-")
        raise NuggetError(f"--{name}: {first['msg']} (got {first['input']!r}).") from None


def read_one(path: Path) -> Atoms:
    """The last structure of a file, without what a file may carry besides."""
    atoms = read_images(path, "-1")[0]
    atoms.calc, atoms.info = None, {}
    return atoms


class _Notes:
    def note(self, text: str) -> None:
        typer.echo(text)


def follow_md(run: MDRun, shown: bool) -> Progress:
    """Run, with a line every few seconds; Ctrl-C ends after the present step."""
    last = time.monotonic()

    def watch(progress: Progress) -> None:
        nonlocal last
        if shown and time.monotonic() - last > _SECONDS:
            last = time.monotonic()
            typer.echo(line(progress))

    with graceful_stop(run.stop, _Notes() if shown else None):
        return run.run(watch)


def line(progress: Progress) -> str:
    """One line on a run: where it is, how certain, how fast."""
    warm = ", ".join(f"{temperature:.0f}" for temperature in progress.temperatures)
    return (
        f"step {progress.step}/{progress.steps}  {warm} K  "
        f"σ {progress.std:.3f} eV/Å  calls {len(progress.calls)}  "
        f"{progress.ns_per_day:.3g} ns/day  {duration(progress.seconds_left)} left"
    )
