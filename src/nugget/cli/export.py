"""`nugget export`: a small model that predicts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nugget.cli._common import Json, ModelFile, Trust, emit, facts


def export(
    model: ModelFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")],
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Write a model without its training set: it predicts as before, but cannot learn on.

    [bold]Examples[/bold]

        nugget export au.model -o au-lean.model
    """
    from nugget.cli._before_fit import check_writable
    from nugget.modelfile.file import load

    check_writable(output)
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
