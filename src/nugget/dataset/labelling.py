"""Labels of an engine for the structures of a file.

Each finished calculation is one row of an ASE database in a directory beside the output, written
in one transaction, failures included. A structure is recognised by its atoms and cell, so a run
that was killed, or whose input has grown, calculates what is missing and nothing twice, except
that the engine must first reproduce a label.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator

from nugget.display import Progress
from nugget.engines.engine_check import CheckingQueue
from nugget.engines.engine_settings import EngineConfig
from nugget.engines.outcome import Outcome
from nugget.engines.queue import EvaluationQueue
from nugget.engines.task import Task
from nugget.errors import NuggetError
from nugget.storage.database import Database
from nugget.storage.files import locked, read_sealed, refuse_link, write_sealed
from nugget.structures.io import CHARGE, SPIN, with_reference_keys, write_images

DATABASE, SETTINGS = "labels.db", "label.json"

_ENDING = ".labels"

# Settings of an engine that do not change its results.
_FREE = ("scratch", "keep_scratch", "time_limit", "retries", "max_failures", "verify")


@dataclass(frozen=True)
class Failure:
    """A structure without a label."""

    index: int
    formula: str
    kind: str
    reason: str


@dataclass(frozen=True)
class LabelReport:
    """What `label` did; plain data."""

    output: str
    directory: str
    structures: int
    labelled: int
    calculated_now: int
    failures: list[Failure]
    engine_seconds: float
    engine_check: str | None = None  # the first check of the engine, if there was one

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def directory_of(output: Path) -> Path:
    """Where the calculations of an output file are recorded."""
    return output.with_name(output.name + _ENDING)


def output_of(directory: Path) -> Path:
    """The inverse of `directory_of`."""
    return directory.with_name(directory.name.removesuffix(_ENDING))


def label(
    images: Sequence[Atoms],
    engine: EngineConfig,
    output: Path,
    workers: int = 1,
    *,
    retry: bool = False,
    reference_keys: bool = False,
    progress: Progress | None = None,
) -> LabelReport:
    """Evaluate all structures and write those with results, in their order, to `output`.

    `retry` repeats calculations that failed in an earlier run. With `reference_keys` the results
    are written as REF_energy, REF_forces and so on. A structure with info["total_charge"] or
    info["total_spin"] (2S + 1) is calculated with these instead of the engine's settings. What
    `info` and `arrays` of a structure hold is kept, except for earlier results.
    """
    folder = directory_of(output)
    Task.of(engine).check()  # settings that cannot work leave nothing behind
    refuse_link(folder)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        _check(folder, engine)
        write_sealed(folder / SETTINGS, {"engine": engine.model_dump(mode="json")})
        database = Database(folder / DATABASE)
        if not database.path.exists():
            Database.create(database.path, {})
        keys = [structure_key(atoms) for atoms in images]
        known = _known(database)
        if retry:
            known = {key: row for key, row in known.items() if _is_good(row)}
        every = dict(zip(keys, images, strict=True))
        missing = {key: atoms for key, atoms in every.items() if key not in known}
        count, checked = 0, None
        for own, part in _by_charge(missing, engine):
            before = _recorded(every, known, own, engine)
            with EvaluationQueue(own, workers, directory=folder) as queue:
                checking = CheckingQueue(queue, own, folder, before, database.versions())
                count += _work(part, database, checking, own.max_failures, progress)
                checked = checked or checking.report
        known = _known(database)
    rows = [known[key] for key in keys]
    good = [
        _with_results(atoms, row[0])
        for atoms, row in zip(images, rows, strict=True)
        if _is_good(row)
    ]
    if good:
        if reference_keys:
            good = with_reference_keys(good, engine.charge, engine.spin)
        write_images(output, good)
    failures = [
        Failure(k, atoms.get_chemical_formula(), str(row[1]["failure"]), str(row[2]["reason"]))
        for k, (atoms, row) in enumerate(zip(images, rows, strict=True))
        if "failure" in row[1]
    ]
    seconds = sum(float(row[1]["seconds"]) for row in known.values())
    return LabelReport(
        str(output), str(folder), len(images), len(good), count, failures, seconds,
        None if checked is None else str(checked),
    )  # fmt: skip


def structure_key(atoms: Atoms) -> str:
    """Text that is the same for the same elements, positions, cell and periodicity."""
    digest = hashlib.sha256()
    for array in (atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc):
        digest.update(np.ascontiguousarray(array).tobytes())
    for name in ("initial_magmoms", "initial_charges"):
        if name in atoms.arrays:
            digest.update(np.ascontiguousarray(atoms.arrays[name]).tobytes())
    for name in (CHARGE, SPIN):
        if name in atoms.info:
            digest.update(f"{name}={int(atoms.info[name])}".encode())
    return f"structure_{digest.hexdigest()[:32]}"  # never text that looks like a number


def _by_charge(
    missing: dict[str, Atoms], engine: EngineConfig
) -> list[tuple[EngineConfig, dict[str, Atoms]]]:
    """Structures of equal charge and spin, and the engine's settings for them."""
    groups: dict[tuple[int, int | None], dict[str, Atoms]] = {}
    for key, atoms in missing.items():
        spin = atoms.info.get(SPIN, engine.spin)
        own = int(atoms.info.get(CHARGE, engine.charge)), None if spin is None else int(spin)
        groups.setdefault(own, {})[key] = atoms
    return [
        (engine.model_copy(update={"charge": charge, "spin": spin}), part)
        for (charge, spin), part in groups.items()
    ]


