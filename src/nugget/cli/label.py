"""`nugget label`: energies and forces of an engine for the structures of a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._console import emit, facts, progress, refuse_existing, table


def label(
    structures: Annotated[Path, typer.Argument(help="Structures to label.", metavar="FILE")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="File for labelled structures.")
    ],
    engine: Annotated[
        str,
        typer.Option(
            "--engine", "-e", help="A name from `nugget engines`, module:factory, or a TOML file."
        ),
    ] = "gfn1-xtb",
    index: opt.Index = ":",
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Setting of the engine, as engine.charge=1."
        ),
    ] = None,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Calculations at a time.")] = 1,
    retry: Annotated[
        bool, typer.Option("--retry", help="Repeat calculations that failed before.")
    ] = False,
    reference_keys: Annotated[
        bool,
        typer.Option("--reference-keys", help="Write REF_energy, REF_forces, total_charge, …"),
    ] = False,
    trust: opt.Trust = False,
    force: Annotated[
        bool, typer.Option("--force", help="Replace OUT, if another command wrote it.")
    ] = False,
    json: opt.Json = False,
) -> None:
    """Calculate energies and forces of structures with an engine.

    [bold]Examples[/bold]

        nugget label chosen.extxyz --engine gfn1-xtb -o labelled.extxyz
        nugget label chosen.extxyz -e settings.toml -j 4 -o labelled.extxyz
        nugget label frames.traj -i ::10 -e emt -o labelled.db

    Every calculation, including failures, is recorded in OUT.labels as soon as it ends. If the
    command was stopped or killed, or if FILE has grown, the same command continues with the
    missing structures. Files of the engine are in OUT.labels/scratch. From a TOML file with
    settings of a search, the section [engine] is used. A structure may define its charge and
    multiplicity as info["total_charge"] and info["total_spin"]. The exit code is 1 if a
    structure has no label.
    """
    from nugget.cli._console import engine_config
    from nugget.dataset.labelling import directory_of
    from nugget.dataset.labelling import label as label_all
    from nugget.structures.io import read_images

    refuse_existing(out, force or directory_of(out).is_dir(), inputs=(structures,))
    images = read_images(structures, index)
    if engine.endswith(".toml"):
        from nugget.engines.engine_settings import engine_code, require_trust
        from nugget.engines.task import Task
        from nugget.errors import NuggetError
        from nugget.search.search_settings import read_config

        if settings:
            raise NuggetError("--set belongs to an engine given by name; edit the TOML file.")
        config = read_config(Path(engine)).engine
        require_trust(engine_code(config.name, config.options), engine, trust)
        Task.of(config).check()
    else:
        config = engine_config(engine, settings or [])
    with progress("Labelling", not json) as step:
        report = label_all(
            images, config, out, jobs, retry=retry, reference_keys=reference_keys, progress=step
        )
    if json:
        emit(report.to_dict())
    else:
        if report.failures:
            rows = [(f"{f.index}", f.formula, f.kind, f.reason) for f in report.failures]
            table("Failures", ("structure", "formula", "kind", "reason"), rows)
        facts(
            f"Labelled with {config.name}",
            [
                ("structures", f"{report.labelled} of {report.structures} have labels"),
                ("calculated now", report.calculated_now),
                ("engine", f"{report.engine_seconds:.0f} s in all"),
                *([("engine check", report.engine_check)] if report.engine_check else []),
                ("written", out if report.labelled else "nothing"),
                ("record", report.directory),
            ],
        )
    if report.failures:
        raise typer.Exit(1)
