"""The container of a model file, an npz archive with a checksum, and the check of its contents.

The archive stores the CRC-32 of every member, which covers type, shape and bytes. The last member
is the SHA-256 of the names, lengths and CRCs of all others in their order, so that no member can be
changed, exchanged or removed alone. (Hashing all bytes would double the time of loading.) Members
are read directly from the file, and no more memory is allocated than the file holds.

Names, types, shapes and values of all arrays are checked before any compiled loop reads them,
because these loops check no bounds.
"""

from __future__ import annotations

import hashlib
import math
import os
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import IO, Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from ase.data import atomic_numbers
from numpy.lib import format as npy
from numpy.typing import NDArray

from nugget import registry
from nugget.gp.uncertainty.base import HasStateShapes
from nugget.potential.domain_loops import CHANNELS
from nugget.potential.fitted import ModelParts
from nugget.structures.geometry import RADII

Array = NDArray[Any]

Arrays = dict[str, Array]


_CHECKSUM = "checksum.npy"

# A zip entry: 30 bytes, of which the last four are the lengths of its name and of extra fields.
_ENTRY = struct.Struct("<4s22xHH")

_SIGN = b"PK\x03\x04"


class Damaged(Exception):
    """An archive is damaged; the message is the end of a sentence."""


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
    """All verified arrays but the checksum, and whether there was one."""
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
    """One array; its size is compared with the archive before memory is allocated."""
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


# Required contents: names, types, consistent shapes and finite numbers.


Shape = tuple[str | int, ...]


#: Parts of a potential that a header describes by name and settings.
PARTS = ("descriptor", "kernel", "inducing", "uncertainty")

MEAN_FUNCTIONS = ("prior", "fitted_prior")


_NUMBER, _COUNT = (int, float), (int,)

_HEADER: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*PARTS, *MEAN_FUNCTIONS), (dict,)),
    "noise": _NUMBER,
    "force_noise": _NUMBER,
    "seed": _COUNT,
    "rng": (dict,),
    "calibration": (dict, NoneType),
    "use_forces": (bool, NoneType),
    "use_stress": (bool,),
    "domain": (bool,),
    "summary": (dict,),
    "provenance": (dict,),
}

_SUMMARY: dict[str, tuple[type, ...]] = {
    **dict.fromkeys(("structures", "atoms", "labels", "inducing_points", "features"), _COUNT),
    "jitter": _NUMBER,
    "scale": _NUMBER,
}


# Type and shape of every array. m inducing points, f features, p labels, b structures, n atoms.
_ARRAYS: dict[str, tuple[str, Shape]] = {
    "inducing/z": ("f8", ("m", "f")),
    "inducing/group": ("i8", ("m",)),
    "regression/upper": ("f8", ("m", "m")),
    "regression/alpha": ("f8", ("m",)),
    "regression/y": ("f8", ("p",)),
    "regression/noise": ("f8", ("p",)),
    "regression/count": ("f8", ("p",)),
    "regression/kind": ("f8", ("p",)),
    "regression/amplitude": ("f8", ()),
    "regression/jitter": ("f8", ()),
    "regression/whitened": ("f8", ("p", "m")),
    "regression/r": ("f8", ("m", "m")),
    "regression/z": ("f8", ("m",)),
    "training/offsets": ("i8", ("b + 1",)),
    "training/positions": ("f8", ("n", 3)),
    "training/numbers": ("i8", ("n",)),
    "training/cells": ("f8", ("b", 3, 3)),
    "training/pbc": ("?", ("b", 3)),
    "labels/energy": ("f8", ("b",)),
    "labels/forces": ("f8", ("n", 3)),
    "labels/stress": ("f8", ("b", 6)),
    "domain/elements": ("i8", ("e",)),
    "domain/starts": ("i8", ("e + 1",)),
    "domain/references": ("f8", ("references", "densities")),
    "domain/margin": ("f8", ()),
    "domain/cutoff": ("f8", ()),
    "domain/prior": ("f8", ()),
    "domain/bond": ("f8", ()),
    "domain/least": ("f8", ("e",)),
    "domain/usual": ("f8", ("e",)),
    "domain/near": ("f8", ()),
    "domain/missing": ("f8", ()),
    "domain/scale": ("f8", ()),
}

_DOMAIN = tuple(name for name in _ARRAYS if name.startswith("domain/"))

_OPTIONAL = {"regression/r", "regression/z", "regression/whitened", *_DOMAIN}

# Arrays of a lean file, sufficient for predictions.
_LEAN = ("inducing/z", "inducing/group", "regression/alpha", *_DOMAIN)

_HUGE = 1e100  # squares of larger numbers overflow


_MAY_LACK = ("labels/forces", "labels/stress")  # NaN for a missing label


