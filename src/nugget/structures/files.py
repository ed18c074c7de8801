"""Files that survive a kill: one lock per directory, and writes that are complete or not done."""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from nugget.errors import NuggetError

LOCK = "lock"
_PATIENCE = 5.0  # s, with the lock of a process that is gone
_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH
# .PID.THREAD.partial.NAME: the name keeps its ending, from which writers tell the format.
_PARTIAL = re.compile(r"\.(\d+)\.\d+\.partial\..+")


@contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[Path]:
    """A temporary file to write; it takes the place of `path` at the end of the block.

    If the block fails, the old file stays as it was; one that is read-only is refused. With `sync`,
    the new one is on the disk before it replaces the old one.
    """
    refuse_read_only(path)
    partial = path.with_name(f".{os.getpid()}.{threading.get_native_id()}.partial.{path.name}")
    try:
        yield partial
        if sync:
            with open(partial, "rb+") as file:
                os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        raise NuggetError(f"{path} could not be written: {error.strerror or error}.") from error
    finally:
        partial.unlink(missing_ok=True)


def refuse_read_only(path: Path) -> None:
    """A file without write permission is meant to stay, although its directory could lose it."""
    if path.is_file() and not path.stat().st_mode & _WRITABLE:
        raise NuggetError(f"{path} is read-only; choose another name, or `chmod u+w` it.")


def write_atomically(path: Path, content: str | bytes, sync: bool = True) -> None:
    """Write a file in one step; see `replacing`."""
    with replacing(path, sync) as partial:
        partial.write_bytes(content.encode("utf-8") if isinstance(content, str) else content)


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Only one process at a time works on a directory.

    The kernel frees the lock of a killed process. Its half-written files are removed here.
    """
    with open(directory / LOCK, "a+", encoding="utf-8") as file:
        _take(file, directory)
        file.seek(0)
        file.truncate()
        json.dump({"pid": os.getpid()}, file)
        file.flush()
        _remove_stale(directory)
        yield


def _take(file: TextIO, directory: Path) -> None:
    """Lock the file. A child that a killed process was starting may hold it a little longer."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            pid = _owner(file.read())
            if pid is None or alive(pid) or time.monotonic() > end:
                owner = "another process" if pid is None else f"process {pid}"
                raise NuggetError(
                    f"{directory} is in use by {owner}: wait for it, or stop it."
                ) from None
        time.sleep(0.05)


def _owner(text: str) -> int | None:
    try:
        return int(json.loads(text)["pid"])
    except (ValueError, TypeError, KeyError):
        return None


def _remove_stale(directory: Path) -> None:
    """Remove temporary files whose process is gone."""
    for file in directory.iterdir():
        match = _PARTIAL.fullmatch(file.name)
        if match is not None and not alive(int(match[1])):
            file.unlink(missing_ok=True)


def alive(pid: int) -> bool:
    """Is there such a process? Somebody else's counts, too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        pass
    return True
