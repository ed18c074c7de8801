"""The run directory of `nugget md`, `neb` and `saddle`, and the base class of their runs.

`run.json` contains settings and start structures, `calls.jsonl` one outcome of the engine per line,
exact to the last bit and sealed by a hash of this line and all before it. An outcome is written
before it is used: a resumed run proposes the same structures in the same order and reads the
recorded outcomes, so that no evaluation is repeated.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar, Generic, Self, TypeVar

import ase.io
import numpy as np
from ase import Atoms
from ase.io.jsonio import decode, encode

from nugget.engines.engine_check import (
    atomic_energies,
    first_check,
    isolated_atoms,
    refuse_other_energies,
)
from nugget.engines.engine_settings import EngineConfig
from nugget.engines.outcome import Outcome, atoms_dict, atoms_from
from nugget.engines.plausibility import PlausibilityCheck
from nugget.engines.queue import EvaluationQueue
from nugget.engines.runner import remove_stale
from nugget.engines.task import SCRATCH
from nugget.errors import NuggetError
from nugget.numerics.threads import one_blas_thread
from nugget.onthefly.online_model import OnlineModel
from nugget.settings import Section
from nugget.storage.database import versions
from nugget.storage.files import locked, open_file, read_sealed, replacing, write_sealed
from nugget.structures.io import write_images

RUN, CALLS, LABELLED = "run.json", "calls.jsonl", "labelled.extxyz"
ENGINE_CHECK = "engine_check.json"
MODEL = "learned.model"


def read_run(directory: Path, kind: str) -> tuple[dict[str, Any], list[Atoms]]:
    """Settings and structures of a run."""
    try:
        data = read_sealed(directory / RUN, "start the run again")
    except FileNotFoundError:
        raise NuggetError(f"{directory} contains no run: there is no {RUN}.") from None
    if data.get("kind") != kind:
        raise NuggetError(f"{directory} contains a run of `nugget {data.get('kind')}`, not {kind}.")
    # Runs of version 0.2 have no training domain, and resume as they began.
    settings = data["settings"] if kind == "saddle" else {"domain": False, **data["settings"]}
    return settings, [atoms_from(decode(text)) for text in data["structures"]]


ConfigT = TypeVar("ConfigT", bound=Section)


class DirectoryRun(Generic[ConfigT]):
    """A run in its own directory; `create` or `resume` it, then `run`."""

    kind: ClassVar[str]  # in run.json, and the name of the command
    settings: ClassVar[type[Section]]

    def __init__(self, directory: Path, config: ConfigT, *structures: Atoms) -> None:
        self.directory, self.config, self.structures = directory, config, structures

    @classmethod
    def begin(
        cls,
        directory: Path,
        config: ConfigT,
        *structures: Atoms,
        copies: Mapping[str, Path] | None = None,
    ) -> Self:
        """A new run in a new directory; NuggetError if it contains a run already.

        `copies` are files to copy into it, by their new names.
        """
        directory.mkdir(parents=True, exist_ok=True)
        bare = [atoms.copy() for atoms in structures]
        for atoms in bare:
            atoms.info = {}
        kept = [encode(atoms_dict(atoms)) for atoms in bare]
        data = {"kind": cls.kind, "settings": json.loads(config.model_dump_json())}
        with locked(directory):
            if (directory / RUN).exists():
                raise NuggetError(
                    f"{directory} contains a run already: --resume {directory}, or choose another."
                )
            for name, source in (copies or {}).items():
                with replacing(directory / name) as partial:
                    shutil.copyfile(source, partial)
            write_sealed(directory / RUN, {**data, "structures": kept})
        return cls(directory, config, *structures)

    @classmethod
    def resume(cls, directory: Path, **changes: Any) -> Self:
        """Resume a run that was stopped or killed; `changes` replace settings unless None."""
        settings, structures = read_run(directory, cls.kind)
        config: Any = cls.settings.model_validate(settings)
        given = {name: value for name, value in changes.items() if value is not None}
        return cls(directory, config.model_copy(update=given), *structures)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """While this process alone uses the directory, with reproducible arithmetic."""
        with locked(self.directory), one_blas_thread():
            yield


def read_checkpoint(path: Path) -> dict[str, Any] | None:
    """The last checkpoint, or None if there is none yet."""
    try:
        return read_sealed(path, "start the run again")
    except FileNotFoundError:
        return None


class Appended:
    """A file that grows; on resuming it is truncated to its length at the last checkpoint."""

    def __init__(self, path: Path, offset: int) -> None:
        self._path = path
        with open_file(path) as file:
            if os.fstat(file.fileno()).st_size < offset:
                raise NuggetError(f"{path} is shorter than it was; start the run again.")
            file.truncate(offset)

    def write(self, text: str) -> None:
        with open_file(self._path) as file:
            file.write(text.encode())

    def write_frame(self, atoms: Atoms) -> None:
        """One frame as extxyz, with `info` and `arrays`."""
        text = io.StringIO()
        ase.io.write(text, atoms, format="extxyz")
        self.write(text.getvalue())

    def sync(self) -> int:
        """Flush the file to disk; return its length."""
        with open_file(self._path) as file:
            os.fsync(file.fileno())
            return os.fstat(file.fileno()).st_size


def finish(directory: Path, model: OnlineModel, factor: float = 1.0) -> None:
    """Write the model, with σ multiplied by a factor, and its training set."""
    if model.potential is not None:
        saved = model.potential.copy()
        fitted = saved.fitted.uncertainty
        if factor != 1.0:
            saved.set_uncertainty(fitted.with_scale(factor * fitted.scale))
        saved.save(directory / MODEL)
    if model.images:
        write_images(directory / LABELLED, model.images)


class RecordedEngine:
    """Returns structures with results, or None where the engine failed, and records all outcomes.

    `used` is the number of outcomes that were returned; the successful ones are the training set.
    """

    def __init__(self, engine: EngineConfig, directory: Path, used: int = 0) -> None:
        self.path, self.engine, self.directory = directory / CALLS, engine, directory
        self.used = used
        self.outcomes, self._seal = read_sealed_outcomes(self.path, repair=True)
        if used > len(self.outcomes):
            raise NuggetError(f"{self.path} lacks calls that the run has used; start a new run.")
        self._queue: EvaluationQueue | None = None
        self._isolated: Mapping[int, float] = {}

    def __enter__(self) -> RecordedEngine:
        return self

    def __exit__(self, *error: Any) -> None:
        if self._queue is not None:
            self._queue.__exit__(*error)
        else:  # all calls were recorded, also those before a kill
            remove_stale(self.directory / SCRATCH)

    @property
    def good(self) -> list[Atoms]:
        """The successful structures among the used outcomes."""
        return [outcome.atoms for outcome in self.outcomes[: self.used] if outcome.ok]

    def __call__(self, atoms: Atoms) -> Atoms | None:
        if self.used == len(self.outcomes):
            self._append(self._evaluate(atoms))
        outcome = self.outcomes[self.used]
        if not np.array_equal(outcome.atoms.positions, atoms.positions):
            raise NuggetError(
                f"Call {self.used + 1} in {self.path} is for another structure, since the "
                "arithmetic of this machine differs; resume on the machine where the run began."
            )
        self.used += 1
        self._refuse_failures()
        return outcome.atoms if outcome.ok else None

    def _evaluate(self, atoms: Atoms) -> Outcome:
        begins = self._queue is None
        if self._queue is None:  # recorded outcomes need no engine
            self._queue = EvaluationQueue(
                self.engine,
                1,
                directory=self.directory,
                judge=PlausibilityCheck(lambda _: self.good, isolated=lambda: self._isolated),
            )
            if self.engine.verify:
                outcomes, _ = isolated_atoms(
                    self.engine, atoms.numbers.tolist(), self._queue.evaluate
                )
                if all(one.ok for one in outcomes):
                    self._isolated = atomic_energies(one.atoms for one in outcomes)
        known = [one.atoms for one in self.outcomes if one.ok]
        if begins and self.engine.verify and known:
            refuse_other_energies(known[-1], self._queue.evaluate, self._versions())
        self._queue.submit(0, atoms)
        outcome = self._queue.next()[1]
        if self.engine.verify and outcome.ok and not known:
            check = first_check(outcome.atoms, self._queue.evaluate, 0)
            result = {"report": str(check.report()), "versions": versions()}
            write_sealed(self.directory / ENGINE_CHECK, result)
            outcome = replace(outcome, atoms=check.settled)
        return outcome

    def _versions(self) -> dict[str, str]:
        """Packages and their versions when the run began; nothing if it is older."""
        path = self.directory / ENGINE_CHECK
        found = read_sealed(path, "remove it").get("versions", {}) if path.exists() else {}
        return dict(found)

    def _append(self, outcome: Outcome) -> None:
        text = outcome.to_json()
        self._seal = _next_seal(self._seal, text)
        with open_file(self.path) as file:
            file.write(f'{{"{_SEAL}": "{self._seal}", {text[1:]}\n'.encode())
            file.flush()
            os.fsync(file.fileno())
        self.outcomes.append(Outcome.from_json(text))

    def _refuse_failures(self) -> None:
        last = self.outcomes[max(self.used - self.engine.max_failures, 0) : self.used]
        if len(last) == self.engine.max_failures and not any(outcome.ok for outcome in last):
            raise NuggetError(
                f"The engine failed {len(last)} times in a row, most recently with: "
                f"{last[-1].failure}: {last[-1].reason}"
            )

    def failures(self) -> dict[str, int]:
        """Number of failed calls by kind."""
        kinds = [o.failure.value for o in self.outcomes[: self.used] if o.failure is not None]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def read_engine_check(directory: Path) -> str | None:
    """The result of the first check of the engine in one line; None if there was none."""
    path = directory / ENGINE_CHECK
    return str(read_sealed(path, "remove it")["report"]) if path.exists() else None


_SEAL = "sha256"

_SEALED = re.compile(r'\{"sha256": "([0-9a-f]{64})", ')


def _next_seal(before: str, text: str) -> str:
    return hashlib.sha256(f"{before}\n{text}".encode()).hexdigest()


def read_outcomes(path: Path) -> list[Outcome]:
    """The recorded outcomes; nothing is written, so that the run may still be going on."""
    return read_sealed_outcomes(path)[0]


def read_sealed_outcomes(path: Path, repair: bool = False) -> tuple[list[Outcome], str]:
    """The recorded outcomes, and the seal of the last line; damage is an error.

    Lines of version 0.2 have no seal; lines after the first sealed one must have one. An incomplete
    last line after a kill is ignored, and `repair` removes it from the file.
    """
    if not path.exists():
        return [], ""
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if repair and len(whole) < len(content):
        with open_file(path) as file:
            file.truncate(len(whole))
    outcomes, seal, sealed = [], "", False
    try:
        for number, line in enumerate(whole.decode().splitlines(), start=1):
            match = _SEALED.match(line)
            text = line if match is None else "{" + line[match.end() :]
            seal, sealed = _next_seal(seal, text), sealed or match is not None
            if sealed and (match is None or match[1] != seal):
                raise ValueError(f"line {number} was changed, or lines before it are missing")
            outcomes.append(Outcome.from_json(text))
    except (ValueError, KeyError, TypeError) as error:
        raise NuggetError(f"{path} is damaged ({error}); start a new run.") from None
    return outcomes, seal