def check_header(header: Mapping[str, Any]) -> None:
    """Check the types of all entries and the settings of all parts."""
    _check_types("", header, _HEADER)
    _check_types("summary ", header["summary"], _SUMMARY)
    for kind in PARTS:
        _check_settings(kind, header[kind])
    for kind in MEAN_FUNCTIONS:
        _check_settings("prior", header[kind])
    if header["seed"] < 0:
        raise Damaged(f"its seed is {header['seed']}")


def check_arrays(header: Mapping[str, Any], arrays: Arrays, parts: ModelParts) -> None:
    """Check names, types, shapes, finite numbers, and all counts and indices."""
    lean = header.get("lean") is True
    expected = {name: _ARRAYS[name] for name in (_LEAN if lean else _ARRAYS)}
    sizes = _check_shapes(arrays, expected, {"f": parts.descriptor.n_features})
    summary = header["summary"]
    stated = {"m": "inducing_points", "f": "features", "p": "labels", "b": "structures"}
    stated |= {"n": "atoms"}
    if any(summary[name] != sizes[letter] for letter, name in stated.items() if letter in sizes):
        raise Damaged("its summary does not fit its arrays")
    if ("regression/r" in arrays) != ("regression/z" in arrays):
        raise Damaged("regression/r and regression/z belong together")
    if not lean and not {"regression/r", "regression/whitened"} & arrays.keys():
        raise Damaged("it holds neither regression/r nor regression/whitened")
    if 0 < sum(name in arrays for name in _DOMAIN) < len(_DOMAIN):
        raise Damaged("arrays of its training domain are missing")
    _check_uncertainty(arrays, parts, sizes)
    for name, array in arrays.items():
        if not _finite(array, may_lack=name in _MAY_LACK):
            raise Damaged(f"{name} holds numbers that are not finite")
    wrong_values = _wrong_inducing if lean else _wrong_values
    for sentence, wrong in wrong_values(arrays, parts):
        if wrong:
            raise Damaged(sentence)


def _wrong_inducing(arrays: Arrays, parts: ModelParts) -> Iterator[tuple[str, Any]]:
    yield "it has no inducing points", len(arrays["inducing/z"]) == 0
    yield (
        "inducing/group names species that there are not",
        not _within(arrays["inducing/group"], 0, len(parts.descriptor.species) - 1),
    )
    if _DOMAIN[0] in arrays:
        yield from _wrong_domain(arrays)


def _wrong_domain(a: Arrays) -> Iterator[tuple[str, Any]]:
    elements, starts, references = (a[name] for name in _DOMAIN[:3])
    yield (
        "domain/elements are no ascending atomic numbers",
        not _within(elements, 1, len(RADII) - 1) or (np.diff(elements) <= 0).any(),
    )
    yield (
        "domain/starts do not ascend from 0 to the number of references",
        starts[0] != 0 or starts[-1] != len(references) or (np.diff(starts) < 0).any(),
    )
    number = CHANNELS + (len(elements) if len(elements) > 1 else 0)
    yield "domain/references do not fit the elements", references.shape[1] != number
    for name in ("domain/margin", "domain/cutoff", "domain/prior", "domain/scale"):
        yield f"{name} is not positive", not 0 < a[name] < _HUGE
    for name in ("domain/near", "domain/missing", "domain/bond"):
        yield f"{name} is negative", not 0 <= a[name] < _HUGE


def _wrong_values(arrays: Arrays, parts: ModelParts) -> Iterator[tuple[str, Any]]:
    a = arrays
    species, offsets = parts.descriptor.species, a["training/offsets"]
    known = [atomic_numbers[symbol] for symbol in species]
    yield from _wrong_inducing(arrays, parts)
    yield "it has no training structures", len(offsets) < 2
    yield (
        "training/offsets do not ascend from 0 to the number of atoms",
        (
            offsets[0] != 0
            or offsets[-1] != len(a["training/positions"])
            or not (np.diff(offsets) > 0).all()
        ),
    )
    yield (
        "training/numbers holds elements that are not described",
        not np.isin(a["training/numbers"], known).all(),
    )
    yield (
        "regression/kind holds unknown kinds of labels",
        not np.isin(a["regression/kind"], (0.0, 1.0, 2.0)).all(),
    )
    yield "regression/count is negative", (a["regression/count"] < 0).any()
    for name in ("regression/noise", "regression/amplitude", "uncertainty/scale"):
        yield (
            f"{name} is not positive, or beyond all measure",
            name in a and not ((a[name] > 0) & (a[name] < _HUGE)).all(),
        )
    yield "regression/jitter is negative", a["regression/jitter"] < 0
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    for name, rows in (("labels/forces", owner), ("labels/stress", np.arange(len(offsets) - 1))):
        lacks = np.isnan(a[name])
        whole = lacks[np.unique(rows, return_index=True)[1], 0][rows]
        yield f"{name} is there for parts of a structure only", (lacks != whole[:, None]).any()
    for name in ("regression/upper", "regression/r"):
        yield f"{name} is singular", name in a and not np.diagonal(a[name]).all()


