"""`nugget check`: are all gradients those of the functions they belong to?"""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, progress, several, table

WRONG = 1


def check(
    model: opt.ModelFile,
    data: opt.DataFile,
    index: opt.Index = "0:5",
    kappa: Annotated[
        float, typer.Option(help="Of the lower confidence bound E − κσ that is checked.")
    ] = 2.0,
    tolerance: Annotated[
        float, typer.Option(help="Largest deviation, as a share of the largest component.")
    ] = 1e-5,
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Compare all gradients of a model with finite differences.

    Forces, stress, and the gradients of σ and E − κσ are checked.

    Every component of the first five structures (or of --index) is compared.
    The exit code is 1 if any deviates by more than the tolerance.

    [bold]Examples[/bold]

        nugget check au.model test.extxyz
        nugget check au.model test.extxyz -i ::100 --kappa 3
    """
    from nugget.modelfile.file import load
    from nugget.potential.gradient_check import check_gradients
    from nugget.structures.io import read_images

    potential = load(model, trust_code=trust)
    images = read_images(data, index)
    with progress("Checking", not json) as step:
        checks = check_gradients(potential, images, kappa, tolerance, step)
    passed = all(one.passed for one in checks)
    if json:
        rows = [{**asdict(one), "passed": one.passed} for one in checks]
        emit({"passed": passed, "structures": len(images), "checks": rows})
    else:
        table(
            f"Gradients of {several(len(images), 'structure')} against finite differences",
            ("gradient", "components", "largest", "deviation", "allowed", "worst at", ""),
            [
                (
                    one.name,
                    one.components,
                    f"{one.largest:.3g}",
                    f"{one.deviation:.1e}",
                    f"{one.tolerance:.0e}",
                    one.where,
                    "ok" if one.passed else "WRONG",
                )
                for one in checks
            ],
        )
    if not passed:
        raise typer.Exit(WRONG)
