"""A search on disk: one directory with an ASE database, the settings, a log and a lock.

The database is the search: model, weights and calibration are made again from its rows, in order.
Each row is one transaction, so a killed search loses at most the calculations in flight. Structures
in flight are in a file of their own: the database holds only evaluations, and the settings that
they were made with.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

from ase import Atoms
from ase.io.jsonio import decode, encode

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.search.config import (
    Config,
    changed_settings,
    make_config,
    read_config,
    write_config,
)
from nugget.search.polish_step import POLISH, PolishStep
from nugget.structures.database import Database
from nugget.structures.files import locked, write_atomically
from nugget.structures.sealed import read_sealed, write_sealed

DATABASE, SETTINGS, LOG = "search.db", "config.toml", "search.log"
PENDING, STATUS = "pending.json", "status.json"
BEST, MINIMA, CIF = "best.extxyz", "minima.extxyz", "minima.cif"
UNFINISHED = -1

#: Why a structure was evaluated: before there was a model, to find a lower one, or to learn about
#: what is unlike the known ones when nothing promises to be lower.
Purpose = Literal["start", "improve", "explore"]


@dataclass(frozen=True, eq=False)
class Record:
    """One evaluation: the proposal, the prediction, the result.

    Evaluations may overtake each other. `proposal` and `n_observed` of all records say what was
    proposed when, and from what. One at a time, both equal `iteration`.
    """

    iteration: int  # order of completion; UNFINISHED while it is in flight
    atoms: Atoms  # with energy and forces, unless it failed
    generator: str
    failure: str = ""  # empty, or the kind of failure
    reason: str = ""
    predicted: float | None = None  # mean of the model at the time, eV
    std: float | None = None  # its standard deviation before rescaling, eV
    scale: float = 1.0  # factor of the online calibration at the time
    kappa: float = 0.0
    acquisition: float | None = None
    purpose: Purpose = "start"
    engine_seconds: float = 0.0
    surrogate_seconds: float = 0.0
    proposal: int = UNFINISHED  # order of proposal
    n_observed: int = UNFINISHED  # evaluations that were complete when it was proposed
    proposed_positions: Floats | None = None  # if the engine moved the atoms
    draws: str = ""  # what candidates without parents met before; see `stop`
    walkers: Floats | None = None  # where walkers stood when it was proposed

    def __post_init__(self) -> None:
        for name in ("proposal", "n_observed"):
            if getattr(self, name) == UNFINISHED:
                object.__setattr__(self, name, self.iteration)

    @property
    def proposed(self) -> Atoms:
        """The structure as it was proposed, without results."""
        atoms = self.atoms.copy()
        if self.proposed_positions is not None:
            atoms.positions = self.proposed_positions
        return atoms

    @property
    def ok(self) -> bool:
        return not self.failure

    @property
    def energy(self) -> float:
        """Energy in eV, of an evaluation that succeeded."""
        return float(self.atoms.calc.results["energy"])


Ended = Literal["finished", "found", "interrupted", "failed"]


@dataclass(frozen=True)
class End:
    """How the last run of a search ended. A run that was killed leaves none."""

    status: Ended
    reason: str
    evaluations: int
    budget: int

    @property
    def exhausted(self) -> bool:
        """Nothing new was left to evaluate, although the budget was not used up."""
        return self.status == "finished" and self.evaluations < self.budget


class Store:
    """The directory of one search."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._database = Database(directory / DATABASE)

    @classmethod
    def create(cls, directory: Path, config: Config) -> Store:
        """A new search; a directory that already holds one is refused."""
        cls.check_free(directory)
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / SETTINGS, write_config(config))
        Database.create(directory / DATABASE, {"settings": config.model_dump()})
        return cls(directory)

    @staticmethod
    def check_free(directory: Path) -> None:
        """Refuse a place where there is something already."""
        if directory.is_file():
            raise NuggetError(f"{directory} is a file; choose another directory with --out.")
        if (directory / DATABASE).exists() or (directory / SETTINGS).exists():
            raise NuggetError(
                f"{directory} already holds a search: continue it with `nugget search --resume "
                f"{directory}`, or choose another directory with --out or another --seed."
            )
        if (directory / BEST).exists():
            raise NuggetError(f"{directory / BEST} exists already; choose another --out.")

    @classmethod
    def open(cls, directory: Path) -> Store:
        """An existing search; of its settings and its database, one may be missing."""
        settings, database = directory / SETTINGS, directory / DATABASE
        known = database.exists() and not settings.exists()
        if known and (then := Database(database).metadata().get("settings")):
            write_atomically(settings, write_config(make_config(then, str(database))))
        if not settings.exists():
            raise NuggetError(f"{directory} holds no search ({SETTINGS} is missing).")
        if not database.exists():  # killed before the first evaluation
            Database.create(database, {"settings": read_config(settings).model_dump()})
        return cls(directory)

    def config(self) -> Config:
        """The settings that the search was started with; budget and limits may have changed."""
        file = self.directory / SETTINGS
        then = self._database.metadata().get("settings")
        again = f"remove {file}, and the next --resume makes it again from {DATABASE}"
        try:
            config = read_config(file)
        except NuggetError as error:
            raise NuggetError(f"{error} To repair it, {again}." if then else str(error)) from None
        if then is not None:
            wrong = changed_settings(config, make_config(then, f"{file.with_name(DATABASE)}"))
            if wrong:
                raise NuggetError(
                    f"{file} was changed after the search had begun: {'; '.join(wrong[:3])}. Put "
                    f"it back ({again}), or start another search with it."
                )
        return config

    def append(self, record: Record) -> None:
        """Write one evaluation."""
        pairs = {name: getattr(record, name) for name in _COLUMNS}
        pairs = {name: value for name, value in pairs.items() if value is not None}
        if record.failure:
            pairs["failed"] = True
        # Text goes into `data`: ASE refuses key-value pairs such as "nan" that look like numbers.
        data = {name: getattr(record, name) for name in _DATA}
        self._database.write(record.atoms, pairs, data)

    def records(self) -> list[Record]:
        """All evaluations, in order."""
        try:
            rows = self._database.rows()
            records = [read_record(*row) for row in rows if POLISH not in row[1]]
        except (KeyError, TypeError) as error:
            raise NuggetError(f"{self._database.path} is not a search's: {error}.") from error
        for wrong in _impossible(records):
            raise NuggetError(
                f"{self._database.path} is damaged: {wrong}; bring it back from a copy, or begin "
                "anew elsewhere."
            )
        return records

    def append_polish(self, step: PolishStep) -> None:
        """Write one evaluation of a relaxation at the end of the search."""
        self._database.write(*step.row())

    def polish_steps(self) -> list[PolishStep]:
        """All evaluations of such relaxations, in the order of writing."""
        rows = [row for row in self._database.rows() if POLISH in row[1]]
        try:
            return [PolishStep.of(*row) for row in rows]
        except (KeyError, TypeError) as error:
            raise NuggetError(f"{self._database.path} is not a search's: {error}.") from error

    def keep_pending(self, records: Sequence[Record]) -> None:
        """Replace the file of what is in flight; exact to the last bit."""
        path = self.directory / PENDING
        if records:
            entries = encode([_pending_dict(record) for record in records])
            write_sealed(path, {"records": json.loads(entries)})
        else:
            path.unlink(missing_ok=True)

    @property
    def has_pending(self) -> bool:
        return (self.directory / PENDING).exists()

    def pending(self) -> list[Record]:
        """What was in flight when the search ended, in order of proposal."""
        if not self.has_pending:
            return []
        path = self.directory / PENDING
        remedy = "remove it, and the structures that were in flight are proposed anew"
        entries = read_sealed(path, remedy).get("records")
        try:
            found = [_pending_record(entry) for entry in decode(json.dumps(entries))]
        except Exception as error:  # ASE's parsing may stumble over anything
            raise NuggetError(f"{path} is damaged: {remedy}.") from error
        # A kill may have come between the database and this file.
        done = {record.proposal for record in self.records()}
        return [record for record in found if record.proposal not in done]

    def keep_end(self, end: End | None) -> None:
        """Write down how a run ended; None when the next one begins."""
        path = self.directory / STATUS
        if end is None:
            path.unlink(missing_ok=True)
        else:
            write_sealed(path, asdict(end))

    def end(self) -> End | None:
        """How the last run ended; None while one is under way, after a kill, or if it is damaged.

        Nothing depends on it: a search that is run again at its end ends at once.
        """
        try:
            return End(**read_sealed(self.directory / STATUS, ""))
        except (FileNotFoundError, NuggetError, TypeError):
            return None

    def log(self, text: str) -> None:
        """Append a line with the time to the log."""
        stamp = time.strftime("%Y-%m-%d %H:%M:%S")
        with open(self.directory / LOG, "a", encoding="utf-8") as file:
            file.write(f"{stamp}  {text}\n")

    def locked(self) -> AbstractContextManager[None]:
        """Only one process at a time works on a search."""
        return locked(self.directory)


