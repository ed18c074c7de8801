"""The outcomes of the searches of a campaign, one row each, and the tables of them.

An outcome is computed from the directory of its search and cached there.
"""

from __future__ import annotations

import contextlib
import csv
import io
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

from ase import Atoms

from nugget.errors import NuggetError
from nugget.search.knowledge import is_found, read_references
from nugget.search.record import EndStatus, Record, energy_of, lowest_steps
from nugget.search.search_settings import Config
from nugget.search.store import DATABASE, SETTINGS, Store
from nugget.storage.files import read_sealed, replacing, write_atomically, write_sealed
from nugget.systems.goal import Goal
from nugget.systems.system_settings import make_goal

RESULT = "result.json"


@dataclass(frozen=True)
class Outcome:
    """One search in numbers; energies in eV. Without a reference, `found` is None."""

    found: bool | None = None
    evaluations_to_solution: int | None = None
    evaluations: int = 0
    best_energy: float | None = None
    best_above_reference: float | None = None
    failures: int = 0
    engine_seconds: float = 0.0
    surrogate_seconds: float = 0.0
    first_reference_graph: int | None = None  # first evaluation with its bonds, at any energy
    error: str = ""  # why the search ended with an error


@dataclass(frozen=True)
class Row:
    """The outcome of the search with one setting and one seed."""

    setting: dict[str, str]
    seed: int
    outcome: Outcome


_COLUMNS = [field.name for field in fields(Outcome)]


def read_outcome(directory: Path) -> Outcome | None:
    """The outcome of a search that has ended; None while it has not.

    It is cached in the directory, and valid as long as the database is not newer.
    """
    kept = _kept(directory)
    if kept is not None:
        return kept
    if not (directory / SETTINGS).exists() or not (directory / DATABASE).exists():
        return None
    store = Store.open(directory)
    if not has_ended(store):
        return None
    outcome = examine(store)
    # A directory without write permission can still be read.
    with contextlib.suppress(NuggetError):
        keep(directory, outcome)
    return outcome


def examine(store: Store, config: Config | None = None) -> Outcome:
    """The outcome of a search at its present state; `config` may replace its settings."""
    config, records = config or store.config(), store.records()
    good = [record for record in records if record.ok]
    goal = make_goal(config.system)
    polished = lowest_steps(store.polish_steps(), goal)
    results = [(record.atoms, record.energy) for record in good]
    results += [(atoms, energy_of(atoms)) for atoms in polished.values()]
    best = goal.reached(results)
    references = read_references(config, store.directory)
    found, first, solution, above = None, None, None, None
    if references:
        tolerance = config.search.reference_tolerance
        first, solution = _hits(good, references, tolerance, goal)
        hits = (is_found(atoms, references, tolerance, goal) for atoms in polished.values())
        if solution is None and any(hits):
            solution = len(records)  # relaxed by the search, which ends with that
        found = solution is not None
        given = [one for one in references if one.calc and "energy" in one.calc.results]
        goals = [goal.value(one, energy_of(one)) for one in given]
        above = None if best is None or not goals else best - min(goals)
    return Outcome(
        found=found,
        evaluations_to_solution=solution,
        evaluations=len(records),
        best_energy=best,
        best_above_reference=above,
        failures=len(records) - len(good),
        engine_seconds=sum(record.engine_seconds for record in records),
        surrogate_seconds=sum(record.surrogate_seconds for record in records),
        first_reference_graph=first,
    )


def _hits(
    good: Sequence[Record], references: Sequence[Atoms], tolerance: float | None, goal: Goal
) -> tuple[int | None, int | None]:
    """First evaluations with a reference's graph, and with its energy too."""
    first = solution = None
    for record in good:
        if first is None and is_found(record.atoms, references, None, goal):
            first = record.iteration + 1
        if solution is None and is_found(record.atoms, references, tolerance, goal):
            solution = record.iteration + 1
    return first, solution


def has_ended(store: Store) -> bool:
    """Has the search come to its end, with final relaxations and the last check of its result?

    A search that only lacks the file with its end is run again, and ends at once.
    """
    end = store.end()
    return end is not None and end.status in (EndStatus.FINISHED, EndStatus.FOUND)


def keep(directory: Path, outcome: Outcome) -> None:
    """Cache the outcome in the search's directory."""
    # It can be computed again from the database, so there is no need to wait for the disk.
    write_sealed(directory / RESULT, asdict(outcome), sync=False)


def _kept(directory: Path) -> Outcome | None:
    file = directory / RESULT
    try:
        kept = Outcome(**read_sealed(file, ""))
        written = file.stat().st_mtime_ns
    except (FileNotFoundError, NuggetError, TypeError):  # damaged, or written by another version
        return None
    with contextlib.suppress(FileNotFoundError):  # a search may fail before it has a database
        if (directory / DATABASE).stat().st_mtime_ns > written:
            return None
    return kept


def write_csv(path: Path, rows: Sequence[Row]) -> None:
    """One row per search; floats keep all bits."""
    text = io.StringIO()
    keys = list(rows[0].setting) if rows else []
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow([*keys, "seed", *_COLUMNS])
    for row in rows:
        values = asdict(row.outcome)
        writer.writerow([*row.setting.values(), row.seed, *(_text(values[c]) for c in _COLUMNS)])
    write_atomically(path, text.getvalue())


def read_csv(path: Path) -> list[Row]:
    """The inverse of `write_csv`."""
    try:
        with open(path, newline="", encoding="utf-8") as file:
            lines = list(csv.DictReader(file))
    except OSError as error:
        raise NuggetError(f"{path} cannot be read: {error.strerror}.") from None
    if not lines:
        raise NuggetError(f"{path} holds no searches.")
    if missing := {"seed", *_COLUMNS} - set(lines[0]):
        lacking = ", ".join(sorted(missing))
        raise NuggetError(f"{path} is not a table of searches; it lacks {lacking}.")
    keys = [key for key in lines[0] if key not in {"seed", *_COLUMNS}]
    return [
        Row({key: line[key] for key in keys}, int(line["seed"]), _outcome(line)) for line in lines
    ]


def write_parquet(path: Path, rows: Sequence[Row]) -> None:
    """The same table as Parquet; needs pyarrow."""
    pyarrow, parquet = load_pyarrow()
    table = [{**row.setting, "seed": row.seed, **asdict(row.outcome)} for row in rows]
    with replacing(path) as partial:
        parquet.write_table(pyarrow.Table.from_pylist(table), partial)


def load_pyarrow() -> tuple[Any, Any]:
    """pyarrow and pyarrow.parquet; an error explains how to install them."""
    from importlib import import_module

    try:
        return import_module("pyarrow"), import_module("pyarrow.parquet")
    except ImportError:
        raise NuggetError(
            "--parquet needs pyarrow, which is not installed: pip install pyarrow, or leave it "
            "out and use results.csv."
        ) from None


def _text(value: Any) -> str:
    """Text of the table; empty for None, and on one line."""
    if value is None:
        return ""
    return " ".join(value.split()) if isinstance(value, str) else json.dumps(value)


def _outcome(line: Mapping[str, str]) -> Outcome:
    values = {name: json.loads(line[name].lower() or "null") for name in _COLUMNS[:-1]}
    return Outcome(**values, error=line["error"])
