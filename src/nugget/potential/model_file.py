"""Model files: one versioned file per model, free of pickle, written atomically and verified.

A model file is an npz archive. Its first member, `header`, is JSON with the settings of all parts
by name, the state of the random generator, calibration and provenance. All other members are plain
arrays, so that a model is restored bit for bit and can learn further structures. The last member
is a checksum. `model_archive` checks the contents.

Formats that can be read:
2: mean functions have a "kind"; a fitted uncertainty repeats its settings as numbers.
3: mean functions have their registered name; a fitted uncertainty has a scale and its arrays; the
   archive has a checksum.
4: a model may have a training domain.
5: a training domain counts missing neighbours; a projected process has factors and floors.
6: a training domain knows the relative error of the mean function.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import nugget
from nugget import registry
from nugget.calibration.metrics import Method
from nugget.engines.engine_settings import engine_code, require_trust
from nugget.errors import NuggetError
from nugget.gp.labels import ENERGY
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.base import HasStateShapes
from nugget.potential import model_archive as _archive
from nugget.potential.domain import TrainingDomain
from nugget.potential.fitted import FittedState, ModelParts, StoredModel
from nugget.potential.mean_functions.base import mean_function_from_settings, mean_function_settings
from nugget.potential.model_archive import (
    MEAN_FUNCTIONS,
    PARTS,
    Array,
    Arrays,
    Damaged,
    check_arrays,
    check_columns,
    check_header,
)
from nugget.potential.training import Noise, Training
from nugget.storage.files import replacing
from nugget.structures.batch import Batch

Header = dict[str, Any]

FormatArrays = dict[str, NDArray[Any]]


OLDEST, CURRENT = 2, 6

CHECKED = 3  # formats from this one on have a checksum


def upgraded(header: Header, arrays: FormatArrays) -> tuple[Header, FormatArrays]:
    """Header and arrays in the current format."""
    for step in range(header["version"], CURRENT):
        header, arrays = _STEPS[step](header, arrays)
    return header, arrays


def _from_2(header: Header, arrays: FormatArrays) -> tuple[Header, FormatArrays]:
    header, arrays = dict(header), dict(arrays)
    for name in ("prior", "fitted_prior"):
        header[name] = _named_mean_function(header[name])
    if "uncertainty/settings" in arrays:
        arrays["uncertainty/scale"] = arrays.pop("uncertainty/settings")[-1]
    return header, arrays


def _from_3(header: Header, arrays: FormatArrays) -> tuple[Header, FormatArrays]:
    return {**header, "domain": False}, arrays


def _from_4(header: Header, arrays: FormatArrays) -> tuple[Header, FormatArrays]:
    if "domain/elements" not in arrays:
        return header, arrays
    none = np.zeros(len(arrays["domain/elements"]))
    number = {"domain/bond": np.array(0.0), "domain/missing": np.array(0.0)}
    return header, {**arrays, **number, "domain/least": none, "domain/usual": none}


def _from_5(header: Header, arrays: FormatArrays) -> tuple[Header, FormatArrays]:
    if "domain/elements" not in arrays:
        return header, arrays
    return header, {**arrays, "domain/scale": np.array(1.0)}


def _named_mean_function(settings: dict[str, Any]) -> dict[str, Any]:
    plain = dict(settings)
    kind = plain.pop("kind")
    plain["name"] = "pair-well" if kind == "well" else kind
    if kind == "sum":
        plain["parts"] = [_named_mean_function(part) for part in plain["parts"]]
    if kind == "calculator":
        plain["options"] = list(plain["options"].items())
    return plain


_STEPS: dict[int, Callable[[Header, FormatArrays], tuple[Header, FormatArrays]]] = {
    2: _from_2,
    3: _from_3,
    4: _from_4,
    5: _from_5,
}

# Words of earlier releases in a calibration, and the current ones.
_METHODS = {"left out one by one, and in groups": Method.LEAVE_ONE_OUT.value}


def _calibration(header: Header) -> dict[str, Any] | None:
    """The calibration of a model, in the current words."""
    calibration: dict[str, Any] | None = header["calibration"]
    if calibration is None or calibration.get("method") not in _METHODS:
        return calibration
    return {**calibration, "method": _METHODS[calibration["method"]]}


FORMAT = "nugget-model"

VERSION = CURRENT


_BATCH = ("positions", "numbers", "offsets", "cells", "pbc")

_LABELS = ("energy", "forces", "stress")

_HEADER = "header"


def save_model(model: StoredModel, path: str | Path, lean: bool = False) -> None:
    """Write a model atomically.

    A `lean` file is sufficient for predictions; it holds neither training set nor factors.
    """
    lean = lean or model.state.lean
    header, arrays = _header(model, lean), _arrays(model.state, lean)
    text = json.dumps(header, default=_plain).encode()
    with replacing(Path(path)) as partial:
        _archive.write(partial, {_HEADER: np.frombuffer(text, np.uint8), **arrays})


def load_model(path: str | Path, trust_code: bool = False) -> StoredModel:
    """Read and verify a model that `save_model` wrote.

    A mean function may run code, namely an engine `module:factory` or an engine whose options name
    a program. Such a file is refused unless `trust_code` is set or the code is in the user's list
    of trusted names (see `nugget.engines.engine_settings`).
    """
    path = Path(path)
    header, arrays = _read(path)
    with _damage_named(path):
        require_trust(_code_in(header), str(path), trust_code)
        return _restored(header, arrays)


def read_header(path: str | Path) -> dict[str, Any]:
    """Settings, calibration and provenance of a model file; its checksum is verified."""
    return _read(Path(path))[0]


def code_of_model(path: str | Path) -> list[str]:
    """The code that a model file would run when it predicts; see `load_model`."""
    return _code_in(read_header(path))


# --------------------------------------------------------------------------- writing


def _header(model: StoredModel, lean: bool) -> dict[str, Any]:
    parts, state = model.parts, model.state
    training = state.training
    if state.lean:  # the training set is no longer available
        summary, data = model.origin["summary"], model.origin["data"]
    else:
        summary, data = _summary(state), training.fingerprint()
    stress = {} if parts.noise.stress is None else {"stress_noise": parts.noise.stress}
    return {
        "format": FORMAT,
        "version": VERSION,
        **{kind: registry.settings_of(kind, getattr(parts, kind)) for kind in PARTS},
        "noise": parts.noise.energy,
        "force_noise": parts.noise.force,
        **stress,
        "prior": mean_function_settings(parts.mean_function),
        "fitted_prior": mean_function_settings(state.mean_function),
        "seed": parts.seed,
        "rng": model.rng.bit_generator.state,
        "calibration": model.calibration,
        "choices": model.choices,
        "lean": lean,
        "use_forces": training.use_forces,
        "use_stress": training.use_stress,
        "domain": parts.domain,
        "summary": {**summary, "scale": state.uncertainty.scale},
        "provenance": {
            "nugget": nugget.__version__,
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "data": data,
            "python": platform.python_version(),
            **{name: version(name) for name in ("numpy", "scipy", "numba", "ase")},
        },
    }


def _summary(state: FittedState) -> dict[str, Any]:
    return {
        "structures": len(state.training.batch),
        "atoms": len(state.training.batch.positions),
        "labels": int(state.regression.y.size),
        "inducing_points": len(state.inducing),
        "features": int(state.inducing.z.shape[1]),
        "jitter": state.regression.jitter,
    }


def _arrays(state: FittedState, lean: bool) -> Arrays:
    arrays: Arrays = {"inducing/z": state.inducing.z, "inducing/group": state.inducing.group}
    arrays |= {
        f"uncertainty/{name}": np.asarray(value)
        for name, value in state.uncertainty.state().items()
    }
    if state.domain is not None:
        arrays |= {f"domain/{name}": value for name, value in state.domain.state().items()}
    if lean:
        return arrays | {"regression/alpha": state.regression.alpha}
    for group, values in (
        ("regression", state.regression.state()),
        ("training", {name: getattr(state.training.batch, name) for name in _BATCH}),
        ("labels", {name: getattr(state.training, name) for name in _LABELS}),
    ):
        arrays.update({f"{group}/{name}": np.asarray(value) for name, value in values.items()})
    return arrays


def _plain(value: Any) -> Any:
    """NumPy numbers, which a calibration may hold, as Python numbers."""
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    raise NuggetError(f"{value!r} ({type(value).__name__}) cannot be kept in a model file.")


# --------------------------------------------------------------------------- reading


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays in the current format; `version` stays that of the file."""
    foreign = NuggetError(f"{path} is no nugget model; `nugget fit DATA -o MODEL` writes one.")
    try:
        if not _archive.begins_with(path, _HEADER):
            raise foreign
    except FileNotFoundError as error:
        raise NuggetError(f"The model file {path} does not exist.") from error
    except OSError as error:
        raise NuggetError(f"The model file {path} cannot be read: {error.strerror}.") from error
    with _damage_named(path):
        arrays, checked = _archive.read(path)
        header = json.loads(arrays.pop(_HEADER).tobytes())
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise foreign
        _check_version(path, header)
        if not checked and header["version"] >= CHECKED:
            raise Damaged("its checksum is missing")
        header, arrays = upgraded(header, arrays)
        check_header(header)
        return header, arrays


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """Turn any error that a damaged file causes into one message that names the file."""
    try:
        yield
    except NuggetError as error:
        if str(path) in str(error):
            raise
        raise NuggetError(f"{path}: {error}") from error
    except Damaged as error:
        raise NuggetError(
            f"{path} is damaged: {error}; copy it again or fit the model again."
        ) from error
    except Exception as error:  # parts of other packages may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise NuggetError(
            f"{path} is damaged ({reason}); copy it again or fit the model again."
        ) from error


