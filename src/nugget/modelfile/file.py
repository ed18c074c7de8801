"""One file per potential: versioned, free of pickle, written atomically.

A model file is an npz archive. Its first member, `header`, is JSON: settings by name, the state of
the random generator, calibration and provenance. All other members are plain arrays, so that the
fitted numbers come back bit for bit, and learning goes on as if nothing had happened.
"""

from __future__ import annotations

import json
import os
import platform
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

import nugget
from nugget import registry
from nugget.errors import NuggetError
from nugget.gp.regression import SparseRegression
from nugget.modelfile import _formats
from nugget.potential.potential import Fit, Potential
from nugget.potential.priors import prior_from_settings, prior_settings
from nugget.potential.training import Training
from nugget.structures.batch import Batch

FORMAT = "nugget-model"
VERSION = _formats.CURRENT

# The parts of a potential that a header describes by name and settings.
_PARTS = ("descriptor", "kernel", "inducing", "uncertainty")
_BATCH = ("positions", "numbers", "offsets", "cells", "pbc")
_LABELS = ("energy", "forces", "stress")
_HEADER = "header"
# How an npz archive with our header as its first member begins: a zip entry of that name.
_ZIP = b"PK\x03\x04"
_NAME_AT = 30

Arrays = dict[str, NDArray[Any]]


def save(potential: Potential, path: str | Path, lean: bool = False) -> None:
    """Write a fitted potential; an existing file is replaced in one step, or not at all.

    A `lean` file keeps what predictions need, but neither training set nor factors.
    """
    path = Path(path)
    lean = lean or potential.fitted.lean
    header, arrays = _header(potential, lean), _arrays(potential.fitted, lean)
    text = json.dumps(header, default=_plain).encode()
    with _replacing(path) as file:
        np.savez(file, allow_pickle=False, **{_HEADER: np.frombuffer(text, np.uint8)}, **arrays)


def load(path: str | Path, trust_code: bool = False) -> Potential:
    """Read a potential that `save` wrote.

    A prior that is called `module:factory` runs code of that module. Such a file is refused unless
    `trust_code` says that you know where it comes from.
    """
    path = Path(path)
    header, arrays = _read(path, everything=True)
    engines = _foreign_engines(header["prior"])
    if engines and not trust_code:
        raise NuggetError(
            f"{path} has a prior that runs {engines[0]!r}, which may be any code; if you trust the "
            "file, use --trust, or in Python nugget.modelfile.load(path, trust_code=True)."
        )
    try:
        return _restored(*_formats.upgraded(header, arrays))
    except (KeyError, TypeError, IndexError, AttributeError) as error:
        raise NuggetError(f"{path} is damaged ({error!r} is missing or wrong).") from error


def read_header(path: str | Path) -> dict[str, Any]:
    """Settings, calibration and provenance of a model file, without its arrays."""
    return _read(Path(path), everything=False)[0]


# --------------------------------------------------------------------------- writing


def _header(potential: Potential, lean: bool) -> dict[str, Any]:
    fit = potential.fitted
    training = fit.training
    if potential.fitted.lean:  # what was known of the training set when it was still there
        summary, data = potential.origin["summary"], potential.origin["data"]
    else:
        summary, data = _summary(fit), training.fingerprint()
    return {
        "format": FORMAT,
        "version": VERSION,
        **{kind: registry.settings_of(kind, getattr(potential, kind)) for kind in _PARTS},
        "noise": potential.noise,
        "force_noise": potential.force_noise,
        "prior": prior_settings(potential.prior),
        "fitted_prior": prior_settings(fit.prior),
        "seed": potential.seed,
        "rng": potential.rng.bit_generator.state,
        "calibration": potential.calibration,
        "choices": potential.choices,
        "lean": lean,
        "use_forces": training.use_forces,
        "use_stress": training.use_stress,
        "summary": {**summary, "scale": fit.uncertainty.scale},
        "provenance": {
            "nugget": nugget.__version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": data,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scipy", "numba", "ase")},
        },
    }


def _summary(fit: Fit) -> dict[str, Any]:
    return {
        "structures": len(fit.training.batch),
        "atoms": len(fit.training.batch.positions),
        "labels": int(fit.regression.y.size),
        "inducing_points": len(fit.inducing),
        "features": int(fit.inducing.z.shape[1]),
        "jitter": fit.regression.jitter,
    }


def _arrays(fit: Fit, lean: bool) -> Arrays:
    arrays: Arrays = {"inducing/z": fit.inducing.z, "inducing/group": fit.inducing.group}
    arrays |= {
        f"uncertainty/{name}": np.asarray(value) for name, value in fit.uncertainty.state().items()
    }
    if lean:
        return arrays | {"regression/alpha": fit.regression.alpha}
    for room, state in (
        ("regression", fit.regression.state()),
        ("training", {name: getattr(fit.training.batch, name) for name in _BATCH}),
        ("labels", {name: getattr(fit.training, name) for name in _LABELS}),
    ):
        arrays.update({f"{room}/{name}": np.asarray(value) for name, value in state.items()})
    return arrays


