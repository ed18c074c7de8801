"""A search that is only looked at: nothing in its directory is written, moved or locked."""

from __future__ import annotations

import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from nugget.errors import NuggetError
from nugget.search.config import Config, make_config, read_config
from nugget.search.polish_step import POLISH, PolishStep
from nugget.search.store import (
    DATABASE,
    PENDING,
    SETTINGS,
    STATUS,
    End,
    Record,
    read_record,
)
from nugget.structures.database import Database
from nugget.structures.files import LOCK
from nugget.structures.sealed import read_sealed

_TICK = 1.0  # seconds

Doing = Literal["running", "stopped", "finished", "found", "interrupted", "failed"]


@dataclass(frozen=True)
class State:
    """What a search is doing. `stopped`: no process works on it, and none has written an end."""

    doing: Doing
    reason: str = ""
    budget: int | None = None
    in_flight: int = 0


class Reader:
    """Reads what is new in a search, as often as one likes."""

    def __init__(self, directory: Path) -> None:
        if not (directory / SETTINGS).exists() and not (directory / DATABASE).exists():
            raise NuggetError(
                f"{directory} holds no search: give the directory that `nugget search` wrote."
            )
        self.directory = directory
        self._database = Database(directory / DATABASE, read_only=True)
        self._last = 0
        self._evaluations = 0
        self._stamp: tuple[int, ...] | None = None
        self._file: int | None = None

    def config(self) -> Config:
        """The settings; from the database if their file is not there."""
        file = self.directory / SETTINGS
        if file.exists():
            return read_config(file)
        then = self._database.metadata().get("settings")
        if not isinstance(then, dict):
            raise NuggetError(f"{self.directory} holds no settings ({SETTINGS} is missing).")
        return make_config(then, str(self.directory / DATABASE))

    def versions(self) -> dict[str, str]:
        """What the search was begun with; nothing if an earlier version did not note it."""
        there = (self.directory / DATABASE).exists()
        return self._database.versions() if there else {}

    def replaced(self) -> bool:
        """Is there another database than the one that was read?"""
        try:
            number = (self.directory / DATABASE).stat().st_ino
        except OSError:
            return self._file is not None
        return self._file is not None and number != self._file

    def news(self) -> tuple[list[Record], list[PolishStep]]:
        """Evaluations, and steps of relaxations, since the last time."""
        path = self.directory / DATABASE
        try:
            found = path.stat()
        except OSError:  # killed before the first evaluation
            return [], []
        stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
        if stamp == self._stamp:
            return [], []
        rows = self._database.rows_after(self._last)
        try:
            records = [read_record(*row) for _, row in rows if POLISH not in row[1]]
            steps = [PolishStep.of(*row) for _, row in rows if POLISH in row[1]]
        except (KeyError, TypeError) as error:
            raise NuggetError(f"{path} is not a search's: {error}.") from error
        for k, record in enumerate(records, start=self._evaluations):
            if record.iteration != k:
                raise NuggetError(f"{path} is damaged: evaluations are missing or there twice.")
        # Clocks of file systems tick slowly: what was written just now may be written once more.
        quiet = time.time() - found.st_mtime > _TICK
        self._stamp, self._file = stamp if quiet else None, found.st_ino
        self._last = rows[-1][0] if rows else self._last
        self._evaluations += len(records)
        return records, steps

    def end(self) -> End | None:
        """How the last run ended; see `Store.end`."""
        try:
            return End(**read_sealed(self.directory / STATUS, ""))
        except (FileNotFoundError, NuggetError, TypeError):
            return None

    def state(self) -> State:
        """What the search is doing right now."""
        if (end := self.end()) is not None:
            return State(end.status, end.reason, end.budget)
        if (self.directory / STATUS).exists():
            return State("stopped", "its status is damaged")
        return State(self._process(), in_flight=self._in_flight())

    def _in_flight(self) -> int:
        """Evaluations under way, where several may be."""
        try:
            found = read_sealed(self.directory / PENDING, "").get("records")
        except (FileNotFoundError, NuggetError):
            return 0
        return len(found) if isinstance(found, list) else 0

    def _process(self) -> Doing:
        """Is the process alive that locked the directory last? Its lock is not touched.

        Of a process on another machine nothing is known: it counts as stopped.
        """
        try:
            pid = int(json.loads((self.directory / LOCK).read_text(encoding="utf-8"))["pid"])
            os.kill(pid, 0)
        except PermissionError:
            return "running"
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            return "stopped"
        return "running"