def _check_uncertainty(arrays: Arrays, parts: ModelParts, sizes: dict[str, int]) -> None:
    """Check the arrays of an uncertainty; shapes are compared where it declares them."""
    own = {name: a for name, a in arrays.items() if name.startswith("uncertainty/")}
    for name in arrays.keys() - own.keys() - _ARRAYS.keys():
        raise Damaged(f"nothing is known of an array {name!r}")
    for name, array in own.items():
        if array.dtype.kind not in "fiub":
            raise Damaged(f"{name} is no array of numbers")
    settings = parts.uncertainty
    if isinstance(settings, HasStateShapes):
        shapes = settings.state_shapes()
        expected = {f"uncertainty/{name}": ("f8", shape) for name, shape in shapes.items()}
        for name in own.keys() - expected.keys():
            raise Damaged(f"nothing is known of an array {name!r}")
        _check_shapes(own, expected, sizes)


def check_columns(columns: tuple[NDArray[Any], NDArray[Any]] | None, m: int) -> None:
    """Check the arrays that compiled loops read of an uncertainty without declared shapes."""
    if columns is None:
        return
    weights, shifts = columns
    fits = weights.ndim == 2 and weights.shape[1] == m and shifts.shape == weights.shape[:1]
    if not fits or weights.dtype != np.float64 or shifts.dtype != np.float64:
        raise Damaged(f"its uncertainty does not belong to {m} inducing points")


def _check_types(
    where: str, found: Mapping[str, Any], expected: Mapping[str, tuple[type, ...]]
) -> None:
    for name, types in expected.items():
        if name not in found:
            raise Damaged(f"{where}{name} is missing")
        value = found[name]
        right = type(value) in types
        if not right or (isinstance(value, float) and not math.isfinite(value)):
            raise Damaged(f"{where}{name} is {_short(value)}")


def _check_settings(kind: str, settings: Any) -> None:
    """Check settings against the types that their class declares."""
    if not isinstance(settings, dict) or not isinstance(settings.get("name"), str):
        raise Damaged(f"its {kind} has no name")
    part = registry.find(kind, settings["name"])
    try:
        hints = get_type_hints(part)
    except Exception:  # annotations of other packages need not be complete
        hints = {}
    for name, value in settings.items():
        if name == "parts" and isinstance(value, list):
            for one in value:
                _check_settings(kind, one)
        elif isinstance(value, dict) and "name" in value:
            _check_settings(kind, value)
        elif name != "name" and not _fits(value, hints.get(name, Any)):
            raise Damaged(f"{name} of its {kind} is {_short(value)}")


def _fits(value: Any, hint: Any) -> bool:
    """Whether a JSON value has this type; types that JSON does not have always fit."""
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return any(_fits(value, one) for one in inner)
    if hint is float:
        return type(value) in _NUMBER and math.isfinite(value)
    if hint in (int, bool, str, NoneType):
        return type(value) is hint
    if origin is tuple:
        if not isinstance(value, list):
            return False
        if inner[1:] == (...,):
            return all(_fits(one, inner[0]) for one in value)
        return len(value) == len(inner) and all(map(_fits, value, inner))
    return True


def _check_shapes(
    arrays: Arrays, expected: Mapping[str, tuple[str, Shape]], known: Mapping[str, int]
) -> dict[str, int]:
    """Check types and shapes; returns the sizes that the letters stand for."""
    sizes = dict(known)
    for name, (dtype, shape) in expected.items():
        if name not in arrays:
            if name in _OPTIONAL:
                continue
            raise Damaged(f"the array {name} is missing")
        array = arrays[name]
        if array.dtype != np.dtype(dtype):
            raise Damaged(f"{name} is of type {array.dtype}, not {np.dtype(dtype)}")
        if array.ndim != len(shape):
            raise Damaged(f"{name} has {array.ndim} axes, not {len(shape)}")
        for length, size in zip(array.shape, shape, strict=True):
            letter, more = str(size).removesuffix(" + 1"), int(str(size).endswith(" + 1"))
            wanted = size if isinstance(size, int) else sizes.setdefault(str(letter), length - more)
            if length - more != wanted:
                raise Damaged(f"{name} has the shape {array.shape}, which does not fit the others")
    return sizes


def _finite(array: NDArray[Any], may_lack: bool) -> bool:
    if array.dtype.kind != "f":
        return True
    if may_lack:
        return not np.isinf(array).any()
    with np.errstate(over="ignore", invalid="ignore"):
        total = np.sum(array)  # one pass without a temporary array
    return bool(np.isfinite(total) or np.isfinite(array).all())


def _within(array: NDArray[Any], low: int, high: int) -> bool:
    return bool(array.size == 0 or (array.min() >= low and array.max() <= high))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
