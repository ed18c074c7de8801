"""A search on disk: one directory with an ASE database, the settings, a log and a lock.

The database defines the search. The surrogate, the weights of the generators and the calibration
are rebuilt from its rows in order. Each row is one transaction, so a killed search loses at most
the calculations in flight. Structures in flight are kept in a file of their own, because the
database holds only evaluations and the settings that they were made with. Additional evaluations
that check the engine, and verdicts about earlier evaluations, are rows of a second database.

`Reader` reads a directory without writing, moving or locking anything in it; `Store` also writes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, fields
from enum import StrEnum
from pathlib import Path
from typing import Any

from ase import Atoms
from ase.io.jsonio import decode, encode

from nugget.errors import NuggetError
from nugget.search.record import (
    POLISH,
    UNFINISHED,
    Check,
    End,
    PolishStep,
    Record,
    amended,
    amended_steps,
)
from nugget.search.search_settings import (
    Config,
    changed_settings,
    read_config,
    stored_config,
    write_config,
)
from nugget.storage.database import Database, Row
from nugget.storage.files import (
    LOCK,
    file_hash,
    locked,
    open_file,
    read_sealed,
    unchanging,
    write_atomically,
    write_sealed,
)

DATABASE, SETTINGS, LOG = "search.db", "config.toml", "search.log"

CHECKS = "checks.db"

PENDING, STATUS = "pending.json", "status.json"

BEST, MINIMA, CIF = "best.extxyz", "minima.extxyz", "minima.cif"

# A file that was modified less than this many seconds ago may be modified again without a new time
# stamp, because the clocks of file systems are coarse.
_TICK = 1.0


class Activity(StrEnum):
    """What a search is doing, or how its last run ended."""

    RUNNING = "running"
    STOPPED = "stopped"  # no process works on it, and none has written an end
    FINISHED = "finished"
    FOUND = "found"
    INTERRUPTED = "interrupted"
    FAILED = "failed"


@dataclass(frozen=True)
class State:
    """The present state of a search."""

    doing: Activity = Activity.STOPPED
    reason: str = ""
    budget: int | None = None
    in_flight: int = 0


class Reader:
    """Reads a search, and what is new in it since the last time, without changing anything."""

    _read_only = True

    def __init__(self, directory: Path) -> None:
        if not (directory / SETTINGS).exists() and not (directory / DATABASE).exists():
            raise NuggetError(
                f"{directory} holds no search: give the directory that `nugget search` wrote."
            )
        self.directory = directory
        self._database = Database(directory / DATABASE, read_only=True)
        self._last = 0
        self._evaluations = 0
        self._verdicts = 0  # about evaluations that were read
        self._stamp: tuple[int, ...] | None = None
        self._file: int | None = None

    def config(self) -> Config:
        """The settings; from the database if their file is missing."""
        file = self.directory / SETTINGS
        if file.exists():
            return read_config(file, stored=True)
        settings = self._database.metadata().get("settings")
        if not isinstance(settings, dict):
            raise NuggetError(f"{self.directory} holds no settings ({SETTINGS} is missing).")
        return stored_config(settings, str(self.directory / DATABASE))

    def versions(self) -> dict[str, str]:
        """Versions of the programs that began the search; empty if they were not recorded."""
        there = (self.directory / DATABASE).exists()
        return self._database.versions() if there else {}

    def replaced(self) -> bool:
        """Is the database another file than the one that was read, or are there new verdicts?"""
        try:
            number = (self.directory / DATABASE).stat().st_ino
        except OSError:
            return self._file is not None
        return self._file is not None and (
            number != self._file or len(self._changes()) != self._verdicts
        )

    def checks(self) -> list[Check]:
        """All additional evaluations and verdicts, in order."""
        path = self.directory / CHECKS
        if not path.exists():
            return []
        database = Database(path, self._read_only)
        try:
            return [Check.of(*row) for row in database.rows()]
        except (KeyError, TypeError, ValueError) as error:
            raise NuggetError(f"{path} is not a search's: {error}.") from error

    def _changes(self) -> list[Check]:
        return [check for check in self.checks() if check.changes]

    def news(self) -> tuple[list[Record], list[PolishStep]]:
        """Evaluations, and steps of final relaxations, since the last call."""
        path = self.directory / DATABASE
        try:
            status = path.stat()
        except OSError:  # killed before the first evaluation
            return [], []
        stamp = (status.st_ino, status.st_size, status.st_mtime_ns)
        if stamp == self._stamp:
            return [], []
        rows = self._database.rows_after(self._last)
        records, steps = self._decode([row for _, row in rows])
        for k, record in enumerate(records, start=self._evaluations):
            if record.iteration != k:
                raise NuggetError(f"{path} is damaged: evaluations are missing or there twice.")
        unchanged = time.time() - status.st_mtime > _TICK
        self._stamp, self._file = stamp if unchanged else None, status.st_ino
        self._last = rows[-1][0] if rows else self._last
        self._evaluations += len(records)
        changes = self._changes()
        self._verdicts = len(changes)
        return amended(records, changes), amended_steps(steps, changes)

    def _decode(self, rows: Sequence[Row]) -> tuple[list[Record], list[PolishStep]]:
        """Rows of the database as evaluations and as steps of final relaxations."""
        try:
            records = [read_record(*row) for row in rows if POLISH not in row[1]]
            steps = [PolishStep.of(*row) for row in rows if POLISH in row[1]]
        except (KeyError, TypeError, ValueError) as error:
            raise NuggetError(f"{self._database.path} is not a search's: {error}.") from error
        return records, steps

    def end(self) -> End | None:
        """How the last run ended; None during a run, after a kill, or if the file is damaged.

        Nothing depends on it: a search that is run again at its end ends at once.
        """
        try:
            return End.from_dict(read_sealed(self.directory / STATUS, ""))
        except (FileNotFoundError, NuggetError, TypeError, KeyError, ValueError):
            return None

    def state(self) -> State:
        """What the search is doing right now."""
        if (end := self.end()) is not None:
            return State(Activity(end.status), end.reason, end.budget)
        if (self.directory / STATUS).exists():
            return State(Activity.STOPPED, "its status is damaged")
        return State(self._process(), in_flight=self._in_flight())

    def _in_flight(self) -> int:
        """The number of structures in the file of evaluations in flight."""
        try:
            records = read_sealed(self.directory / PENDING, "").get("records")
        except (FileNotFoundError, NuggetError):
            return 0
        return len(records) if isinstance(records, list) else 0

    def _process(self) -> Activity:
        """Is the process alive that locked the directory last? Its lock is not touched.

        A process on another machine cannot be seen and counts as stopped.
        """
        try:
            pid = int(json.loads((self.directory / LOCK).read_text(encoding="utf-8"))["pid"])
            os.kill(pid, 0)
        except PermissionError:
            return Activity.RUNNING
        except (OSError, ValueError, TypeError, KeyError, OverflowError):
            return Activity.STOPPED
        return Activity.RUNNING


class Store(Reader):
    """The directory of a search that is run."""

    def __init__(self, directory: Path, read_only: bool = False) -> None:
        super().__init__(directory)
        self._read_only = read_only
        self._database = Database(directory / DATABASE, read_only)

    @classmethod
    def create(cls, directory: Path, config: Config, files: Iterable[str] = ()) -> Store:
        """A new search in a directory that holds none and that this process has locked.

        `files` are those in the directory that the search depends on, which must not change.
        """
        cls.check_free(directory)
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / SETTINGS, write_config(config))
        hashes = {name: file_hash(directory / name) for name in files}
        metadata = {"settings": config.model_dump(), "files": hashes}
        Database.create(directory / DATABASE, metadata)
        return cls(directory)

    @staticmethod
    def check_free(directory: Path) -> None:
        """Refuse a directory that already holds a search."""
        if directory.is_file():
            raise NuggetError(f"{directory} is a file; choose another directory with --out.")
        if (directory / DATABASE).exists() or (directory / SETTINGS).exists():
            raise NuggetError(
                f"{directory} already holds a search: continue it with `nugget search --resume "
                f"{directory}`, or choose another directory with --out or another --seed."
            )
        if (directory / BEST).exists():
            raise NuggetError(f"{directory / BEST} exists already; choose another --out.")

    @classmethod
    def open(cls, directory: Path, read_only: bool = False) -> Store:
        """An existing search; either its settings or its database may be missing.

        With `read_only` both must be there, and nothing is ever written.
        """
        settings, database = directory / SETTINGS, directory / DATABASE
        if read_only and not (settings.exists() and database.exists()):
            missing = SETTINGS if database.exists() else DATABASE
            raise NuggetError(f"{directory} holds no complete search ({missing} is missing).")
        repair = database.exists() and not settings.exists()
        if repair and (then := Database(database).metadata().get("settings")):
            write_atomically(settings, write_config(stored_config(then, str(database))))
        if not settings.exists():
            raise NuggetError(f"{directory} holds no search ({SETTINGS} is missing).")
        if not database.exists():  # killed before the first evaluation
            Database.create(database, {"settings": read_config(settings, stored=True).model_dump()})
        return cls(directory, read_only)

    def config(self) -> Config:
        """The settings that the search was started with; budget and limits may have changed."""
        file = self.directory / SETTINGS
        metadata = self._database.metadata()
        then = metadata.get("settings")
        for name, digest in metadata.get("files", {}).items():
            path = self.directory / name
            if not path.is_file() or file_hash(path) != digest:
                raise NuggetError(
                    f"{path} is missing or was changed after the search had begun; bring it back "
                    "from a copy, or start another search."
                )
        original = None if then is None else stored_config(then, str(file.with_name(DATABASE)))
        again = f"remove {file}, and the next --resume restores it from {DATABASE}"
        try:
            config = read_config(file, stored=True)
        except NuggetError as error:
            raise NuggetError(f"{error} To repair it, {again}." if then else str(error)) from None
        wrong = [] if original is None else changed_settings(config, original)
        if wrong:
            raise NuggetError(
                f"{file} was changed after the search had begun: {'; '.join(wrong[:3])}. "
                f"Restore it ({again}), or start another search with it."
            )
        return config

    def append(self, record: Record) -> None:
        """Write one evaluation."""
        pairs = {name: _plain(getattr(record, name)) for name in _COLUMNS}
        pairs = {name: value for name, value in pairs.items() if value is not None}
        if record.failure:
            pairs["failed"] = True
        # Text goes into `data`: ASE refuses key-value pairs such as "nan" that look like numbers.
        data = {name: getattr(record, name) for name in _DATA}
        self._database.write(record.atoms, pairs, data)

    def records(self) -> list[Record]:
        """All evaluations with the verdicts about them, in order."""
        return amended(self.history(), self._changes())

    def history(self) -> list[Record]:
        """All evaluations as they were recorded, in order."""
        records = self._decode(self._database.rows())[0]
        for fault in _impossible(records):
            raise NuggetError(
                f"{self._database.path} is damaged: {fault}; restore it from a copy, or begin a "
                "new search elsewhere."
            )
        return records

    def append_polish(self, step: PolishStep) -> None:
        """Write one evaluation of a final relaxation."""
        self._database.write(*step.row())

    def polish_steps(self) -> list[PolishStep]:
        """All evaluations of final relaxations with the verdicts, in the order of writing."""
        return amended_steps(self._decode(self._database.rows())[1], self._changes())

    def append_check(self, check: Check) -> None:
        """Write one additional evaluation or verdict."""
        path = self.directory / CHECKS
        database = Database(path) if path.exists() else Database.create(path, {})
        database.write(*check.row())

    def keep_pending(self, records: Sequence[Record]) -> None:
        """Replace the file of the structures in flight; positions keep all bits."""
        path = self.directory / PENDING
        if records:
            entries = encode([_pending_dict(record) for record in records])
            write_sealed(path, {"records": json.loads(entries)})
        else:
            path.unlink(missing_ok=True)

    @property
    def has_pending(self) -> bool:
        return (self.directory / PENDING).exists()

    def pending(self) -> list[Record]:
        """The structures in flight when the last run ended, in order of proposal."""
        if not self.has_pending:
            return []
        path = self.directory / PENDING
        remedy = "remove it, and the structures in flight are proposed again"
        entries = read_sealed(path, remedy).get("records")
        try:
            records = [_pending_record(entry) for entry in decode(json.dumps(entries))]
        except Exception as error:  # ASE's parser raises errors of many kinds
            raise NuggetError(f"{path} is damaged: {remedy}.") from error
        # The run may have been killed between writing the database and writing this file.
        done = {record.proposal for record in self.history()}
        return [record for record in records if record.proposal not in done]

    def keep_end(self, end: End | None) -> None:
        """Write how a run ended; None when the next one begins."""
        path = self.directory / STATUS
        if end is None:
            path.unlink(missing_ok=True)
        else:
            write_sealed(path, end.to_dict())

    def log(self, text: str) -> None:
        """Append a line with the time to the log."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with open_file(self.directory / LOG) as file:
            file.write(f"{stamp}  {text}\n".encode())

    def locked(self) -> AbstractContextManager[None]:
        """Only one process at a time works on a search."""
        return (unchanging if self._read_only else locked)(self.directory)


