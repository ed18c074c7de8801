"""`nugget watch`: a search on a page, while it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from nugget.cli import _options as opt


def watch(
    run: Annotated[Path, typer.Argument(help="The directory of a search.", metavar="RUN")],
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="The port, or any free one if it is taken.")
    ] = 8722,
    browser: Annotated[bool, typer.Option("--browser", help="Open a browser, too.")] = False,
    trust: opt.Trust = False,
) -> None:
    """Show a search on a page of this machine, while it runs.

    [bold]Examples[/bold]

        nugget watch runs/Au20-seed0
        nugget watch runs/Au20-seed0 --port 9000 --browser

    The page is that of `nugget report`; new evaluations appear by themselves.
    The search may end, be killed and be continued meanwhile. Only this machine
    can reach the page; for a remote one, a line for ssh is printed. The search's
    directory is only read.
    """
    import os
    import signal

    from nugget.report.watch import Feed, Server

    os.nice(10)  # the search goes first
    server = Server(Feed(run, trust), port)
    typer.echo(f"Watching {run}: {server.address}")
    if port and server.port != port:
        typer.echo(f"(port {port} is taken)")
    tunnel = f"ssh -N -L {server.port}:127.0.0.1:{server.port} {_here()}"
    typer.echo(
        f"To see it on another machine, run this there, then open the same address:\n  {tunnel}"
    )
    typer.echo("Ctrl-C ends the watching; the search goes on.")
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
    """user@host, as ssh wants it."""
    import getpass
    import socket

    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # no name in the password file
        user = "USER"
    return f"{user}@{socket.gethostname()}"
