"""What a model file must hold: names, types, shapes that fit each other, and finite numbers.

All of it is looked at before any compiled loop sees an array: these loops check no bounds.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from types import NoneType, UnionType
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np
from ase.data import atomic_numbers
from numpy.typing import NDArray

from nugget import registry
from nugget.modelfile._archive import Arrays, Damaged
from nugget.potential.potential import Potential

Shape = tuple[str | int, ...]

#: Parts of a potential that a header describes by name and settings.
PARTS = ("descriptor", "kernel", "inducing", "uncertainty")
PRIORS = ("prior", "fitted_prior")

_NUMBER, _COUNT = (int, float), (int,)
_HEADER: dict[str, tuple[type, ...]] = {
    **dict.fromkeys((*PARTS, *PRIORS), (dict,)),
    "noise": _NUMBER,
    "force_noise": _NUMBER,
    "seed": _COUNT,
    "rng": (dict,),
    "calibration": (dict, NoneType),
    "use_forces": (bool, NoneType),
    "use_stress": (bool,),
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
}
_OPTIONAL = {"regression/r", "regression/z", "regression/whitened"}
# What a lean file keeps: enough to predict.
_LEAN = ("inducing/z", "inducing/group", "regression/alpha")
_HUGE = 1e100  # squares of larger numbers overflow
_MAY_LACK = ("labels/forces", "labels/stress")  # NaN: there is no such label


def check_header(header: Mapping[str, Any]) -> None:
    """Types of all entries, and settings that their parts can take."""
    _check_types("", header, _HEADER)
    _check_types("summary ", header["summary"], _SUMMARY)
    for kind in PARTS:
        _check_settings(kind, header[kind])
    for kind in PRIORS:
        _check_settings("prior", header[kind])
    if header["seed"] < 0:
        raise Damaged(f"its seed is {header['seed']}")


def check_arrays(header: Mapping[str, Any], arrays: Arrays, potential: Potential) -> None:
    """Names, types, shapes, finite numbers, and all numbers that count or point to something."""
    lean = header.get("lean") is True
    expected = {name: _ARRAYS[name] for name in (_LEAN if lean else _ARRAYS)}
    sizes = _check_shapes(arrays, expected, {"f": potential.descriptor.n_features})
    summary = header["summary"]
    stated = {"m": "inducing_points", "f": "features", "p": "labels", "b": "structures"}
    stated |= {"n": "atoms"}
    if any(summary[name] != sizes[letter] for letter, name in stated.items() if letter in sizes):
        raise Damaged("its summary does not fit its arrays")
    if ("regression/r" in arrays) != ("regression/z" in arrays):
        raise Damaged("regression/r and regression/z belong together")
    if not (lean or "regression/r" in arrays or "regression/whitened" in arrays):  # or both
        raise Damaged("regression/r and regression/whitened are missing")
    _check_uncertainty(arrays, potential, sizes)
    for name, array in arrays.items():
        if not _finite(array, may_lack=name in _MAY_LACK):
            raise Damaged(f"{name} holds numbers that are not finite")
    wrong_values = _wrong_always if lean else _wrong_values
    for sentence, wrong in wrong_values(arrays, potential):
        if wrong:
            raise Damaged(sentence)


def _wrong_always(arrays: Arrays, potential: Potential) -> Iterator[tuple[str, Any]]:
    yield "it has no inducing points", len(arrays["inducing/z"]) == 0
    yield (
        "inducing/group names species that there are not",
        not _within(arrays["inducing/group"], 0, len(potential.descriptor.species) - 1),
    )
    for name in ("regression/noise", "regression/amplitude", "uncertainty/scale"):
        yield (
            f"{name} is not positive, or beyond all measure",
            name in arrays and not _moderate(arrays[name]),
        )


def _wrong_values(arrays: Arrays, potential: Potential) -> Iterator[tuple[str, Any]]:
    a = arrays
    species, offsets = potential.descriptor.species, a["training/offsets"]
    known = [atomic_numbers[symbol] for symbol in species]
    yield from _wrong_always(arrays, potential)
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
    yield "regression/jitter is negative", a["regression/jitter"] < 0
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(offsets))
    for name, rows in (("labels/forces", owner), ("labels/stress", np.arange(len(offsets) - 1))):
        lacks = np.isnan(a[name])
        whole = lacks[np.unique(rows, return_index=True)[1], 0][rows]
        yield f"{name} is there for parts of a structure only", (lacks != whole[:, None]).any()
    for name in ("regression/upper", "regression/r"):
        yield f"{name} is singular", name in a and not np.diagonal(a[name]).all()


def _check_uncertainty(arrays: Arrays, potential: Potential, sizes: dict[str, int]) -> None:
    """Built-in uncertainties tell the shapes of their arrays; others need only hold numbers."""
    own = {name: a for name, a in arrays.items() if name.startswith("uncertainty/")}
    for name in arrays.keys() - own.keys() - _ARRAYS.keys():
        raise Damaged(f"nothing is known of an array {name!r}")
    for name, array in own.items():
        if array.dtype.kind not in "fiub":
            raise Damaged(f"{name} is no array of numbers")
    shapes = getattr(potential.uncertainty, "state_shapes", None)
    if shapes is not None:
        expected = {f"uncertainty/{name}": ("f8", shape) for name, shape in shapes().items()}
        for name in own.keys() - expected.keys():
            raise Damaged(f"nothing is known of an array {name!r}")
        _check_shapes(own, expected, sizes)


def check_columns(columns: tuple[NDArray[Any], NDArray[Any]] | None, m: int) -> None:
    """Of an uncertainty that does not tell its shapes: what compiled loops will read."""
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
    """Settings must be of the types that their class declares."""
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
    """Is a value from JSON one of this type? Types that JSON has no word for always fit."""
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
    """Compare all arrays with what is expected; the sizes that the letters stand for."""
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
            letter, more = (size, 0) if size != "b + 1" else ("b", 1)
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


def _moderate(array: NDArray[Any]) -> bool:
    return bool(((array > 0) & (array < _HUGE)).all())


def _within(array: NDArray[Any], low: int, high: int) -> bool:
    return bool(array.size == 0 or (array.min() >= low and array.max() <= high))


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."
