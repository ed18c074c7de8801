"""A search on disk: one directory with an ASE database, the settings, a log and a lock.

The database is the search: model, weights and calibration are made again from its rows, in order.
Each row is one transaction, so a killed search loses at most the calculations in flight. Structures
in flight are in a file of their own: the database holds only evaluations.
"""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Literal

import ase.db
import numpy as np
from ase import Atoms
from ase.io.jsonio import decode, encode
from numpy.typing import NDArray

from nugget.errors import NuggetError
from nugget.search.config import Config, read_config, write_config
from nugget.structures.files import locked, write_atomically

DATABASE, SETTINGS, LOG = "search.db", "config.toml", "search.log"
PENDING, STATUS = "pending.json", "status.json"
UNFINISHED = -1


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
    engine_seconds: float = 0.0
    surrogate_seconds: float = 0.0
    proposal: int = UNFINISHED  # order of proposal
    n_observed: int = UNFINISHED  # evaluations that were complete when it was proposed
    proposed_positions: NDArray[np.float64] | None = None  # if the engine moved the atoms

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
        # ASE would wait for ever for the lock file of a process that was killed; ours is `locked`.
        self._database = ase.db.connect(directory / DATABASE, use_lock_file=False)

    @classmethod
    def create(cls, directory: Path, config: Config) -> Store:
        """A new search; a directory that already holds one is refused."""
        cls.check_free(directory)
        directory.mkdir(parents=True, exist_ok=True)
        write_atomically(directory / SETTINGS, write_config(config))
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

    @classmethod
    def open(cls, directory: Path) -> Store:
        """An existing search."""
        if not (directory / SETTINGS).exists():
            raise NuggetError(f"{directory} holds no search ({SETTINGS} is missing).")
        return cls(directory)

    def config(self) -> Config:
        """The settings that the search was started with."""
        return read_config(self.directory / SETTINGS)

    def append(self, record: Record) -> None:
        """Write one evaluation."""
        pairs = {name: getattr(record, name) for name in _COLUMNS}
        pairs = {name: value for name, value in pairs.items() if value is not None}
        if record.failure:
            pairs["failed"] = True
        # Text goes into `data`: ASE refuses key-value pairs such as "nan" that look like numbers.
        data = {name: getattr(record, name) for name in _DATA}
        self._database.write(record.atoms, data=data, **pairs)

    def records(self) -> list[Record]:
        """All evaluations, in order."""
        return [_record(row) for row in self._database.select(sort="iteration")]

    def keep_pending(self, records: Sequence[Record]) -> None:
        """Replace the file of what is in flight; exact to the last bit."""
        path = self.directory / PENDING
        if records:
            write_atomically(path, encode([_pending_dict(record) for record in records]))
        else:
            path.unlink(missing_ok=True)

    @property
    def has_pending(self) -> bool:
        """Has `keep_pending` written anything?"""
        return (self.directory / PENDING).exists()

    def pending(self) -> list[Record]:
        """What was in flight when the search ended, in order of proposal."""
        if not self.has_pending:
            return []
        # A kill may have come between the database and this file.
        text = (self.directory / PENDING).read_text(encoding="utf-8")
        done = {record.proposal for record in self.records()}
        found = [_pending_record(entry) for entry in decode(text)]
        return [record for record in found if record.proposal not in done]

    def keep_end(self, end: End | None) -> None:
        """Write down how a run ended; None when the next one begins."""
        path = self.directory / STATUS
        if end is None:
            path.unlink(missing_ok=True)
        else:
            write_atomically(path, json.dumps(asdict(end), indent=1) + "\n")

    def end(self) -> End | None:
        """How the last run ended; None while one is under way, or after a kill."""
        try:
            return End(**json.loads((self.directory / STATUS).read_text(encoding="utf-8")))
        except FileNotFoundError:
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
_DATA = ("failure", "reason", "proposed_positions")
_COLUMNS = tuple(f.name for f in fields(Record) if f.name not in ("atoms", *_DATA))
_EXPECTED = tuple(name for name in _COLUMNS if name not in ("iteration", "engine_seconds"))


def _record(row: Any) -> Record:
    pairs = row.key_value_pairs
    columns = {name: pairs[name] for name in _COLUMNS if name in pairs}
    data = {name: row.data[name] for name in _DATA if name in row.data}
    return Record(atoms=row.toatoms(), **columns, **data)


def _pending_dict(record: Record) -> dict[str, Any]:
    bare = record.atoms.copy()
    bare.info = {}
    return {"structure": bare.todict(), **{name: getattr(record, name) for name in _EXPECTED}}


def _pending_record(entry: dict[str, Any]) -> Record:
    structure = entry["structure"]
    atoms = structure if isinstance(structure, Atoms) else Atoms.fromdict(structure)
    return Record(UNFINISHED, atoms, **{name: entry[name] for name in _EXPECTED})
