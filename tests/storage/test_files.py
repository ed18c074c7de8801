from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nugget.errors import NuggetError
from nugget.storage.files import locked, replacing, write_atomically


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path):
    file = tmp_path / "a.json"
    write_atomically(file, "old")
    with pytest.raises(ZeroDivisionError), replacing(file) as partial:
        partial.write_text(f"half {1 / 0}")
    assert file.read_text() == "old"
    with replacing(file) as partial:
        partial.write_bytes(b"new")
        assert file.read_text() == "old"
        assert partial.name.endswith(file.name)  # writers tell the format from it
    assert file.read_text() == "new"
    write_atomically(file, b"\xff\x00", sync=False)
    assert file.read_bytes() == b"\xff\x00"
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path):
    with pytest.raises(NuggetError, match=r"nowhere/a\.json could not be written: No such file"):
        write_atomically(tmp_path / "nowhere" / "a.json", "text")
    (tmp_path / "folder").mkdir()
    with pytest.raises(NuggetError, match="folder could not be written: Is a directory"):
        write_atomically(tmp_path / "folder", "text")
    assert [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_what_a_killed_process_left_of_a_file_goes_when_it_is_written_again(tmp_path: Path):
    """Output files lie in directories of the user, which nobody locks."""
    gone = subprocess.Popen([sys.executable, "-c", ""])
    gone.wait()
    (tmp_path / f".{gone.pid}.7.partial.a.json").touch()
    others = [f".{os.getpid()}.7.partial.a.json", f".{gone.pid}.7.partial.b.json"]
    for name in others:
        (tmp_path / name).touch()
    write_atomically(tmp_path / "a.json", "text")
    assert {path.name for path in tmp_path.iterdir()} == {"a.json", *others}


WRITER = """
import sys, time
from pathlib import Path
from nugget.storage.files import locked, replacing
with locked(Path(sys.argv[1])), replacing(Path(sys.argv[1]) / "a.json") as partial:
    partial.write_text("half")
    print("half", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_leaves_is_removed(tmp_path: Path):
    """Its lock is free, the old file is there, and its temporary file goes with the next lock."""
    write_atomically(tmp_path / "a.json", "old")
    command = [sys.executable, "-c", WRITER, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "half\n"
        with pytest.raises(NuggetError, match=f"in use by process {process.pid}"):  # noqa: SIM117
            with locked(tmp_path):
                pass
        os.kill(process.pid, signal.SIGKILL)
    assert len([path for path in tmp_path.iterdir() if "partial" in path.name]) == 1
    with locked(tmp_path), replacing(tmp_path / "b.json") as mine:
        mine.write_text("mine")
        with pytest.raises(NuggetError, match="in use"), locked(tmp_path):
            pass
        assert mine.exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json", "lock"]
    assert (tmp_path / "a.json").read_text() == "old"


def test_a_lock_without_a_name_in_it(tmp_path: Path):
    import fcntl

    with open(tmp_path / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(NuggetError, match="in use by another process"), locked(tmp_path):
            pass
