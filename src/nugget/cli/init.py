"""`nugget init`: a commented file with all settings of a search."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit
from nugget.cli._output import Force, refuse_existing


def init(
    formula: Annotated[str, typer.Argument(help="Atoms to place, as Au20 or Cu5Au8.")] = "Au20",
    output: Annotated[
        Path, typer.Option("--output", "-o", help="The file to write; - prints it instead.")
    ] = Path("search.toml"),
    engine: opt.Engine = None,
    template: Annotated[
        str | None, typer.Option(help="A file with a slab: atoms are placed on it.")
    ] = None,
    cell: Annotated[
        str | None,
        typer.Option(help="A periodic cell: 'a b c' or 'a b c alpha beta gamma' (Å, degrees)."),
    ] = None,
    crystal: opt.Crystal = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Write a commented TOML file with all settings of a search.

    [bold]Examples[/bold]

        nugget init Au20 -o au20.toml
        nugget init Cu5Au8 --engine emt -o alloy.toml
        nugget init Cu3 --template slab.traj -o adsorbate.toml
        nugget init Ti4O8 --cell '4.6 4.6 5.9' -o bulk.toml
        nugget init TiO2 --crystal -o crystal.toml

    Change what you like (or remove it: what is not there has its default), then
    run `nugget search FILE`. An existing file is kept, unless --force.
    """
    from nugget.errors import NuggetError
    from nugget.evaluation.engines import get_engine
    from nugget.generators import Problem
    from nugget.search.config import make_config, write_config
    from nugget.structures.files import write_atomically

    if (template is not None) + (cell is not None) + crystal > 1:
        raise NuggetError("Give one of --template (a surface), --cell (a bulk) and --crystal.")
    system: dict[str, Any] = {"formula": formula}
    if template is not None:
        system |= {"kind": "surface", "template": template}
    if cell is not None:
        system |= {"kind": "bulk", "cell": cell.replace(",", " ").split()}
    if crystal:
        system |= {"kind": "crystal"}
    settings: dict[str, Any] = {"system": system}
    if engine is not None:
        get_engine(engine)  # a name that does not exist is refused here
        settings["engine"] = {"name": engine}
    config = make_config(settings, "nugget init")
    Problem.cluster(formula)  # a formula that is none is refused here, too
    text = write_config(config)
    if str(output) == "-":
        typer.echo(text, nl=False)
        return
    refuse_existing(output, force)
    write_atomically(output, text)
    if json:
        emit({"config": output, "settings": config.model_dump()})
    else:
        typer.echo(f"Written: {output}\nTo start: nugget search {output}")