def _plain(value: Any) -> Any:
    """NumPy's numbers, which a calibration may hold, as Python's."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NuggetError(f"{value!r} ({type(value).__name__}) cannot be kept in a model file.")


@contextmanager
def _replacing(path: Path) -> Iterator[IO[bytes]]:
    """A file that takes the place of `path` when it is complete and on disk."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with open(temporary, "wb") as file:
                yield file
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
        except OSError as error:
            raise NuggetError(f"{path} could not be written: {error.strerror}.") from error
    finally:
        temporary.unlink(missing_ok=True)


# --------------------------------------------------------------------------- reading


def _read(path: Path, *, everything: bool) -> tuple[dict[str, Any], Arrays]:
    begin = _beginning(path)
    foreign = NuggetError(f"{path} is no nugget model; `nugget fit DATA -o MODEL` makes one.")
    name = f"{_HEADER}.npy".encode()
    if not (begin.startswith(_ZIP) and begin[_NAME_AT:].startswith(name)):
        raise foreign
    try:
        with np.load(path, allow_pickle=False) as archive:
            header = json.loads(archive[_HEADER].tobytes())
            if not isinstance(header, dict) or header.get("format") != FORMAT:
                raise foreign
            _check_version(path, header)
            names = [n for n in archive.files if n != _HEADER] if everything else []
            return header, {name: archive[name] for name in names}
    except NuggetError:
        raise
    except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError, KeyError) as error:
        raise NuggetError(
            f"{path} is a damaged or truncated nugget model; copy it again or fit anew."
        ) from error


def _beginning(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            return file.read(64)
    except FileNotFoundError as error:
        raise NuggetError(f"The model file {path} does not exist.") from error
    except OSError as error:
        raise NuggetError(f"The model file {path} cannot be read: {error.strerror}.") from error


def _check_version(path: Path, header: dict[str, Any]) -> None:
    found = header.get("version")
    if not isinstance(found, int) or found < 1:
        raise NuggetError(f"{path} is a damaged nugget model: its format version is {found!r}.")
    if found < _formats.OLDEST:
        raise NuggetError(f"{path} has model format {found}, which no release wrote: fit it anew.")
    if found > VERSION:
        writer = header.get("provenance", {}).get("nugget", "a later version")
        raise NuggetError(
            f"{path} has model format {found}, written by nugget {writer}; this is nugget "
            f"{nugget.__version__}, which reads formats up to {VERSION}: update nugget."
        )


def _foreign_engines(settings: dict[str, Any]) -> list[str]:
    if ":" in str(settings.get("engine", "")):
        return [str(settings["engine"])]
    return [name for part in settings.get("parts", []) for name in _foreign_engines(part)]


def _restored(header: dict[str, Any], arrays: Arrays) -> Potential:
    potential = Potential(
        **{kind: registry.from_settings(kind, header[kind]) for kind in _PARTS},
        noise=header["noise"],
        force_noise=header["force_noise"],
        prior=prior_from_settings(header["prior"]),
        seed=header["seed"],
    )
    potential.rng = _generator(header["rng"])
    potential.calibration = header["calibration"]
    potential.choices = header.get("choices")
    lean = bool(header.get("lean", False))
    if lean:
        data = header["provenance"]["data"]
        potential.origin = {"summary": header["summary"], "data": data}
        arrays = arrays | _nothing_learnt(arrays["regression/alpha"])
    positions, numbers, offsets, cells, pbc = (arrays[f"training/{name}"] for name in _BATCH)
    batch = Batch(positions, numbers, offsets, cells, pbc)
    energy, forces, stress = (arrays[f"labels/{name}"] for name in _LABELS)
    potential._fit = Fit(
        prior_from_settings(header["fitted_prior"]),
        potential.kernel.inducing(arrays["inducing/z"], arrays["inducing/group"]),
        SparseRegression.from_state(_room("regression", arrays)),
        potential.uncertainty.from_state(_room("uncertainty", arrays)),
        Training(batch, energy, forces, stress, header["use_forces"], header["use_stress"]),
        lean,
    )
    return potential


def _nothing_learnt(alpha: NDArray[Any]) -> Arrays:
    """What a lean file leaves out, empty: no structures, no labels, no factors."""
    empty: Arrays = {"training/positions": np.zeros((0, 3)), "training/cells": np.zeros((0, 3, 3))}
    empty |= {"training/numbers": np.zeros(0, np.int64), "training/offsets": np.zeros(1, np.int64)}
    empty |= {"training/pbc": np.zeros((0, 3), bool)}
    empty |= {"labels/energy": np.zeros(0), "labels/forces": np.zeros((0, 3))}
    empty |= {"labels/stress": np.zeros((0, 6)), "regression/upper": np.zeros((0, 0))}
    empty |= {f"regression/{name}": np.zeros(0) for name in ("y", "noise", "count", "kind", "z")}
    empty |= {f"regression/{name}": np.zeros(()) for name in ("amplitude", "jitter")}
    return empty | {"regression/r": np.zeros((0, 0)), "regression/alpha": alpha}


def _room(room: str, arrays: Arrays) -> Arrays:
    start = f"{room}/"
    return {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}


def _generator(state: dict[str, Any]) -> np.random.Generator:
    rng = np.random.default_rng()
    if state["bit_generator"] != rng.bit_generator.state["bit_generator"]:
        raise NuggetError(f"The random generator {state['bit_generator']!r} is unknown here.")
    rng.bit_generator.state = state
    return rng
