"""ASE databases that are complete from the start and tell when they have been damaged."""

from __future__ import annotations

import contextlib
import hashlib
import json
import platform
import shutil
import sqlite3
import tempfile
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any
from urllib.parse import quote

import ase.db
import numpy as np
from ase import Atoms
from ase.db.sqlite import SQLite3Database

from nugget.errors import NuggetError
from nugget.storage.files import refuse_link, replacing

_DIGEST = "digest"

_RESULTS = ("energy", "forces", "stress")

_REMEDY = "restore it from a copy, or start again in another directory"


Row = tuple[Atoms, dict[str, Any], dict[str, Any]]  # structure, key-value pairs, data


# Files that SQLite writes beside a database. After a kill within a transaction the journal stays,
# and whoever opens the database next must undo the transaction.
_JOURNAL = "-journal"
_BESIDE = ("", _JOURNAL, "-wal", "-shm")


class _ReadOnly(SQLite3Database):
    """Never writes, not even an empty file where there is none."""

    def _connect(self) -> sqlite3.Connection:
        path = Path(str(self.filename)).absolute()
        connection = sqlite3.connect(f"file:{quote(str(path))}?mode=ro", uri=True, timeout=20)
        try:
            connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()
        except sqlite3.OperationalError:
            connection.close()
            if not path.with_name(path.name + _JOURNAL).exists():
                raise
            return _undone(path)
        return connection


def _undone(path: Path) -> sqlite3.Connection:
    """A copy in memory of a database whose last transaction was interrupted and is undone."""
    memory = sqlite3.connect(":memory:")
    with tempfile.TemporaryDirectory() as folder:
        for suffix in ("", _JOURNAL):
            shutil.copyfile(f"{path}{suffix}", Path(folder) / f"copy{suffix}")
        with contextlib.closing(sqlite3.connect(Path(folder) / "copy")) as copy:
            copy.backup(memory)
    return memory


def _undo(path: Path) -> None:
    """Undo a transaction that a kill interrupted; SQLite does so when it reads the database."""
    if path.with_name(path.name + _JOURNAL).exists():
        with (
            contextlib.closing(sqlite3.connect(path, timeout=20)) as connection,
            contextlib.suppress(sqlite3.Error),  # damage is reported when rows are read
        ):
            connection.execute("SELECT name FROM sqlite_master LIMIT 1").fetchall()


class Database:
    """Structures with results in an SQLite file of ASE's; each row carries a digest."""

    def __init__(self, path: Path, read_only: bool = False) -> None:
        self.path = path
        if not read_only:
            for suffix in _BESIDE:
                refuse_link(path.with_name(path.name + suffix))
            _undo(path)
        # ASE would wait for ever for the lock file of a process that was killed.
        if read_only:
            self._database = _ReadOnly(str(path), use_lock_file=False)
        else:
            self._database = ase.db.connect(path, type="db", use_lock_file=False)

    @classmethod
    def create(cls, path: Path, metadata: Mapping[str, Any]) -> Database:
        """A new database. Its tables are complete before it takes its place."""
        with replacing(path) as partial:
            try:
                with ase.db.connect(partial, type="db", use_lock_file=False) as database:
                    # Plain text: ASE makes arrays of lists of numbers.
                    texts = {"nugget": metadata, "versions": versions()}
                    database.metadata = {key: json.dumps(value) for key, value in texts.items()}
            except sqlite3.Error as error:
                raise NuggetError(f"{path} could not be written: {error}.") from error
        return cls(path)

    def metadata(self) -> dict[str, Any]:
        """What `create` was given; nothing if an earlier version made the database."""
        return self._metadata("nugget")

    def versions(self) -> dict[str, str]:
        """Packages and their versions when the database was made; nothing if it is older."""
        return self._metadata("versions")

    def _metadata(self, name: str) -> dict[str, Any]:
        try:
            self._check()
            return dict(json.loads(self._database.metadata.get(name, "{}")))
        except Exception as error:
            raise self._damaged(error) from error

    def write(self, atoms: Atoms, pairs: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        """Append a structure in one transaction."""
        sealed = {**data, _DIGEST: _digest(atoms, pairs, data)}
        try:
            self._database.write(atoms, key_value_pairs=dict(pairs), data=sealed)
        except sqlite3.Error as error:
            raise NuggetError(f"{self.path} could not be written: {error}.") from error

    def rows(self) -> list[Row]:
        """Structures, key-value pairs and data of all rows, in the order of writing."""
        return [row for _, row in self.rows_after(0)]

    def rows_after(self, last: int) -> list[tuple[int, Row]]:
        """Rows with greater numbers than `last`, with their numbers."""
        try:
            if not last:
                self._check()
            rows = list(self._database.select(f"id>{last}", sort="id"))
            return [(int(row.id), verified(row, self.path)) for row in rows]
        except NuggetError:
            raise
        except Exception as error:  # ASE's parsing may stumble over anything
            raise self._damaged(error) from error

    def _check(self) -> None:
        connection = self._database._connect()
        try:
            found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            tables = connection.execute("SELECT name FROM sqlite_master WHERE name = 'systems'")
            if found == "ok" and not tables.fetchall():  # ASE would make them anew
                found = "its tables are missing"
        finally:
            connection.close()
        if found != "ok":
            raise sqlite3.DatabaseError(found)

    def _damaged(self, error: Exception) -> NuggetError:
        reason = " ".join(str(error).split()) or type(error).__name__
        return NuggetError(f"{self.path} is damaged or no database ({reason}); {_REMEDY}.")


def verified(row: Any, path: Path) -> Row:
    """Structure, pairs and data of a row of ASE's; NuggetError if its digest does not fit."""
    atoms, pairs, data = row.toatoms(), dict(row.key_value_pairs), dict(row.data)
    digest = data.pop(_DIGEST, None)
    if digest is not None and digest != _digest(atoms, pairs, data):
        raise NuggetError(f"{path} is damaged: row {row.id} was changed; {_REMEDY}.")
    return atoms, pairs, data


def versions() -> dict[str, str]:
    """What results may depend on."""
    found = {"python": platform.python_version()}
    for name in ("nugget-gp", "numpy", "scipy", "numba", "ase", "vesin", "spglib", "tblite"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:  # run from its source, or not installed
            continue
    return found


def changed_versions(recorded: Mapping[str, str]) -> str:
    """Recorded and present versions that differ, in words."""
    now = versions()
    pairs = [
        f"{name} {recorded.get(name, 'none')} then, {now.get(name, 'none')} now"
        for name in sorted({*recorded, *now})
        if recorded and recorded.get(name) != now.get(name)
    ]
    return "; ".join(pairs) or "all recorded versions are the same as now"


def _digest(atoms: Atoms, pairs: Mapping[str, Any], data: Mapping[str, Any]) -> str:
    """A hash of everything that matters in a row."""
    digest = hashlib.sha256()
    calculator = atoms.calc
    known = {} if calculator is None or calculator.check_state(atoms) else calculator.results
    numbers: dict[str, Any] = {
        "numbers": atoms.numbers,
        "positions": atoms.positions,
        "cell": atoms.cell.array,
        "pbc": atoms.pbc,
        **{name: known[name] for name in _RESULTS if known.get(name) is not None},
    }
    for name, value in [*numbers.items(), *sorted({**pairs, **data}.items())]:
        digest.update(name.encode())
        if value is None or isinstance(value, str):
            # An enum of text counts as its text, which is what the database returns.
            digest.update(repr(None if value is None else str(value)).encode())
        else:
            digest.update(np.ascontiguousarray(value, dtype=np.float64).tobytes())
    return digest.hexdigest()
