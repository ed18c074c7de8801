"""`nugget watch`: the page of a running search."""

from __future__ import annotations

from pathlib import Path

import typer
from typer import Argument, Option

from nugget.cli import _options as opt


def watch(
    run: Path = Argument(
        ..., help="Run directory of a search, campaign, md or neb run.", metavar="RUN"
    ),
    port: int = Option(8722, min=0, max=65535, help="Port; any free one if it is taken."),
    browser: bool = Option(False, "--browser", help="Open a browser."),
    trust: opt.Trust = False,
) -> None:
    """Serve the page of a run in progress to this machine.

    [bold]Examples[/bold]

        nugget watch runs/Au20-seed0
        nugget watch runs/Au20-seed0 --port 9000 --browser

    The page is that of `nugget report` and updates itself, also when the run ends, is killed or is
    resumed. Only this machine can reach the page; the command prints an ssh command for access
    from other machines. Nothing is written to the run directory.
    """
    import os
    import signal

    from nugget.report.watch import Feed, Server

    os.nice(10)  # the search has priority
    server = Server(Feed(run, trust), port)
    typer.echo(f"Watching {run}: {server.address}")
    if port and server.port != port:
        typer.echo(f"(port {port} is taken)")
    tunnel = f"ssh -N -L {server.port}:127.0.0.1:{server.port} {_here()}"
    typer.echo(f"To see it on another machine, run there, then open the same address:\n  {tunnel}")
    typer.echo("Ctrl-C stops the server; the run continues.")
    if browser:
        import webbrowser

        webbrowser.open(server.address)

    def leave(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, leave)
    try:
        server.serve_forever(poll_interval=0.5)
    except KeyboardInterrupt:
        typer.echo("")
    finally:
        server.server_close()


def _here() -> str:
    """user@host for ssh."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name in the password file
        user = "USER"
    return f"{user}@{socket.gethostname()}"
