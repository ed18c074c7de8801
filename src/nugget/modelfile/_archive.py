"""The container of a model file: an npz archive of stored arrays with a checksum as last member.

The archive holds the CRC-32 of every member, that is of type, shape and bytes. The checksum is the
SHA-256 of names, lengths and CRCs of all others, in their order: nothing can be changed, exchanged
or left out alone. (Hashing all bytes would take as long as all the rest of loading.) Members are
read straight from the file, and no memory is taken for more than the file holds.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

Array = NDArray[Any]
Arrays = dict[str, Array]

_CHECKSUM = "checksum.npy"
# A zip entry: 30 bytes, of which the last four are the lengths of its name and of extra fields.
_ENTRY = struct.Struct("<4s22xHH")
_SIGN = b"PK\x03\x04"


class Damaged(Exception):
    """What is wrong with an archive, as the end of a sentence."""


def begins_with(path: Path, member: str) -> bool:
    """Is this an npz archive whose first member has this name?"""
    with open(path, "rb") as file:
        begin = file.read(_ENTRY.size + len(member) + 4)
    return begin.startswith(_SIGN) and begin[_ENTRY.size :].startswith(f"{member}.npy".encode())


def write(path: Path, arrays: Arrays) -> None:
    """Write all arrays and their checksum."""
    # As np.savez does, whose argument allow_pickle is an array's name before NumPy 2.
    with zipfile.ZipFile(path, "w") as archive:
        for name, array in arrays.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                npy.write_array(member, np.asanyarray(array), allow_pickle=False)
        digest = np.frombuffer(_checksum(archive.infolist()), np.uint8)
        with archive.open(_CHECKSUM, "w") as member:
            npy.write_array(member, digest)


def read(path: Path) -> tuple[Arrays, bool]:
    """All arrays but the checksum, and whether there was one; everything is compared here."""
    try:
        with zipfile.ZipFile(path) as archive, open(path, "rb") as file:
            members = archive.infolist()
            arrays = {info.filename: _member(file, info) for info in members}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError, struct.error) as error:
        raise Damaged("it is truncated, or parts of it were changed") from error
    except (NotImplementedError, MemoryError, SyntaxError, RecursionError) as error:
        raise Damaged("it is no archive that nugget writes") from error
    if len(arrays) < len(members) or not all(name.endswith(".npy") for name in arrays):
        raise Damaged("it holds an array twice, or what is no array")
    found = arrays.pop(_CHECKSUM, None)
    if found is not None and found.tobytes() != _checksum(members):
        raise Damaged("its content does not match its checksum")
    return {name.removesuffix(".npy"): array for name, array in arrays.items()}, found is not None


def _checksum(members: Iterable[zipfile.ZipInfo]) -> bytes:
    digest = hashlib.sha256()
    for info in members:
        if info.filename != _CHECKSUM:
            digest.update(f"{info.filename} {info.file_size} {info.CRC}\n".encode())
    return digest.digest()


def _member(file: IO[bytes], info: zipfile.ZipInfo) -> Array:
    """One array; its size must be what the archive says before memory is taken for it."""
    name = info.filename
    file.seek(info.header_offset)
    sign, name_length, extra_length = _ENTRY.unpack(file.read(_ENTRY.size))
    if sign != _SIGN or file.read(name_length) != name.encode():
        raise Damaged(f"{name} is not where the archive says")
    if info.compress_type != zipfile.ZIP_STORED or info.compress_size != info.file_size:
        raise Damaged(f"{name} is compressed, which nugget never does")
    start = file.seek(extra_length, 1)
    if start + info.file_size > os.fstat(file.fileno()).st_size or npy.read_magic(file) != (1, 0):
        raise Damaged(f"{name} is no whole array")
    shape, fortran, dtype = npy.read_array_header_1_0(file)
    length, count = file.tell() - start, math.prod(shape)
    if dtype.hasobject or dtype.itemsize == 0 or not all(type(n) is int and n >= 0 for n in shape):
        raise Damaged(f"{name} is no array of numbers")
    if length + count * dtype.itemsize != info.file_size:
        raise Damaged(f"{name} is not as long as its shape {shape} says")
    flat = np.fromfile(file, dtype, count)
    file.seek(start)
    if zlib.crc32(flat.view(np.uint8).data, zlib.crc32(file.read(length))) != info.CRC:
        raise Damaged(f"{name} was changed")
    return flat.reshape(shape[::-1]).T if fortran else flat.reshape(shape)