# Where a record is kept besides its structure: in columns, in `data`, and while it is pending.
_DATA = ("failure", "reason", "proposed_positions", "draws", "walkers")
_COLUMNS = tuple(f.name for f in fields(Record) if f.name not in ("atoms", *_DATA))
_EXPECTED = tuple(name for name in _COLUMNS if name not in ("iteration", "engine_seconds"))


def _impossible(records: Sequence[Record]) -> Iterator[str]:
    """What no search can have written."""
    if [record.iteration for record in records] != list(range(len(records))):
        yield "evaluations are missing or there twice"
    for record in records:
        if record.ok and (record.atoms.calc is None or "energy" not in record.atoms.calc.results):
            yield f"evaluation {record.iteration} has neither an energy nor a failure"


def read_record(atoms: Atoms, pairs: dict[str, Any], data: dict[str, Any]) -> Record:
    columns = {name: pairs[name] for name in _COLUMNS if name in pairs}
    text = {name: data[name] for name in _DATA if name in data}
    return Record(atoms=atoms, **columns, **text)


def _pending_dict(record: Record) -> dict[str, Any]:
    bare = record.atoms.copy()
    bare.info = {}
    kept = {name: getattr(record, name) for name in (*_EXPECTED, "draws", "walkers")}
    return {"structure": bare.todict(), **kept}


def _pending_record(entry: dict[str, Any]) -> Record:
    structure = entry["structure"]
    atoms = structure if isinstance(structure, Atoms) else Atoms.fromdict(structure)
    expected = {name: entry[name] for name in _EXPECTED}
    later = (entry.get("draws", ""), entry.get("walkers"))  # versions before have none
    return Record(UNFINISHED, atoms, draws=later[0], walkers=later[1], **expected)
