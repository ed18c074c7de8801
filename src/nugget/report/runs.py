"""All runs below a directory: what they are, their state, their best energy, their evaluations.

Nothing is written or locked. A run that cannot be read is listed with the reason.
"""

from __future__ import annotations

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

from ase import Atoms

from nugget.campaign.campaign import CAMPAIGN, Campaign
from nugget.campaign.results import RESULT
from nugget.dataset import labelling
from nugget.dataset.build import DATABASE, PARTS, RECIPE, read_recipe
from nugget.errors import NuggetError
from nugget.onthefly import run_directory
from nugget.report.digest import informed
from nugget.report.minima import COUNT, Lowest
from nugget.report.search_verdict import reported
from nugget.search import store
from nugget.search.record import PolishStep, Record, energy_of
from nugget.search.search_settings import Config
from nugget.storage.database import Database
from nugget.storage.files import LOCK, alive, read_sealed, write_atomically
from nugget.systems.system_settings import make_goal

# Directories that belong to a run and contain no other runs.
_INNER = ("scratch", "dask-worker-space", "__pycache__")


@dataclass(frozen=True)
class Evaluation:
    """One call of an engine; energies in eV."""

    run: str
    kind: str
    number: int
    formula: str
    atoms: int
    energy: float | None = None
    energy_per_atom: float | None = None
    predicted: float | None = None  # by the model, before the evaluation
    uncertainty: float | None = None  # standard deviation of the prediction
    generator: str | None = None
    failure: str | None = None
    engine_seconds: float | None = None


@dataclass(frozen=True)
class Run:
    """A run in a few words and numbers."""

    path: str
    kind: str
    state: str
    formula: str = ""
    engine: str = ""
    evaluations: int = 0
    final_evaluations: int = 0  # of them in final relaxations, which the budget does not limit
    budget: int | None = None
    failures: int = 0
    best_energy: float | None = None  # eV, of the lowest structure
    best_per_atom: float | None = None  # eV/atom, of the lowest structure by this measure
    quantity: str = "energy"  # enthalpy under pressure
    engine_seconds: float = 0.0
    modified: float = 0.0  # seconds since 1970
    reason: str = ""
    rows: list[Evaluation] = field(default_factory=list, repr=False)
    best: Atoms | None = field(default=None, repr=False)  # the lowest structure

    def to_dict(self) -> dict[str, Any]:
        """Plain data, without evaluations and structure."""
        return {
            one.name: getattr(self, one.name)
            for one in fields(self)
            if one.name not in ("rows", "best")
        }


def find_runs(directory: Path) -> list[Run]:
    """All runs in a directory and below it, in the order of their paths."""
    if not directory.is_dir():
        raise NuggetError(f"{directory} is no directory.")
    return [_read(place, directory) for place in _places(directory)]


def _places(directory: Path) -> Iterator[Path]:
    for folder, inner, files in os.walk(directory):
        inner[:] = sorted(name for name in inner if name not in _INNER and name[:1] != ".")
        if any(marker in files for marker, _, _ in _KINDS):
            yield Path(folder)


def _read(place: Path, top: Path) -> Run:
    _, kind, read = next(entry for entry in _KINDS if (place / entry[0]).exists())
    name = place.relative_to(top).as_posix() or "."
    name = top.name if name == "." else name
    files = [file for file in place.iterdir() if file.is_file() and file.suffix != ".html"]
    modified = max((file.stat().st_mtime for file in files), default=0)
    try:
        facts = read(place, name)
    except NuggetError as error:
        facts = {"state": "unreadable", "reason": str(error)}
    except (OSError, KeyError, TypeError, ValueError, AttributeError) as error:
        facts = {"state": "unreadable", "reason": f"{type(error).__name__}: {error}"}
    return Run(path=name, modified=modified, **{"kind": kind, **facts})


