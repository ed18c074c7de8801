"""Mistakes of the user and of the machine in one red line; warnings in one yellow line."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import typer

from nugget.errors import NuggetError

BAD_INPUT = 2


@contextmanager
def handled() -> Iterator[None]:
    """Turn what a user can put right into one line on stderr and exit code 2."""
    with warnings.catch_warnings():
        warnings.showwarning = _show
        try:
            yield
        except NuggetError as error:
            _stop(str(error))
        except MemoryError:
            _stop("There is not enough memory; use fewer inducing points (--points) or structures.")
        except BrokenPipeError:
            raise  # somebody closed the pipe (`| head`): typer leaves quietly
        except OSError as error:
            name = f"{error.filename}: " if error.filename else ""
            _stop(f"{name}{error.strerror or error}.")


def _stop(message: str) -> None:
    _line("Error: ", " ".join(message.split()), typer.colors.RED)
    raise typer.Exit(BAD_INPUT)


def _line(kind: str, message: str, colour: str) -> None:
    # Plain echo: rich would wrap and take [brackets] for markup.
    typer.secho(kind + message, fg=colour, err=True)


def _show(message: Warning | str, category: type[Warning], *_: Any, **__: Any) -> None:
    if issubclass(category, DeprecationWarning | PendingDeprecationWarning | FutureWarning):
        return
    sys.stdout.flush()
    _line("Warning: ", " ".join(str(message).split()), typer.colors.YELLOW)
