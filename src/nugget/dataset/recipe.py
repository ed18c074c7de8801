"""The recipe of a data set, and the numbered candidates that it describes.

Candidate k of a stream depends on the seed, the stream and k only, and candidates are accepted in
the order of k. Neither an interruption nor the number of workers changes the data set.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.generators import Failure, Mixer, make_generator, suits
from nugget.potential.mean_functions.pair_terms import PairWell
from nugget.relax import relax
from nugget.structures.identity import graph_key, is_connected
from nugget.systems.placed_atoms import PlacedAtoms
from nugget.systems.validity import count_atoms

_RANGE = re.compile(r"([A-Z][a-z]?)(\d+)-(?:\1)?(\d+)(?::(\d+))?")


@dataclass(frozen=True)
class Recipe:
    """Settings of a data set.

    formulas : as Au10 or Cu3Au5, in equal shares of `count`; with `sources`, a filter.
    count : number of structures in the data set.
    engine, options : the engine that labels them, see `nugget.engines`.
    seed : seed of all random choices.
    generators : generators of candidates, drawn with equal probability.
    sources : files with candidates to use instead (search.db of a search, extxyz, ...).
    well_steps : relaxation steps on a simple pair potential before the evaluation.
    rattle : largest random displacement of generated structures after that, Å.
    relax_steps : relaxation steps with the engine; the last structure is used.
    split : shares of train, validation and test.
    patience : successive candidates without a new bond graph after which a formula is abandoned.
    time_limit : seconds for one structure.
    """

    formulas: tuple[str, ...]
    count: int
    engine: str = "gfn1-xtb"
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    generators: tuple[str, ...] = ("random_cluster", "symmetric")
    sources: tuple[str, ...] = ()
    well_steps: int = 50
    rattle: float = 0.3
    relax_steps: int = 5
    split: tuple[float, float, float] = (8.0, 1.0, 1.0)
    patience: int = 200
    time_limit: float = 600.0

    def __post_init__(self) -> None:
        if not self.formulas and not self.sources:
            raise NuggetError("The recipe is empty; give formulas such as Au10, or sources.")
        contents = {frozenset(count_atoms(formula).items()) for formula in self.formulas}
        if len(contents) < len(self.formulas):
            raise NuggetError(f"A composition occurs twice in {' '.join(self.formulas)}.")
        least = max(1, 0 if self.sources else len(self.formulas))
        if self.count < least:
            raise NuggetError(f"count is {self.count}; give at least {least}.")
        if len(self.split) != 3 or min(self.split) < 0 or sum(self.split) <= 0:
            raise NuggetError(f"split is {self.split}; give three shares, as 8 1 1.")
        for name in ("well_steps", "rattle", "relax_steps"):
            if getattr(self, name) < 0:
                raise NuggetError(f"{name} is {getattr(self, name)}; it must not be negative.")
        if self.patience < 1 or not self.time_limit > 0:
            raise NuggetError("patience and time_limit must be positive.")

    def differs_from(self, other: Recipe) -> list[str]:
        """Names of differing settings that determine the candidates (not count, not split)."""
        free = ("count", "split", "patience", "time_limit")
        names = [f.name for f in fields(self) if f.name not in free]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """The inverse of `to_dict`, also for lists that JSON wrote for tuples."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        try:
            return cls(**plain)
        except TypeError as error:
            raise NuggetError(
                f"The recipe is of another version of nugget ({error}); build a new data set."
            ) from error


def expanded(formulas: list[str]) -> tuple[str, ...]:
    """Formulas with ranges expanded: Au10-Au20 means 11 sizes, Au10-20:2 six."""
    out: list[str] = []
    for text in formulas:
        match = _RANGE.fullmatch(text)
        if match is None:
            out.append(text)
            continue
        symbol, first, last, step = match.groups()
        sizes = range(int(first), int(last) + 1, int(step or 1) or 1)
        if not sizes:
            raise NuggetError(f"The range {text!r} is empty; write the smaller size first.")
        out += [f"{symbol}{n}" for n in sizes]
    return tuple(out)


# Verdicts on a candidate. "late": labelled after its stream was abandoned.
ACCEPTED, DUPLICATE, INVALID, FAILED, LATE = "accepted", "duplicate", "invalid", "failed", "late"