def _numbers(rows: list[Evaluation], images: Sequence[Atoms]) -> dict[str, Any]:
    """What the evaluations of any run tell; `images` are their structures."""
    labelled = [k for k, row in enumerate(rows) if row.energy_per_atom is not None]
    lowest = min(labelled, key=lambda k: rows[k].energy_per_atom or 0.0, default=None)
    energies = [row.energy for row in rows if row.energy is not None]
    per_atom = [row.energy_per_atom for row in rows if row.energy_per_atom is not None]
    formulas = sorted({row.formula for row in rows})
    shown = formulas[0] if len(formulas) == 1 else f"{len(formulas)} formulas" if formulas else ""
    return {
        "formula": shown,
        "evaluations": len(rows),
        "failures": sum(row.failure is not None for row in rows),
        "best_energy": min(energies) if energies and len(formulas) == 1 else None,
        "best_per_atom": min(per_atom, default=None),
        "engine_seconds": sum(row.engine_seconds or 0.0 for row in rows),
        "rows": rows,
        "best": None if lowest is None else images[lowest],
    }


def _row(run: str, kind: str, number: int, atoms: Atoms, **more: Any) -> Evaluation:
    results = {} if atoms.calc is None else atoms.calc.results
    energy = results.get("energy")
    return Evaluation(
        run,
        kind,
        number,
        atoms.get_chemical_formula(),
        len(atoms),
        None if energy is None else float(energy),
        None if energy is None else float(energy) / len(atoms),
        **more,
    )


def _state(place: Path, record: str, *results: Path) -> str:
    """Finished if a result is not older than the record; else what the last process does.

    Of a process on another machine nothing is known, so its run counts as stopped.
    """
    if any(path.exists() and not _older(path, place / record) for path in results):
        return "finished"
    try:
        pid = int(json.loads((place / LOCK).read_text(encoding="utf-8"))["pid"])
    except (OSError, ValueError, TypeError, KeyError):
        return "stopped"
    return "running" if alive(pid) else "stopped"


def _older(path: Path, other: Path) -> bool:
    return other.exists() and path.stat().st_mtime_ns < other.stat().st_mtime_ns


def _search(place: Path, name: str) -> dict[str, Any]:
    reader = store.Reader(place)
    config, (records, steps), state = reader.config(), reader.news(), reader.state()
    rows = [
        _row(
            name,
            "search",
            record.iteration,
            record.atoms,
            predicted=record.predicted,
            uncertainty=None if record.std is None else record.scale * record.std,
            generator=record.generator,
            failure=record.failure or None,
            engine_seconds=record.engine_seconds,
        )
        for record in records
    ]
    rows += [
        _row(
            name,
            "final relaxation",
            len(records) + k,
            step.atoms,
            failure=step.failure or None,
            engine_seconds=step.engine_seconds,
        )
        for k, step in enumerate(steps)
    ]
    images = [*(r.atoms for r in records), *(step.atoms for step in steps)]
    return {
        **_numbers(rows, images),
        **_lowest(place, config, records, steps),
        "final_evaluations": len(steps),
        "formula": config.system.title,
        "engine": config.engine.name,
        "budget": config.search.budget,
        "state": state.doing,
        "reason": state.reason,
    }


def _lowest(
    place: Path, config: Config, records: Sequence[Record], steps: Sequence[PolishStep]
) -> dict[str, Any]:
    """The structure that the search reports, with its energy, or enthalpy under pressure."""
    goal = informed(make_goal(config.system), records, steps)
    lowest = Lowest(goal, COUNT)
    lowest.add(records)
    best = reported(place, goal, lowest.chosen(records, steps))
    if best is None:
        return {}
    # Energies of different compositions cannot be compared.
    if goal.hull is not None or config.system.vary is not None:
        return {"best": best.atoms, "best_energy": None, "best_per_atom": None}
    per_atom = goal.enthalpy(best.atoms, energy_of(best.atoms))
    return {
        "best": best.atoms,
        "best_energy": per_atom * len(best.atoms),
        "best_per_atom": per_atom,
        "quantity": goal.quantity,
    }


def _campaign(place: Path, name: str) -> dict[str, Any]:
    """The searches of a campaign are listed below it."""
    campaign = Campaign.resume(place, trust=True)  # none of its code is run
    ended = all((member.directory / RESULT).exists() for member in campaign.members)
    return {
        "state": "finished" if ended else _state(place, CAMPAIGN),
        "formula": campaign.base.system.title,
        "engine": campaign.base.engine.name,
    }


