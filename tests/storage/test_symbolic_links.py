"""Symbolic links in a stranger's directory are not followed for writing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from ase.build import molecule

from nugget.engines.engine_settings import EngineConfig
from nugget.engines.queue import EvaluationQueue
from nugget.errors import NuggetError
from nugget.onthefly.run_directory import Appended, RecordedEngine
from nugget.storage.database import Database
from nugget.storage.files import locked, open_file, unchanging, write_atomically


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    file = tmp_path / "mine"
    file.write_text("precious")
    (tmp_path / "run").mkdir()
    return file


def test_locks_and_files_that_grow(mine: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    for name in ("lock", "search.log", "calls.jsonl", "md.log"):
        (run / name).symlink_to(mine)
    with pytest.raises(NuggetError, match=r"run/lock is a symbolic link"), locked(run):
        pass
    with pytest.raises(NuggetError, match="symbolic link"):
        open_file(run / "search.log")
    with pytest.raises(NuggetError, match="symbolic link"):
        Appended(run / "md.log", 0)
    with (
        pytest.raises(NuggetError),
        RecordedEngine(EngineConfig(name="emt"), run) as engine,
    ):
        engine(molecule("N2"))
    assert mine.read_text() == "precious"


def test_links_to_nothing_create_nothing(tmp_path: Path) -> None:
    (tmp_path / "lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(NuggetError, match="symbolic link"), locked(tmp_path):
        pass
    assert not (tmp_path / "elsewhere").exists()


def test_databases_and_scratch_directories(mine: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    Database.create(tmp_path / "other.db", {})
    (run / "search.db").symlink_to(tmp_path / "other.db")
    with pytest.raises(NuggetError, match="symbolic link"):
        Database(run / "search.db")
    (run / "scratch").symlink_to(tmp_path)
    with pytest.raises(NuggetError, match="symbolic link"):
        EvaluationQueue(EngineConfig(name="emt"), 1, directory=run)


def test_a_file_that_is_replaced_replaces_the_link(mine: Path, tmp_path: Path) -> None:
    (tmp_path / "run/config.toml").symlink_to(mine)
    write_atomically(tmp_path / "run/config.toml", "new")
    assert mine.read_text() == "precious"
    assert not (tmp_path / "run/config.toml").is_symlink()


def test_a_pipe_is_no_lock(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "lock")
    with pytest.raises(NuggetError, match="not a regular file"), locked(tmp_path):
        pass


def test_reading_writes_nothing_and_sees_the_lock(tmp_path: Path) -> None:
    with unchanging(tmp_path):
        pass
    assert not list(tmp_path.iterdir())
    with locked(tmp_path), pytest.raises(NuggetError, match="in use"), unchanging(tmp_path):
        pass
