"""One file per potential: versioned, free of pickle, written atomically, verified when it is read.

A model file is an npz archive. Its first member, `header`, is JSON: settings by name, the state of
the random generator, calibration and provenance. All other members are plain arrays, so that the
fitted numbers come back bit for bit, and learning goes on as if nothing had happened. The last one
is a checksum of all others. `_schema` tells what must be there.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

import nugget
from nugget import registry
from nugget.errors import NuggetError
from nugget.evaluation.trust import engine_code, require_trust
from nugget.gp.regression import SparseRegression
from nugget.modelfile import _archive, _formats
from nugget.modelfile._archive import Array, Arrays, Damaged
from nugget.modelfile._schema import PARTS, PRIORS, check_arrays, check_columns, check_header
from nugget.potential.potential import Fit, Potential
from nugget.potential.priors import prior_from_settings, prior_settings
from nugget.potential.training import Training
from nugget.structures.batch import Batch
from nugget.structures.files import replacing

FORMAT = "nugget-model"
VERSION = _formats.CURRENT

_BATCH = ("positions", "numbers", "offsets", "cells", "pbc")
_LABELS = ("energy", "forces", "stress")
_HEADER = "header"


def save(potential: Potential, path: str | Path, lean: bool = False) -> None:
    """Write a fitted potential; an existing file is replaced in one step, or not at all.

    A `lean` file keeps what predictions need, but neither training set nor factors.
    """
    lean = lean or potential.fitted.lean
    header, arrays = _header(potential, lean), _arrays(potential.fitted, lean)
    text = json.dumps(header, default=_plain).encode()
    with replacing(Path(path)) as partial:
        _archive.write(partial, {_HEADER: np.frombuffer(text, np.uint8), **arrays})


def load(path: str | Path, trust_code: bool = False) -> Potential:
    """Read a potential that `save` wrote, and verify it.

    A prior may run code: an engine that is called `module:factory`, or one whose options name a
    program. Such a file is refused unless `trust_code` says that you know where it comes from, or
    the code is in the user's list (see `nugget.evaluation.trust`).
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
    """The code that a model file would run when it predicts; see `load`."""
    return _code_in(read_header(path))


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
        **{kind: registry.settings_of(kind, getattr(potential, kind)) for kind in PARTS},
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


# --------------------------------------------------------------------------- reading


def _read(path: Path) -> tuple[dict[str, Any], Arrays]:
    """Header and arrays in the present format; `version` stays that of the file."""
    foreign = NuggetError(f"{path} is no nugget model; `nugget fit DATA -o MODEL` makes one.")
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
        if not checked and header["version"] >= _formats.CHECKED:
            raise Damaged("its checksum is missing")
        header, arrays = _formats.upgraded(header, arrays)
        check_header(header)
        return header, arrays


@contextmanager
def _damage_named(path: Path) -> Iterator[None]:
    """One sentence about whatever a file that is not as `save` wrote it leads to."""
    try:
        yield
    except NuggetError as error:
        if str(path) in str(error):
            raise
        raise NuggetError(f"{path}: {error}") from error
    except Damaged as error:
        raise NuggetError(f"{path} is damaged: {error}; copy it again or fit anew.") from error
    except Exception as error:  # parts of other packages may raise anything
        reason = " ".join(f"{type(error).__name__}: {error}".split())
        raise NuggetError(f"{path} is damaged ({reason}); copy it again or fit anew.") from error


def _check_version(path: Path, header: dict[str, Any]) -> None:
    found = header.get("version")
    if type(found) is not int or found < 1:
        raise Damaged(f"its format version is {found!r}")
    if found < _formats.OLDEST:
        raise NuggetError(f"{path} has model format {found}, which no release wrote: fit it anew.")
    if found > VERSION:
        writer = header.get("provenance", {}).get("nugget", "a later version")
        raise NuggetError(
            f"{path} has model format {found}, written by nugget {writer}; this is nugget "
            f"{nugget.__version__}, which reads formats up to {VERSION}: update nugget."
        )


def _code_in(header: dict[str, Any]) -> list[str]:
    return list(dict.fromkeys(name for prior in PRIORS for name in _code_of(header[prior])))


def _code_of(prior: dict[str, Any]) -> list[str]:
    """The code that a prior runs, whatever part of it."""
    own = []
    if "engine" in prior:
        own = engine_code(prior["engine"], dict(prior.get("options", ())))
    return own + [name for part in prior.get("parts", []) for name in _code_of(part)]


def _restored(header: dict[str, Any], arrays: Arrays) -> Potential:
    potential = Potential(
        **{kind: registry.from_settings(kind, header[kind]) for kind in PARTS},
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
    check_arrays(header, arrays, potential)
    if lean:
        arrays = arrays | _nothing_learnt(arrays["regression/alpha"])
    positions, numbers, offsets, cells, pbc = (arrays[f"training/{name}"] for name in _BATCH)
    batch = Batch(positions, numbers, offsets, cells, pbc)
    energy, forces, stress = (arrays[f"labels/{name}"] for name in _LABELS)
    uncertainty = potential.uncertainty.from_state(_room("uncertainty", arrays))
    if not hasattr(potential.uncertainty, "state_shapes"):
        check_columns(uncertainty.columns, len(arrays["inducing/z"]))
    potential._fit = Fit(
        prior_from_settings(header["fitted_prior"]),
        potential.kernel.inducing(arrays["inducing/z"], arrays["inducing/group"]),
        SparseRegression.from_state(_room("regression", arrays)),
        uncertainty,
        Training(batch, energy, forces, stress, header["use_forces"], header["use_stress"]),
        lean,
    )
    return potential


def _nothing_learnt(alpha: Array) -> Arrays:
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
