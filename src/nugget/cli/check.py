"""`nugget check`: compare the gradients of a model with finite differences."""

from __future__ import annotations

from dataclasses import asdict

import typer
from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import emit, progress, table
from nugget.display import counted

WRONG = 1


def check(
    model: opt.ModelFile,
    data: opt.DataFile,
    index: opt.Index = "0:5",
    kappa: float = Option(2.0, help="Of the lower confidence bound E − κσ that is checked."),
    tolerance: float = Option(1e-5, help="Largest deviation, as a share of the largest component."),
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
    from nugget.potential.gradient_check import check_gradients
    from nugget.potential.potential import Potential
    from nugget.structures.io import read_images

    potential = Potential.load(model, trust_code=trust)
    images = read_images(data, index)
    with progress("Checking", not json) as step:
        checks = check_gradients(potential, images, kappa, tolerance, step)
    passed = all(one.passed for one in checks)
    if json:
        rows = [{**asdict(one), "passed": one.passed} for one in checks]
        emit({"passed": passed, "structures": len(images), "checks": rows})
    else:
        title = f"Gradients of {counted(len(images), 'structure')} against finite differences"
        columns = ("gradient", "components", "largest", "deviation", "allowed", "worst at", "")
        lines = []
        for one in checks:
            numbers = (f"{one.largest:.3g}", f"{one.deviation:.1e}", f"{one.tolerance:.0e}")
            verdict = "ok" if one.passed else "WRONG"
            lines.append((one.name, one.components, *numbers, one.where, verdict))
        table(title, columns, lines)
    if not passed:
        raise typer.Exit(WRONG)
