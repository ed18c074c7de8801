"""`nugget export`: write a lean model file."""

from __future__ import annotations

from pathlib import Path

from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, emit, facts, refuse_existing


def export(
    model: opt.ModelFile,
    output: Path = Option(..., "--output", "-o", help="The model file to write."),
    trust: opt.Trust = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Write a small model that predicts as before but cannot be updated.

    [bold]Examples[/bold]

        nugget export au.model -o au-lean.model
    """
    from nugget.potential.potential import Potential

    refuse_existing(output, force, inputs=(model,))
    Potential.load(model, trust_code=trust).save(output, lean=True)
    sizes = {"model": model.stat().st_size, "lean": output.stat().st_size}
    if json:
        emit({"model": model, "output": output, "bytes": sizes})
        return
    megabytes = {name: f"{size / 1e6:.2g} MB" for name, size in sizes.items()}
    rows = [("from", f"{model} ({megabytes['model']})"), ("to", f"{output} ({megabytes['lean']})")]
    facts("Exported", rows)
