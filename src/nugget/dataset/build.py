"""Build a data set: many different structures, labelled by an engine, split and ready to fit.

Each labelled candidate (see `streams`) is one row of an ASE database, written in one transaction.
The data set is the first ones that succeeded, are sensible and have a bond graph that no earlier
one has. A killed run loses the calculations in flight; the next run goes on with the same
candidates, and nothing is calculated twice.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget.dataset.recipe import Recipe
from nugget.dataset.streams import FAILED, Stream, gathered_stream, generated_stream
from nugget.errors import NuggetError
from nugget.evaluation.config import EngineConfig
from nugget.evaluation.outcome import Outcome
from nugget.evaluation.queue import EvaluationQueue
from nugget.structures.database import Database
from nugget.structures.files import locked, replacing
from nugget.structures.io import read_images, write_images
from nugget.structures.sealed import read_sealed, write_sealed

DATABASE, RECIPE, CANDIDATES = "dataset.db", "recipe.json", "candidates.extxyz"
PARTS = ("train", "validation", "test")

# So many failures and not one success: something is wrong with the engine, not with structures.
_HOPELESS = 10

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Report:
    """What `build` made; plain data."""

    directory: str
    wanted: int
    structures: int
    parts: dict[str, int]
    streams: dict[str, dict[str, int]]  # verdicts by stream
    failures: dict[str, int]  # kinds of failures of the engine
    labelled_now: int
    labelled_before: int
    engine_seconds: float

    @property
    def complete(self) -> bool:
        return self.structures == self.wanted

    def to_dict(self) -> dict[str, Any]:
        return {**asdict(self), "complete": self.complete}


def build(
    directory: str | Path, recipe: Recipe, workers: int = 1, progress: Progress | None = None
) -> Report:
    """Make the data set that `recipe` describes in `directory`, or go on with it.

    Stop it at any moment and call it again: labels that were finished are kept. A larger `count`
    extends a finished data set; any other change of the recipe is refused.
    """
    folder = Path(directory)
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        _check(folder, recipe)
        streams = _streams(folder, recipe)
        database = Database(folder / DATABASE)
        known = dict(map(_labelled, _rows(database)))
        before = len(known)

        def advance() -> None:
            if progress is not None:
                progress(sum(len(s.accepted) for s in streams), recipe.count)

        engine = EngineConfig(
            name=recipe.engine,
            options=recipe.options,
            time_limit=recipe.time_limit,
            relax_steps=recipe.relax_steps,
        )
        with EvaluationQueue(engine, workers, directory=folder) as queue:
            # Only now: a recipe that cannot work leaves nothing behind.
            write_sealed(folder / RECIPE, recipe.to_dict())
            if not database.path.exists():
                Database.create(database.path, {})
            now = _work(streams, known, database, queue, advance)
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
    )


def read_recipe(directory: str | Path) -> Recipe:
    """The recipe of a data set that was begun."""
    path = Path(directory) / RECIPE
    if not path.is_file():
        raise NuggetError(f"{directory} holds no data set ({RECIPE} is missing).")
    return Recipe.from_dict(read_sealed(path, "bring it back from a copy, or begin anew elsewhere"))


def _work(
    streams: list[Stream],
    known: dict[tuple[str, int], Atoms | str],
    database: Database,
    queue: EvaluationQueue,
    advance: Callable[[], None],
) -> int:
    """Label candidates until every stream has enough; the number of new labels."""
    running: dict[int, tuple[Stream, int]] = {}
    submitted = made = failed = 0
    while True:
        while len(queue) < queue.width and (found := _next(streams, known)) is not None:
            stream, k, atoms = found
            running[submitted] = (stream, k)
            queue.submit(submitted, atoms)
            submitted += 1
        advance()
        if not running:
            return made
        key, outcome = queue.next()
        stream, k = running.pop(key)
        _record(database, stream, k, outcome)
        made += 1
        failed += not outcome.ok
        if made == failed == _HOPELESS:
            raise NuggetError(
                f"The engine failed {failed} times out of {made}, last with "
                f"{outcome.failure}: {outcome.reason}."
            )
        stream.take(k, outcome.atoms if outcome.ok else FAILED)


def _next(
    streams: list[Stream], known: dict[tuple[str, int], Atoms | str]
) -> tuple[Stream, int, Atoms] | None:
    """A candidate that has no label yet, from the stream that is furthest behind."""
    for stream in sorted(streams, key=lambda s: len(s.accepted) / max(s.wanted, 1)):
        while (found := stream.next()) is not None:
            k, atoms = found
            if (stream.name, k) not in known:
                return stream, k, atoms
            stream.take(k, known[stream.name, k])
    return None


def _record(database: Database, stream: Stream, k: int, outcome: Outcome) -> None:
    pairs: dict[str, Any] = {
        "stream": stream.name,
        "candidate": k,
        "generator": str(outcome.atoms.info["generator"]),
        "seconds": outcome.seconds,
    }
    if outcome.failure is not None:
        pairs["failure"] = outcome.failure
    database.write(outcome.atoms, pairs, {"reason": outcome.reason})


def _rows(database: Database) -> list[tuple[Atoms, dict[str, Any]]]:
    """Structures and columns of all rows; none before the first label."""
    if not database.path.exists():
        return []
    rows = [(atoms, pairs) for atoms, pairs, _ in database.rows()]
    if not all(
        {"stream", "candidate", "generator", "seconds"} <= pairs.keys() for _, pairs in rows
    ):
        raise NuggetError(f"{database.path} is not a data set's: columns are missing.")
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
    """The structures of all sources, frozen at the first call: a search may still be growing."""
    path = folder / CANDIDATES
    if not (path.exists() and (folder / RECIPE).exists()):
        found = [atoms for source in recipe.sources for atoms in read_images(source)]
        if recipe.formulas:
            wanted = {Atoms(formula).get_chemical_formula() for formula in recipe.formulas}
            found = [atoms for atoms in found if atoms.get_chemical_formula() in wanted]
        if not found:
            raise NuggetError(f"No structure of {', '.join(recipe.sources)} has these formulas.")
        bare = [Atoms(a.numbers, a.positions, cell=a.cell, pbc=a.pbc) for a in found]
        _write(path, bare)
    return read_images(path)


def _split(recipe: Recipe, accepted: list[tuple[int, Atoms]]) -> dict[str, list[Atoms]]:
    """Train, validation and test, at random but reproducibly, in shares of `recipe.split`."""
    images = [atoms for _, atoms in accepted]
    order = np.random.default_rng([recipe.seed, 0, 0, 1]).permutation(len(images))
    ends = np.rint(np.cumsum(recipe.split) / sum(recipe.split) * len(images)).astype(int)
    pieces = np.split(order, ends[:-1])
    return {name: [images[k] for k in piece] for name, piece in zip(PARTS, pieces, strict=True)}


def _write(path: Path, images: list[Atoms]) -> None:
    """All or nothing; an empty part leaves no file."""
    if not images:
        path.unlink(missing_ok=True)
        return
    with replacing(path) as partial:
        write_images(partial, images)


def _check(folder: Path, recipe: Recipe) -> None:
    """A data set goes on with the recipe that it was begun with; only its count may grow."""
    if not (folder / RECIPE).exists():
        for name in (DATABASE, *(f"{part}.extxyz" for part in PARTS)):
            if (folder / name).exists():
                raise NuggetError(
                    f"{folder / name} exists already, and is not of a data set with a recipe; "
                    "choose another directory with --out."
                )
        return
    old = read_recipe(folder)
    if different := recipe.differs_from(old):
        raise NuggetError(
            f"{folder} was begun with another {different[0]} ({getattr(old, different[0])}); "
            f"choose another directory with --out, or continue with "
            f"`nugget dataset --resume {folder}`."
        )
    if recipe.count < old.count:
        raise NuggetError(f"{folder} was begun with count {old.count}; it can only grow.")