@dataclass(eq=False)
class Stream:
    """The candidates of one formula and the verdicts on them so far."""

    name: str
    wanted: int
    make: Callable[[int], Atoms | str | None]  # a verdict instead of a structure; None at the end
    fault: Callable[[Atoms], str | None]
    patience: int
    issued: int = 0
    folded: int = 0  # candidates 0 … folded − 1 have a verdict
    ended: bool = False
    barren: int = 0  # successive candidates that were not accepted
    starts: set[str] = field(default_factory=set)
    graphs: set[str] = field(default_factory=set)
    results: dict[int, Atoms | str] = field(default_factory=dict)  # waiting for their turn
    accepted: list[tuple[int, Atoms]] = field(default_factory=list)
    counts: dict[str, int] = field(default_factory=dict)

    def next(self) -> tuple[int, Atoms] | None:
        """The next candidate to label, or None if none is needed now."""
        while not self.ended and len(self.accepted) + self._open() < self.wanted:
            k = self.issued
            candidate = self.make(k)
            if candidate is None:
                self.ended = True
                break
            self.issued += 1
            if isinstance(candidate, str):
                self.take(k, candidate)
            elif (key := graph_key(candidate)) in self.starts:
                self.take(k, DUPLICATE)
            else:
                self.starts.add(key)
                return k, candidate
        return None

    def _open(self) -> int:
        """Candidates without a verdict that may still be accepted."""
        rejected = sum(isinstance(result, str) for result in self.results.values())
        return self.issued - self.folded - rejected

    def take(self, k: int, result: Atoms | str) -> None:
        """Take in the result of candidate k; verdicts are given in the order of k."""
        self.results[k] = result
        while self.folded in self.results:
            result = self.results.pop(self.folded)
            exhausted = self.barren >= self.patience
            verdict = LATE if exhausted else self._decide(self.folded, result)
            self.barren = 0 if verdict == ACCEPTED else self.barren + 1
            self.ended |= self.barren >= self.patience
            self.counts[verdict] = self.counts.get(verdict, 0) + 1
            self.folded += 1

    def _decide(self, k: int, result: Atoms | str) -> str:
        if isinstance(result, str):
            return result
        if self.fault(result) is not None:
            return INVALID
        key = graph_key(result)
        if key in self.graphs:
            return DUPLICATE
        self.graphs.add(key)
        self.accepted.append((k, result))
        return ACCEPTED


def generated_stream(recipe: Recipe, index: int, formula: str, wanted: int) -> Stream:
    """Candidates from generators, relaxed on a simple pair potential."""
    system = PlacedAtoms.cluster(formula)
    generators = [make_generator(name) for name in recipe.generators]
    usable = [g for g in generators if suits(g, system) and not g.needs]
    if not usable:
        raise NuggetError(
            f"None of the generators {', '.join(recipe.generators)} can generate {formula} "
            "without parents; add random_cluster."
        )
    mixer = Mixer(usable)
    well = PairWell()

    def make(k: int) -> Atoms | str:
        rng = np.random.default_rng([recipe.seed, index, k])
        generated = mixer(rng, system)
        if isinstance(generated, Failure):
            return INVALID
        start = relax([generated], well, 0.1, recipe.well_steps, system.region, runaway=10.0)[0]
        atoms = start.atoms
        # Random displacements, so that not only minima are labelled.
        atoms.positions += rng.normal(0.0, recipe.rattle * rng.random(), (len(atoms), 3))
        if not start.ok or system.fault(atoms) is not None:
            return INVALID
        atoms.info = {"generator": generated.info["generator"], "stream": formula, "candidate": k}
        return atoms

    return Stream(formula, wanted, make, system.fault, recipe.patience)


def gathered_stream(recipe: Recipe, images: Sequence[Atoms]) -> Stream:
    """Candidates from files, in random order."""
    order = np.random.default_rng([recipe.seed, 0]).permutation(len(images))

    def make(k: int) -> Atoms | None:
        if k >= len(order):
            return None
        atoms = images[order[k]].copy()
        atoms.info = {"generator": "file", "stream": "file", "candidate": k}
        return atoms

    def fault(atoms: Atoms) -> str | None:
        return None if is_connected(atoms) else "the structure is not connected"

    # A file has an end, so that no patience is needed.
    return Stream("file", recipe.count, make, fault, patience=len(order) + 1)
