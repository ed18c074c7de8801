"""Files that survive a kill: one lock per directory, and writes that are complete or not done.

Symbolic links inside a run directory are never followed for writing: the directory may come from
another person, and a link may point to any file of the user. `open_file` opens a file that grows,
`replacing` replaces a link by a file, `refuse_link` is for files and directories that other
libraries open.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import re
import stat
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, BinaryIO

from nugget.errors import NuggetError

LOCK = "lock"

_PATIENCE = 5.0  # s, with the lock of a process that is gone


_WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH

# .PID.THREAD.partial.NAME: the name keeps its ending, from which writers tell the format.
_PARTIAL = re.compile(r"\.(\d+)\.\d+\.partial\.(.+)")


def refuse_link(path: Path) -> None:
    """Raise NuggetError if the path is a symbolic link."""
    if path.is_symlink():
        raise NuggetError(
            f"{path} is a symbolic link, which nugget does not follow to write; replace it by a "
            "copy, or remove it."
        )


def open_file(path: Path) -> BinaryIO:
    """A regular file for reading and appending, created if necessary; links are not followed."""
    flags = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW
    try:
        descriptor = os.open(path, flags, 0o666)
    except OSError as error:
        if error.errno == errno.ELOOP:
            refuse_link(path)
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise NuggetError(f"{path} is not a regular file; remove it.")
    return os.fdopen(descriptor, "ab+")


@contextmanager
def replacing(path: Path, sync: bool = True) -> Iterator[Path]:
    """A temporary file to write; it takes the place of `path` at the end of the block.

    If the block fails, the old file stays as it was; one that is read-only is refused. With `sync`,
    the new one is on the disk before it replaces the old one. What a killed process left of the
    same file is removed.
    """
    refuse_read_only(path)
    with suppress(OSError):  # a directory that cannot be listed, or that is not there
        _remove_stale(path.parent, path.name)
    partial = path.with_name(f".{os.getpid()}.{threading.get_native_id()}.partial.{path.name}")
    partial.unlink(missing_ok=True)  # nobody else writes under this name, but a link may be there
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
    with open_file(directory / LOCK) as file:
        _take(file, directory, fcntl.LOCK_EX)
        file.truncate(0)
        file.write(json.dumps({"pid": os.getpid()}).encode())
        file.flush()
        _remove_stale(directory)
        yield


@contextmanager
def unchanging(directory: Path) -> Iterator[None]:
    """Nobody works on a directory while it is read; nothing is written."""
    try:
        descriptor = os.open(directory / LOCK, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:  # nobody has locked it yet, or it is not our file
        yield
        return
    with os.fdopen(descriptor, "rb") as file:
        _take(file, directory, fcntl.LOCK_SH)
        yield


def _take(file: BinaryIO, directory: Path, kind: int) -> None:
    """Lock the file. A child that a killed process was starting may hold it a little longer."""
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            return fcntl.flock(file, kind | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            pid = _owner(file.read(1000))
            if pid is None or alive(pid) or time.monotonic() > end:
                owner = "another process" if pid is None else f"process {pid}"
                raise NuggetError(
                    f"{directory} is in use by {owner}: wait for it, or stop it."
                ) from None
        time.sleep(0.05)


def _owner(text: bytes) -> int | None:
    try:
        return int(json.loads(text)["pid"])
    except (ValueError, TypeError, KeyError):
        return None


def _remove_stale(directory: Path, name: str | None = None) -> None:
    """Remove temporary files, all or those of `name`, whose process is gone."""
    for file in os.listdir(directory):
        match = _PARTIAL.fullmatch(file)
        if match is not None and name in (None, match[2]) and not alive(int(match[1])):
            (directory / file).unlink(missing_ok=True)


def alive(pid: int) -> bool:
    """Is there such a process? Somebody else's counts, too."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it belongs to somebody else
        pass
    return True


def file_hash(path: Path) -> str:
    """SHA-256 of the content of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


# Small JSON files that tell when they have been damaged.


_SEAL = "sha256"


def write_sealed(path: Path, data: dict[str, Any], sync: bool = True) -> None:
    """Write plain data and a hash of them, atomically."""
    text = json.dumps({**data, _SEAL: _hash(data)}, indent=1)
    write_atomically(path, text + "\n", sync)


def read_sealed(path: Path, remedy: str) -> dict[str, Any]:
    """Data that `write_sealed` wrote; damage is an error that ends with the remedy.

    A file without a hash, as earlier versions wrote it, is taken as it is.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        seal = data.pop(_SEAL, None)
        whole = isinstance(data, dict) and (seal is None or seal == _hash(data))
    except FileNotFoundError:
        raise
    except OSError as error:
        raise NuggetError(f"{path} cannot be read: {error.strerror}.") from None
    except (ValueError, AttributeError, TypeError, RecursionError):
        whole = False
    if not whole:
        raise NuggetError(f"{path} is damaged: {remedy}.")
    return dict(data)


def _hash(data: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()
