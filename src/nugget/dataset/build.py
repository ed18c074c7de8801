"""Build a data set: many different structures, labelled by an engine and split for training.

Each labelled candidate (see `recipe.Stream`) is one row of an ASE database, written in one
transaction. The data set consists of the first candidates that were evaluated successfully, are
valid and have a new bond graph. If a run is killed, only the evaluations in flight are lost; the
next run continues with the same candidates.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget.dataset.recipe import FAILED, Recipe, Stream, gathered_stream, generated_stream
from nugget.display import Progress
from nugget.engines.engine_check import CheckingQueue
from nugget.engines.engine_settings import EngineConfig
from nugget.engines.outcome import Outcome
from nugget.engines.queue import EvaluationQueue
from nugget.errors import NuggetError
from nugget.storage.database import Database
from nugget.storage.files import locked, read_sealed, replacing, write_sealed
from nugget.structures.io import read_images, write_images

DATABASE, RECIPE, CANDIDATES = "dataset.db", "recipe.json", "candidates.extxyz"
PARTS = ("train", "validation", "test")
_HOPELESS = 10  # failures without a success, after which the engine itself must be at fault


@dataclass(frozen=True)
class Report:
    """The result of `build` as plain data."""

    directory: str
    wanted: int
    structures: int
    parts: dict[str, int]
    streams: dict[str, dict[str, int]]  # verdicts by stream
    failures: dict[str, int]  # kinds of failures of the engine
    labelled_now: int
    labelled_before: int
    engine_seconds: float
    engine_check: str | None = None  # the first check of the engine, if there was one

    @property
    def complete(self) -> bool:
        return self.structures == self.wanted

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "complete": self.complete}


def build(
    directory: str | Path, recipe: Recipe, workers: int = 1, progress: Progress | None = None
) -> Report:
    """Build the data set that `recipe` describes in `directory`, or continue it.

    It can be interrupted at any time and called again: finished labels are kept. A larger `count`
    extends a finished data set; any other change of the recipe is refused.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        _check(folder, recipe)
        streams = _streams(folder, recipe)
        database = Database(folder / DATABASE)
        labelled = dict(map(_labelled, _rows(database)))
        before = len(labelled)

        def advance() -> None:
            if progress is not None:
                progress(sum(len(s.accepted) for s in streams), recipe.count)

        shared = {name: getattr(recipe, name) for name in ("options", "time_limit", "relax_steps")}
        engine = EngineConfig(name=recipe.engine, **shared)
        with EvaluationQueue(engine, workers, directory=folder) as queue:
            # Written only after the engine has started, so that an invalid recipe leaves no files.
            write_sealed(folder / RECIPE, recipe.to_dict())
            if not database.path.exists():
                Database.create(database.path, {})
            good = (one for one in labelled.values() if isinstance(one, Atoms))
            first = next(good, None)
            checking = CheckingQueue(queue, engine, folder, first, database.versions())
            now = _work(streams, labelled, database, checking, advance)
        parts = _split(recipe, [pair for s in streams for pair in s.accepted])
        for name, images in parts.items():
            _write(folder / f"{name}.extxyz", images)
        columns = [pairs for _, pairs in _rows(database)]
    kinds = [str(pairs["failure"]) for pairs in columns if "failure" in pairs]
    return Report(
        directory=str(folder),
        wanted=recipe.count,
        structures=sum(len(images) for images in parts.values()),
        parts={name: len(images) for name, images in parts.items()},
        streams={s.name: s.counts for s in streams},
        failures={kind: kinds.count(kind) for kind in sorted(set(kinds))},
        labelled_now=now,
        labelled_before=before,
        engine_seconds=sum(float(pairs["seconds"]) for pairs in columns),
        engine_check=None if checking.report is None else str(checking.report),
    )


def read_recipe(directory: str | Path) -> Recipe:
    """The recipe of an existing data set."""
    path = Path(directory) / RECIPE
    if not path.is_file():
        raise NuggetError(f"{directory} holds no data set ({RECIPE} is missing).")
    return Recipe.from_dict(
        read_sealed(path, "restore it from a copy, or start in another directory")
    )


def _work(
    streams: list[Stream],
    labelled: dict[tuple[str, int], Atoms | str],
    database: Database,
    queue: CheckingQueue,
    advance: Callable[[], None],
) -> int:
    """Label candidates until every stream is complete; returns the number of new labels."""
    running: dict[int, tuple[Stream, int]] = {}
    submitted = finished = failed = 0
    while True:
        while len(queue) < queue.width and (following := _next(streams, labelled)) is not None:
            stream, k, atoms = following
            running[submitted] = (stream, k)
            queue.submit(submitted, atoms)
            submitted += 1
        advance()
        if not running:
            return finished
        key, outcome = queue.next()
        stream, k = running.pop(key)
        _record(database, stream, k, outcome)
        finished += 1
        failed += not outcome.ok
        if finished == failed == _HOPELESS:
            raise NuggetError(
                f"The engine failed {failed} times out of {finished}, last with "
                f"{outcome.failure}: {outcome.reason}."
            )
        stream.take(k, outcome.atoms if outcome.ok else FAILED)