Row = tuple[Atoms, dict[str, Any], dict[str, Any]]


def _recorded(
    images: dict[str, Atoms], known: dict[str, Row], own: EngineConfig, engine: EngineConfig
) -> Atoms | None:
    """A structure of the file that has a label with these settings already."""
    good = {key: images[key] for key, row in known.items() if key in images and _is_good(row)}
    for settings, part in _by_charge(good, engine):
        if settings == own:
            return known[next(iter(part))][0]
    return None


def _is_good(row: Row) -> bool:
    return "failure" not in row[1]


def _known(database: Database) -> dict[str, Row]:
    """The last row of each structure."""
    rows = database.rows()
    if not all({"structure", "seconds"} <= row[1].keys() for row in rows):
        raise NuggetError(f"{database.path} has other columns than those of `nugget label`.")
    return {str(row[1]["structure"]): row for row in rows}


def _work(
    missing: dict[str, Atoms],
    database: Database,
    queue: CheckingQueue,
    most: int,
    progress: Progress | None,
) -> int:
    """Evaluate what is missing; `most` failures in a row end the run."""
    waiting = list(missing.items())
    running: dict[int, str] = {}
    done = in_a_row = 0
    while waiting or running:
        while waiting and len(queue) < queue.width:
            key, atoms = waiting.pop(0)
            number = done + len(running)
            running[number] = key
            queue.submit(number, _bare(atoms))
        number, outcome = queue.next()
        _record(database, running.pop(number), outcome)
        done += 1
        in_a_row = 0 if outcome.ok else in_a_row + 1
        if progress is not None:
            progress(done, len(missing))
        if in_a_row >= most and (waiting or running):
            raise NuggetError(
                f"The engine failed {in_a_row} times in a row, last with {outcome.failure}: "
                f"{outcome.reason.rstrip('.')}. Correct its settings and run the command again "
                "with --retry."
            )
    return done


def _bare(atoms: Atoms) -> Atoms:
    """The structure without results and without what `info` holds."""
    bare = atoms.copy()
    bare.calc, bare.info = None, {}
    return bare


def _record(database: Database, key: str, outcome: Outcome) -> None:
    pairs: dict[str, Any] = {"structure": key, "seconds": outcome.seconds}
    if outcome.failure is not None:
        pairs["failure"] = outcome.failure
    database.write(outcome.atoms, pairs, {"reason": outcome.reason})


def _with_results(atoms: Atoms, labelled: Atoms) -> Atoms:
    copy = atoms.copy()
    # A structure that the engine relaxed has other positions and perhaps another cell.
    copy.set_cell(labelled.cell)
    copy.positions = labelled.positions
    copy.calc = SinglePointCalculator(copy, **labelled.calc.results)
    return copy


def _check(folder: Path, engine: EngineConfig) -> None:
    """Labels of one file come from one engine with one set of options."""
    if not (folder / SETTINGS).exists():
        return
    old = EngineConfig.model_validate(
        read_sealed(folder / SETTINGS, f"remove {folder} and calculate the labels again")["engine"]
    )
    for name in EngineConfig.model_fields:
        before, now = getattr(old, name), getattr(engine, name)
        if name not in _FREE and before != now:
            raise NuggetError(
                f"{folder} holds labels with another engine.{name} ({before}, now {now}); choose "
                "another output file."
            )
