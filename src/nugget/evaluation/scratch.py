"""A directory of its own for every evaluation.

Codes that write files find their current directory (and ASE's `directory`) set to a fresh one, so
that evaluations side by side never meet and nothing is written where nugget was started. The
directory is removed after a success. It is kept after a failure, with what the engine printed in
`output.txt`, unless it holds nothing. While it is in use, a file beside it names the process that
made it: what a killed process has left behind is removed by the next one on the same machine.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import tempfile
from pathlib import Path

from nugget.structures.files import alive

OUTPUT = "output.txt"
_LONGEST = 1 << 20  # bytes of output that are kept
_IN_USE = ".in-use"  # ends the name of the file beside a directory


class Scratch:
    """Makes directories below `base`, and removes those that nobody needs."""

    def __init__(self, base: str | None = None, keep: bool = False, start: str = "") -> None:
        """`base` may hold ~ and $VARIABLES, which count where the evaluation runs.

        A relative one counts from the directory `start`. None: the system's directory for
        temporary files.
        """
        written = os.path.expandvars(os.path.expanduser(base)) if base else tempfile.gettempdir()
        self.base = Path(start or os.getcwd(), written)
        self.keep = keep
        self._made_base = False

    def make(self) -> Path:
        """A fresh, empty directory."""
        while True:
            if not self.base.exists():
                self.base.mkdir(parents=True, exist_ok=True)
                self._made_base = True
            try:
                made = Path(tempfile.mkdtemp(prefix="evaluation-", dir=self.base))
                _mark(made).write_text(f"{os.getpid()} {platform.node()}\n")
                return made
            except FileNotFoundError:
                continue  # another worker has just removed the empty base

    def finish(self, directory: Path, failed: bool, output: bytes = b"") -> Path | None:
        """Remove the directory unless it is of use; where it is kept, if it is."""
        _mark(directory).unlink(missing_ok=True)
        if failed or self.keep:
            with contextlib.suppress(OSError):
                if output.strip():
                    (directory / OUTPUT).write_bytes(output[-_LONGEST:])
                if any(directory.iterdir()):
                    return directory
        shutil.rmtree(directory, ignore_errors=True)
        return None

    def sweep(self) -> None:
        """Remove what processes of this machine have left behind that are no more."""
        for mark in self.base.glob(f"evaluation-*{_IN_USE}"):
            with contextlib.suppress(OSError, ValueError):
                process, machine = mark.read_text().split()
                if machine == platform.node() and not alive(int(process)):
                    shutil.rmtree(mark.with_suffix(""), ignore_errors=True)
                    mark.unlink()

    def close(self) -> None:
        """Leave no empty directory behind that was made here."""
        if self._made_base:
            with contextlib.suppress(OSError):
                self.base.rmdir()


def _mark(directory: Path) -> Path:
    return directory.with_name(directory.name + _IN_USE)