def _next(
    streams: list[Stream], labelled: dict[tuple[str, int], Atoms | str]
) -> tuple[Stream, int, Atoms] | None:
    """The next candidate without a label, from the stream that is least complete."""
    for stream in sorted(streams, key=lambda s: len(s.accepted) / max(s.wanted, 1)):
        while (candidate := stream.next()) is not None:
            k, atoms = candidate
            if (stream.name, k) not in labelled:
                return stream, k, atoms
            stream.take(k, labelled[stream.name, k])
    return None


def _record(database: Database, stream: Stream, k: int, outcome: Outcome) -> None:
    pairs: dict[str, Any] = {
        "stream": stream.name,
        "candidate": k,
        "generator": str(outcome.atoms.info["generator"]),
        "seconds": outcome.seconds,
    }
    if outcome.failure is not None:
        pairs["failure"] = outcome.failure.value  # plain text, for the digest of the row
    database.write(outcome.atoms, pairs, {"reason": outcome.reason})


def _rows(database: Database) -> list[tuple[Atoms, dict[str, Any]]]:
    """Structures and columns of all rows; none if there is no database yet."""
    if not database.path.exists():
        return []
    rows = [(atoms, pairs) for atoms, pairs, _ in database.rows()]
    columns = {"stream", "candidate", "generator", "seconds"}
    if not all(columns <= pairs.keys() for _, pairs in rows):
        raise NuggetError(
            f"{database.path} is not the database of a data set: columns are missing."
        )
    return rows


def _labelled(row: tuple[Atoms, dict[str, Any]]) -> tuple[tuple[str, int], Atoms | str]:
    """Stream, number and result of a candidate."""
    atoms, pairs = row
    atoms.info = {name: pairs[name] for name in ("generator", "stream", "candidate")}
    return (pairs["stream"], pairs["candidate"]), FAILED if "failure" in pairs else atoms


def _streams(folder: Path, recipe: Recipe) -> list[Stream]:
    if recipe.sources:
        return [gathered_stream(recipe, _candidates(folder, recipe))]
    shares = np.full(len(recipe.formulas), recipe.count // len(recipe.formulas))
    shares[: recipe.count % len(shares)] += 1
    return [
        generated_stream(recipe, index, formula, int(wanted))
        for index, (formula, wanted) in enumerate(zip(recipe.formulas, shares, strict=True))
    ]


def _candidates(folder: Path, recipe: Recipe) -> list[Atoms]:
    """The structures of all sources, copied at the first call because a search may still run."""
    path = folder / CANDIDATES
    if not (path.exists() and (folder / RECIPE).exists()):
        images = [atoms for source in recipe.sources for atoms in read_images(source)]
        if recipe.formulas:
            wanted = {Atoms(formula).get_chemical_formula() for formula in recipe.formulas}
            images = [atoms for atoms in images if atoms.get_chemical_formula() in wanted]
        if not images:
            raise NuggetError(f"No structure of {', '.join(recipe.sources)} has these formulas.")
        bare = [Atoms(a.numbers, a.positions, cell=a.cell, pbc=a.pbc) for a in images]
        _write(path, bare)
    return read_images(path)


def _split(recipe: Recipe, accepted: list[tuple[int, Atoms]]) -> dict[str, list[Atoms]]:
    """A reproducible random split in the shares of `recipe.split`."""
    images = [atoms for _, atoms in accepted]
    order = np.random.default_rng([recipe.seed, 0, 0, 1]).permutation(len(images))
    ends = np.rint(np.cumsum(recipe.split) / sum(recipe.split) * len(images)).astype(int)
    pieces = np.split(order, ends[:-1])
    return {name: [images[k] for k in piece] for name, piece in zip(PARTS, pieces, strict=True)}


def _write(path: Path, images: list[Atoms]) -> None:
    """Write the file completely or not at all; an empty part leaves no file."""
    if not images:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as partial:
        write_images(partial, images)


def _check(folder: Path, recipe: Recipe) -> None:
    """Refuse another recipe than that of the data set, except for a larger count."""
    if not (folder / RECIPE).exists():
        for name in (DATABASE, *(f"{part}.extxyz" for part in PARTS)):
            if (folder / name).exists():
                raise NuggetError(
                    f"{folder / name} exists already and does not belong to a data set; "
                    "choose another directory with --out."
                )
        return
    old = read_recipe(folder)
    if different := recipe.differs_from(old):
        raise NuggetError(
            f"{folder} was started with another {different[0]} ({getattr(old, different[0])}); "
            f"choose another directory with --out, or continue with "
            f"`nugget dataset --resume {folder}`."
        )
    if recipe.count < old.count:
        raise NuggetError(f"{folder} was started with count {old.count}; the count can only grow.")
