"""Where a command may write: nothing is replaced unless --force says so."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

from typer import Option

from nugget.errors import NuggetError
from nugget.structures.files import refuse_read_only

Force = Annotated[bool, Option("--force", help="Replace a file that exists already.")]


def refuse_existing(path: Path, force: bool, inputs: Iterable[Path] = ()) -> None:
    """Refuse a place that cannot be written to, or that holds something; `inputs` always."""
    parent = path.absolute().parent
    if path.is_dir() or not parent.is_dir():
        raise NuggetError(f"{path} cannot be written: no such directory, or it is one.")
    if any(path.exists() and one.exists() and path.samefile(one) for one in inputs):
        raise NuggetError(f"{path} is read by this very command; choose another name with -o.")
    if path.exists() and not force:
        raise NuggetError(
            f"{path} exists already; choose another name, or add --force to replace it."
        )
    refuse_read_only(path)
    if not os.access(parent, os.W_OK):
        raise NuggetError(f"{path} cannot be written: its directory is read-only.")