def _check_version(path: Path, header: dict[str, Any]) -> None:
    number = header.get("version")
    if type(number) is not int or number < 1:
        raise Damaged(f"its format version is {number!r}")
    if number < OLDEST:
        raise NuggetError(f"{path} has model format {number}, which no release wrote: fit it anew.")
    if number > VERSION:
        writer = header.get("provenance", {}).get("nugget", "a later version")
        raise NuggetError(
            f"{path} has model format {number}, written by nugget {writer}; this is nugget "
            f"{nugget.__version__}, which reads formats up to {VERSION}: update nugget."
        )


def _code_in(header: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for kind in MEAN_FUNCTIONS for name in _code_of(header[kind])))


def _code_of(settings: dict[str, Any]) -> list[str]:
    """The code that a mean function and its parts run."""
    own = []
    if "engine" in settings:
        own = engine_code(settings["engine"], dict(settings.get("options", ())))
    return own + [name for part in settings.get("parts", []) for name in _code_of(part)]


def _restored(header: dict[str, Any], arrays: Arrays) -> StoredModel:
    parts = ModelParts(
        **{kind: registry.from_settings(kind, header[kind]) for kind in PARTS},
        mean_function=mean_function_from_settings(header["prior"]),
        noise=Noise(header["noise"], header["force_noise"], header.get("stress_noise")),
        seed=header["seed"],
        domain=header["domain"],
    )
    lean = bool(header.get("lean", False))
    origin = {"summary": header["summary"], "data": header["provenance"]["data"]} if lean else {}
    check_arrays(header, arrays, parts)
    if lean:
        arrays = arrays | _empty_arrays(arrays["regression/alpha"])
    positions, numbers, offsets, cells, pbc = (arrays[f"training/{name}"] for name in _BATCH)
    energy, forces, stress = (arrays[f"labels/{name}"] for name in _LABELS)
    uncertainty = parts.uncertainty.from_state(_group("uncertainty", arrays))
    if not isinstance(parts.uncertainty, HasStateShapes):
        check_columns(uncertainty.columns, len(arrays["inducing/z"]))
    domain = _group("domain", arrays)
    state = FittedState(
        parts.descriptor,
        parts.kernel,
        mean_function_from_settings(header["fitted_prior"]),
        parts.kernel.inducing(arrays["inducing/z"], arrays["inducing/group"]),
        SparseRegression.from_state(_group("regression", arrays)),
        uncertainty,
        _with_own_noise(
            Training(
                Batch(positions, numbers, offsets, cells, pbc),
                energy, forces, stress, header["use_forces"], header["use_stress"],
            ),
            parts.noise, arrays["regression/noise"], arrays["regression/kind"],
        ),
        lean,
        TrainingDomain.from_state(domain) if domain else None,
    )  # fmt: skip
    rng, choices = _generator(header["rng"]), header.get("choices")
    return StoredModel(parts, state, rng, _calibration(header), choices, origin)


