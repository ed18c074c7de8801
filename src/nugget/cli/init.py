"""`nugget init`: a commented file with all settings of a search."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from typer import Argument, Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, emit, refuse_existing


def init(
    formula: str = Argument("Au20", help="Atoms to place, as Au20 or Cu5Au8."),
    output: Path = Option(
        Path("search.toml"), "--output", "-o", help="File to write; - prints it instead."
    ),
    engine: opt.Engine = None,
    template: str | None = Option(None, help="File with a slab on which the atoms are placed."),
    cell: str | None = Option(
        None, help="Periodic cell: 'a b c' or 'a b c alpha beta gamma' (Å, degrees)."
    ),
    vary: opt.Vary = None,
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
        nugget init --template slab.traj --vary O:0-6 -o oxide.toml

    Edit the file and run `nugget search FILE`. Missing settings have their
    defaults. An existing file is replaced only with --force.
    """
    from nugget.engines.engine import get_engine
    from nugget.errors import NuggetError
    from nugget.search.search_settings import make_config, write_config
    from nugget.storage.files import write_atomically
    from nugget.systems.placed_atoms import PlacedAtoms

    if (template is not None) + (cell is not None) + crystal > 1:
        raise NuggetError("Give one of --template (a surface), --cell (a bulk) and --crystal.")
    system: dict[str, Any] = {"formula": formula} if vary is None else {"vary": vary}
    if template is not None:
        system |= {"kind": "surface", "template": template}
    if cell is not None:
        system |= {"kind": "bulk", "cell": cell.replace(",", " ").split()}
    if crystal:
        system |= {"kind": "crystal"}
    settings: dict[str, Any] = {"system": system}
    if engine is not None:
        get_engine(engine)  # refuses an unknown name
        settings["engine"] = {"name": engine}
    config = make_config(settings, "nugget init")
    PlacedAtoms.cluster(config.system.formula)  # refuses an invalid formula
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