def _on_the_fly(place: Path, name: str) -> dict[str, Any]:
    data = read_sealed(place / run_directory.RUN, "start the run again")
    kind = str(data.get("kind"))
    outcomes = run_directory.read_outcomes(place / run_directory.CALLS)
    rows = [
        _row(
            name,
            kind,
            k,
            outcome.atoms,
            failure=outcome.failure,
            engine_seconds=outcome.seconds,
        )
        for k, outcome in enumerate(outcomes)
    ]
    ends = (place / "result.json", place / "learned.model")
    settings = data.get("settings", {})
    return {
        **_numbers(rows, [outcome.atoms for outcome in outcomes]),
        "kind": kind,
        "engine": settings.get("engine", {}).get("name", ""),
        "budget": settings.get("max_calls"),
        "state": _state(place, run_directory.CALLS, *ends),
    }


def _of_database(kind: str, name: str, path: Path) -> dict[str, Any]:
    """The numbers of labelled structures."""
    if not path.exists():
        return _numbers([], [])
    rows = [*Database(path, read_only=True).rows()]
    evaluations = [
        _row(
            name,
            kind,
            k,
            atoms,
            generator=pairs.get("generator"),
            failure=pairs.get("failure"),
            engine_seconds=pairs.get("seconds"),
        )
        for k, (atoms, pairs, _) in enumerate(rows)
    ]
    return _numbers(evaluations, [atoms for atoms, _, _ in rows])


def _data_set(place: Path, name: str) -> dict[str, Any]:
    recipe = read_recipe(place)
    numbers = _of_database("dataset", name, place / DATABASE)
    state = _state(place, DATABASE, place / f"{PARTS[0]}.extxyz")
    return {**numbers, "engine": recipe.engine, "budget": recipe.count, "state": state}


def _labels(place: Path, name: str) -> dict[str, Any]:
    settings = read_sealed(place / labelling.SETTINGS, "calculate the labels again")
    numbers = _of_database("label", name, place / labelling.DATABASE)
    state = _state(place, labelling.DATABASE, labelling.output_of(place))
    return {**numbers, "engine": settings["engine"]["name"], "state": state}


# The file that marks a run, its kind, and what reads it.
_KINDS: tuple[tuple[str, str, Callable[[Path, str], dict[str, Any]]], ...] = (
    (CAMPAIGN, "campaign", _campaign),
    (run_directory.RUN, "run", _on_the_fly),
    (store.DATABASE, "search", _search),
    (RECIPE, "dataset", _data_set),
    (labelling.SETTINGS, "label", _labels),
)


# --------------------------------------------------------------------------- tables


def write_evaluations(path: Path, runs: list[Run]) -> int:
    """Write all evaluations as CSV or Parquet, as the ending of the name says; their number."""
    rows = [asdict(row) for run in runs for row in run.rows]
    names = [one.name for one in fields(Evaluation)]
    if path.suffix == ".csv":
        text = io.StringIO()
        writer = csv.DictWriter(text, names, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(path, text.getvalue())
    elif path.suffix == ".parquet":
        _write_parquet(path, names, rows)
    else:
        raise NuggetError(f"{path}: evaluations are written as .csv or .parquet.")
    return len(rows)


def _write_parquet(path: Path, names: list[str], rows: list[dict[str, Any]]) -> None:
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError:
        raise NuggetError(
            f"{path}: Parquet needs the package pyarrow (pip install pyarrow); or write .csv."
        ) from None
    texts, whole = ("run", "kind", "formula", "generator", "failure"), ("number", "atoms")
    kinds = {name: pyarrow.float64() for name in names}
    kinds |= {name: pyarrow.string() for name in texts}
    kinds |= {name: pyarrow.int64() for name in whole}
    schema = pyarrow.schema(list(kinds.items()))
    buffer = io.BytesIO()
    parquet.write_table(pyarrow.Table.from_pylist(rows, schema=schema), buffer)
    write_atomically(path, buffer.getvalue())
