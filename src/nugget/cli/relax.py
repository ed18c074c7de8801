"""`nugget relax`: relax structures with an engine, in as few evaluations as possible."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nugget.cli._common import emit, table
from nugget.cli._options import Json
from nugget.cli._output import Force, refuse_existing


def relax(
    structures: Annotated[Path, typer.Argument(help="Structures to relax.", metavar="FILE")],
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="OUT", help="File for the relaxed structures.")
    ],
    engine: Annotated[
        str, typer.Option(help="A name from `nugget engines`, or module:factory.")
    ] = "gfn1-xtb",
    fmax: Annotated[
        float, typer.Option(min=1e-6, help="Largest force that is left on a free atom, eV/Å.")
    ] = 0.05,
    max_evaluations: Annotated[
        int, typer.Option(min=1, help="Evaluations of one structure at the most.")
    ] = 200,
    jobs: Annotated[int, typer.Option("--jobs", "-j", min=1, help="Structures at a time.")] = 1,
    probes: Annotated[
        int,
        typer.Option(min=0, help="Soft modes to try, to tell minima from saddles; 0: none."),
    ] = 0,
    cell: Annotated[
        bool, typer.Option("--cell", help="Relax the cells of crystals together with the atoms.")
    ] = False,
    pressure: Annotated[float, typer.Option(help="With --cell: pressure in GPa.")] = 0.0,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="KEY=VALUE", help="Setting of the engine, as engine.charge=1."
        ),
    ] = None,
    force: Force = False,
    json: Json = False,
) -> None:
    """Relax structures with an engine.

    [bold]Examples[/bold]

        nugget relax best.extxyz --engine gfn1-xtb -o relaxed.extxyz
        nugget relax slabs.traj --engine emt -o relaxed.traj -j 4
        nugget relax crystals.cif --engine tersoff --cell --pressure 10 -o out.cif
        nugget relax clusters.xyz --engine my_module:make --fmax 0.01 -o out.xyz

    A local model learns from every energy and force and takes the steps; the engine alone decides
    what is lower and what is converged. This needs a third or less of the evaluations of a usual
    optimiser. Cells are kept; atoms that the file fixes (FixAtoms, FixCartesian) stay.

    With --cell a crystal's cell is relaxed too, at a pressure, by L-BFGS on the engine's energies,
    forces and stresses, without a local model.

    The exit code is 1 if a structure has not converged; its lowest structure is written anyway.
    """
    from nugget.cli._relax import (
        cell_relaxation,
        engine_config,
        learning_relaxation,
        relax_all,
        row,
    )
    from nugget.errors import NuggetError
    from nugget.structures.io import read_images, write_images

    refuse_existing(out, force, inputs=(structures,))
    images = read_images(structures)
    config = engine_config(engine, settings or [])
    if pressure and not cell:
        raise NuggetError("--pressure needs --cell: only cells feel a pressure.")
    if cell:
        config = config.model_copy(update={"stress": True})
    begin = cell_relaxation(pressure) if cell else learning_relaxation(probes)
    runs = relax_all(images, config, begin, fmax, max_evaluations, jobs, shown=not json)
    write_images(out, [run.result().atoms for run in runs])
    rows = [row(k, run) for k, run in enumerate(runs)]
    if json:
        emit({"structures": rows, "evaluations": sum(run.evaluations for run in runs)})
    else:
        columns = ("structure", "start, eV", "end, eV", "fmax, eV/Å", "evaluations", "")
        lines = [
            (r["formula"], _energy(r["start_energy"]), _energy(r["energy"]),
             "–" if r["fmax"] is None else f"{r['fmax']:.4f}", r["evaluations"], r["reason"])
            for r in rows
        ]  # fmt: skip
        table(f"Relaxed with {engine}: {out}", columns, lines)
    if not all(run.result().converged for run in runs):
        raise typer.Exit(1)


def _energy(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
