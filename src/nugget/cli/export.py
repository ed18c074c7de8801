"""`nugget export`: a small model that predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, facts
from nugget.cli._output import Force, refuse_existing


def export(
    model: opt.ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")],
    trust: opt.Trust = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Write a small model: it predicts as before, but cannot learn on.

    [bold]Examples[/bold]

        nugget export au.model -o au-lean.model
    """
    from nugget.modelfile.file import load

    refuse_existing(output, force, inputs=(model,))
    load(model, trust_code=trust).save(output, lean=True)
    sizes = {"model": model.stat().st_size, "lean": output.stat().st_size}
    if json:
        emit({"model": model, "output": output, "bytes": sizes})
        return
    facts(
        "Exported",
        [
            ("from", f"{model} ({sizes['model'] / 1e6:.2g} MB)"),
            ("to", f"{output} ({sizes['lean'] / 1e6:.2g} MB)"),
        ],
    )
