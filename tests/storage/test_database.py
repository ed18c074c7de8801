"""Databases after a kill within a transaction."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import pytest
from ase.build import molecule

from nugget.errors import NuggetError
from nugget.storage.database import Database


@pytest.fixture
def interrupted(tmp_path: Path) -> Path:
    """A database with two rows, as a kill leaves it that comes while many more are written."""
    (tmp_path / "run").mkdir()
    (tmp_path / "killed").mkdir()
    path = tmp_path / "run" / "search.db"
    database = Database.create(path, {})
    for name in ("H2O", "CO"):
        database.write(molecule(name), {"name": name}, {})
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA cache_size = 1")  # pages are written before the end
    connection.execute("BEGIN")
    connection.execute("CREATE TABLE more (text)")
    for _ in range(200):
        connection.execute("INSERT INTO more VALUES (?)", ("x" * 1000,))
    connection.execute("DELETE FROM systems")
    for file in (tmp_path / "run").iterdir():
        shutil.copy(file, tmp_path / "killed")
    connection.close()
    return tmp_path / "killed" / "search.db"


def test_readers_change_nothing_and_see_what_was_complete(interrupted: Path) -> None:
    before = {file: file.read_bytes() for file in interrupted.parent.iterdir()}
    assert len(before) == 2  # the database and its journal
    rows = Database(interrupted, read_only=True).rows()
    assert [pairs["name"] for _, pairs, _ in rows] == ["H2O", "CO"]
    assert {file: file.read_bytes() for file in interrupted.parent.iterdir()} == before


def test_writers_undo_the_transaction(interrupted: Path) -> None:
    database = Database(interrupted)
    assert list(interrupted.parent.iterdir()) == [interrupted]
    database.write(molecule("N2"), {"name": "N2"}, {})
    assert [pairs["name"] for _, pairs, _ in database.rows()] == ["H2O", "CO", "N2"]


def test_journals_are_no_links(interrupted: Path, tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.write_text("precious")
    for suffix in ("-journal", "-wal", "-shm"):
        link = interrupted.with_name(interrupted.name + suffix)
        link.unlink(missing_ok=True)
        link.symlink_to(mine)
        with pytest.raises(NuggetError, match="symbolic link"):
            Database(interrupted)
        link.unlink()
    assert mine.read_text() == "precious"
