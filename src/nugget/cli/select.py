"""`nugget select`: the structures whose labels teach a potential most."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from nugget.cli import _options as opt
from nugget.cli._console import Force, emit, facts, number, refuse_existing, table

if TYPE_CHECKING:
    from nugget.dataset.selection import Selection
    from nugget.numerics.arrays import Bools


_SHOWN = 20

_WORDS = {"energy": "energies per atom", "forces": "force components", "atoms": "atomic energies"}


def select(
    pool: Annotated[
        Path, typer.Argument(help="Structures to choose from, or a trajectory.", metavar="POOL")
    ],
    count: Annotated[int, typer.Option("--count", "-n", min=1, help="Structures to choose.")] = 20,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="File for the chosen structures, best first."),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(help="Use the kernel, noise levels and training set of this model."),
    ] = None,
    learned: Annotated[
        Path | None,
        typer.Option(help="Structures that have been or will be labelled anyway."),
    ] = None,
    by: Annotated[
        Literal["energy", "forces", "atoms"],
        typer.Option(help="Whose variance to reduce: that of energies, forces or atomic energies."),
    ] = "energy",
    method: Annotated[
        Literal["variance", "pivoted", "farthest", "random"],
        typer.Option(help="Rule of the choice."),
    ] = "variance",
    forces: Annotated[
        bool | None,
        typer.Option("--forces/--no-forces", help="Count forces of labels. Default: --by forces."),
    ] = None,
    cost: Annotated[
        Literal["structure", "atoms"],
        typer.Option(help="Unit of the cost of a label: a structure or an atom."),
    ] = "structure",
    index: opt.Index = ":",
    exclude: Annotated[
        str | None,
        typer.Option(help="Structures of POOL that are not chosen, as '0:100'."),
    ] = None,
    worth: Annotated[
        float,
        typer.Option(min=0, help="A label is worthwhile if σ falls by this share."),
    ] = 0.005,
    plot: Annotated[
        Path | None, typer.Option(help="Figure of σ against labels: .png, .pdf, .svg.")
    ] = None,
    seed: opt.RandomSeed = 0,
    trust: opt.Trust = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Choose the structures whose labels improve a model most.

    [bold]Examples[/bold]

        nugget select frames.traj -n 20 -o chosen.extxyz
        nugget select pool.extxyz -n 50 --model au.model --plot curve.png
        nugget select pool.db --model au.model --by forces --cost atoms
        nugget label chosen.extxyz --engine gfn1-xtb -o labelled.extxyz

    POOL needs no energies, because the benefit of a label follows from the positions alone. The
    command selects the structure whose label lowers the mean variance of the predictions for POOL
    most, updates the variance, and repeats this, so that similar structures are not selected
    twice. Structures of the training set are never selected.

    The output contains info["expected_uncertainty"], the expected σ of POOL after this label, and
    info["expected_reduction"], the share by which this label lowers it. `pivoted` selects the
    largest remaining σ, and `farthest` the largest distance to all selected structures.
    """
    from nugget.dataset.selection import select as choose
    from nugget.potential.potential import Potential
    from nugget.structures.io import read_images, write_images

    inputs = [path for path in (pool, model, learned) if path is not None]
    for path in (output, plot):
        if path is not None:
            refuse_existing(path, force, inputs=inputs)
    images = read_images(pool, index)
    selection = choose(
        images,
        count,
        None if model is None else Potential.load(model, trust_code=trust),
        by=by,
        method=method,
        forces=forces,
        cost=cost,
        learned=() if learned is None else read_images(learned),
        allowed=_mask(len(images), exclude),
        seed=seed,
    )
    if output is not None:
        chosen = []
        for choice in selection.choices:
            atoms = images[choice.index].copy()
            atoms.info["pool_index"] = choice.index
            atoms.info["expected_uncertainty"] = choice.after
            atoms.info["expected_reduction"] = choice.relative
            chosen.append(atoms)
        write_images(output, chosen)
    if plot is not None:
        from nugget.report.figures import selection_figure

        selection_figure(selection, worth).savefig(plot, dpi=150)
    if json:
        emit({"pool": pool, "output": output, "figure": plot, **selection.to_dict(worth)})
        return
    _print(selection, [len(images[c.index]) for c in selection.choices], worth)
    for path in (output, plot):
        if path is not None:
            typer.echo(f"Written: {path}")


def _mask(count: int, exclude: str | None) -> Bools:
    """True for structures that may be chosen."""
    import numpy as np

    from nugget.structures.io import as_slice

    allowed = np.ones(count, dtype=bool)
    if exclude is not None:
        allowed[as_slice(exclude)] = False
    return allowed


def _print(selection: Selection, sizes: list[int], worth: float) -> None:
    from nugget.dataset.selection import UNITS

    unit = UNITS[selection.by]
    choices = selection.choices
    table(
        f"Expected σ of {_WORDS[selection.by]}, {unit}",
        ("label", "structure", "atoms", f"σ after it, {unit}", "σ falls by"),
        [
            (k, choice.index, size, number(choice.after), f"{choice.relative:.2%}")
            for k, (choice, size) in enumerate(zip(choices, sizes, strict=True), 1)
            if k <= _SHOWN or k == len(choices)
        ],
    )
    enough = selection.worthwhile(worth)
    verdict = f"the first {enough}; each further one lowers σ by less than {worth:.2g} of it"
    if enough == len(choices):
        verdict = f"all {enough}; further ones may help as well"
    facts(
        "Selection",
        [
            ("chosen", f"{len(choices)} of {selection.considered} structures"),
            ("σ of the pool", f"{number(selection.start)} {unit} before the first label"),
            ("worthwhile", verdict),
            ("inducing points", selection.points),
        ],
    )