# How the fields of a record are stored besides its structure: in `data`, in columns, and in the
# file of structures in flight.
_DATA = ("failure", "reason", "proposed_positions", "draws", "walkers")

_COLUMNS = tuple(f.name for f in fields(Record) if f.name not in ("atoms", *_DATA))

_EXPECTED = tuple(name for name in _COLUMNS if name not in ("iteration", "engine_seconds"))


def _impossible(records: Sequence[Record]) -> Iterator[str]:
    """Contradictions that no search can have written."""
    if [record.iteration for record in records] != list(range(len(records))):
        yield "evaluations are missing or there twice"
    for record in records:
        if record.ok and (record.atoms.calc is None or "energy" not in record.atoms.calc.results):
            yield f"evaluation {record.iteration} has neither an energy nor a failure"


def read_record(atoms: Atoms, pairs: dict[str, Any], data: dict[str, Any]) -> Record:
    """A record from a row of the database."""
    columns = {name: pairs[name] for name in _COLUMNS if name in pairs}
    text = {name: data[name] for name in _DATA if name in data}
    return Record(atoms=atoms, **columns, **text)


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, StrEnum) else value


def _pending_dict(record: Record) -> dict[str, Any]:
    bare = record.atoms.copy()
    bare.info = {}
    kept = {name: _plain(getattr(record, name)) for name in (*_EXPECTED, "draws", "walkers")}
    return {"structure": bare.todict(), **kept}


def _pending_record(entry: dict[str, Any]) -> Record:
    structure = entry["structure"]
    atoms = structure if isinstance(structure, Atoms) else Atoms.fromdict(structure)
    expected = {name: entry[name] for name in _EXPECTED}
    draws, walkers = entry.get("draws", ""), entry.get("walkers")  # missing in old files
    return Record(UNFINISHED, atoms, draws=draws, walkers=walkers, **expected)
