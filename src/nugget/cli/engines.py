"""`nugget engines`: which calculators there are, and how to get those that are missing."""

from __future__ import annotations

from nugget.cli._common import emit
from nugget.cli._options import Json


def engines(json: Json = False) -> None:
    """List the engines: what they are, whether they are installed, how to install them.

    [bold]Examples[/bold]

        nugget engines
        nugget engines --json
        nugget search Au20 --engine gpaw
        nugget search Au20 --engine my_module:my_factory

    An engine gives energies and forces to a search. Besides these names, module:factory stands
    for any function that can be imported and returns an ASE calculator.
    """
    from dataclasses import asdict

    from nugget.evaluation.engines import describe_engines

    found = describe_engines()
    if json:
        emit({"engines": [asdict(engine) for engine in found]})
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Engines", title_justify="left", title_style="bold", show_lines=True)
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    table.add_column("installed", overflow="fold")
    for engine in found:
        name = f"{engine.name} (default)" if engine.default else engine.name
        state = Text("yes", style="green")
        if not engine.installed:
            state = Text(f"no: {engine.how_to_install or 'see its authors'}", style="yellow")
        table.add_row(Text(name), Text(engine.description), state)
    console = Console()
    console.print(table)
    console.print("Any other ASE calculator: --engine module:factory", markup=False)