def _with_own_noise(training: Training, noise: Noise, level: Array, kind: Array) -> Training:
    """The training set with those noise levels of its structures that differ from the model's."""
    starts = np.flatnonzero(kind == ENERGY)
    if len(starts) != len(training.batch) or not len(starts):
        return training
    forces = starts[training.has_forces] + 1
    own = np.full((len(starts), 2), np.nan)
    own[:, 0] = level[starts] / np.sqrt(training.batch.sizes)
    own[training.has_forces, 1] = level[forces]
    own[np.isclose(own, [noise.energy, noise.force], rtol=1e-9, atol=0.0)] = np.nan
    return training if np.isnan(own).all() else replace(training, own_noise=own)


def _empty_arrays(alpha: Array) -> Arrays:
    """Empty arrays in place of those that a lean file does not hold."""
    empty: Arrays = {"training/positions": np.zeros((0, 3)), "training/cells": np.zeros((0, 3, 3))}
    empty |= {"training/numbers": np.zeros(0, np.int64), "training/offsets": np.zeros(1, np.int64)}
    empty |= {"training/pbc": np.zeros((0, 3), bool)}
    empty |= {"labels/energy": np.zeros(0), "labels/forces": np.zeros((0, 3))}
    empty |= {"labels/stress": np.zeros((0, 6)), "regression/upper": np.zeros((0, 0))}
    empty |= {f"regression/{name}": np.zeros(0) for name in ("y", "noise", "count", "kind", "z")}
    empty |= {f"regression/{name}": np.zeros(()) for name in ("amplitude", "jitter")}
    return empty | {"regression/r": np.zeros((0, 0)), "regression/alpha": alpha}


def _group(name: str, arrays: Arrays) -> Arrays:
    start = f"{name}/"
    return {name.removeprefix(start): a for name, a in arrays.items() if name.startswith(start)}


def _generator(state: dict[str, Any]) -> np.random.Generator:
    rng = np.random.default_rng()
    if state["bit_generator"] != rng.bit_generator.state["bit_generator"]:
        raise NuggetError(f"The random generator {state['bit_generator']!r} is unknown here.")
    rng.bit_generator.state = state
    return rng
