"""`nugget ipi`: a model as a client of i-PI."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import emit, facts


def ipi(
    model: opt.ModelFile,
    data: Path = Option(
        ..., help="The structure that i-PI begins with: elements and order.", metavar="START"
    ),
    socket: str | None = Option(
        None, help="Name of the Unix socket (mode='unix').", metavar="NAME"
    ),
    host: str = Option("localhost", help="Host of the server (mode='inet')."),
    port: int | None = Option(None, help="Port of the server (mode='inet')."),
    wait: float = Option(60.0, min=0.0, help="Seconds to wait for the server."),
    stop_above: float | None = Option(
        None, help="σ above which the client stops, eV/atom. Default: none."
    ),
    halted: Path = Option(
        Path("halted.extxyz"), help="File to which the structure of a stop is added."
    ),
    trust: opt.Trust = False,
    json: opt.Json = False,
) -> None:
    """Calculate energies, forces and virials for i-PI.

    [bold]Examples[/bold]

        i-pi input.xml & nugget ipi au.model --data start.xyz --socket gold
        nugget ipi au.model --data start.xyz --port 31415 --stop-above 0.01

    i-PI moves the atoms, for example as beads of a path integral. Other programs with the same
    protocol work as well. Start several clients to evaluate beads in parallel. σ of the energy (eV)
    and the distance from the training domain are the extras `energy_uncertainty` and `outside`.

    After a stop with --stop-above, i-PI waits for another client. Label the structure, fit a model
    to the extended training set, and start the client again. The exit code is then 3.
    """
    from nugget.cli.md import read_start
    from nugget.interop.socket_client import Server, serve
    from nugget.potential.calculator import OutsideError
    from nugget.potential.model_calculator import load_calculator
    from nugget.structures.io import write_images

    server = Server(socket, host, port)
    atoms = read_start(data)
    calculator = load_calculator(model, trust, stop_above=stop_above)
    try:
        evaluations = serve(atoms, calculator, server, wait)
    except OutsideError as error:
        write_images(halted, atoms.copy(), append=True)
        typer.echo(f"{error}\nWritten: {halted}", err=True)
        raise typer.Exit(3) from None
    if json:
        emit({"server": str(server), "evaluations": evaluations})
    else:
        facts("i-PI", [("server", server), ("evaluations", evaluations)])
