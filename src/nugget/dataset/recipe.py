"""What a data set is made of: plain settings, checked once, kept with the data."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from nugget.errors import NuggetError
from nugget.generators.composition import count_atoms

_RANGE = re.compile(r"([A-Z][a-z]?)(\d+)-(?:\1)?(\d+)(?::(\d+))?")


@dataclass(frozen=True)
class Recipe:
    """Settings of a data set.

    formulas : as Au10 or Cu3Au5; equal shares of `count`. With `sources`: only these are taken.
    count : structures in the data set.
    engine, options : who labels them, see `nugget.evaluation.engines`.
    seed : of all random choices.
    generators : makers of candidates, drawn with equal chances.
    sources : files to take candidates from instead (a search's search.db, extxyz, ...).
    well_steps : relaxation steps on a crude pair potential, before the engine sees a structure.
    rattle : generated structures are then shaken by a random amount up to this, Å.
    relax_steps : relaxation steps with the engine; the last structure is taken.
    split : shares of train, validation and test.
    patience : candidates of a formula in a row without a new bond graph before it is given up.
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
            raise NuggetError("There is nothing to make; give formulas such as Au10, or sources.")
        contents = set()
        for formula in self.formulas:
            contents.add(frozenset(count_atoms(formula).items()))
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
        """Names of settings that would change structures already made (not count, not split)."""
        free = ("count", "split", "patience", "time_limit")
        names = [f.name for f in fields(self) if f.name not in free]
        return [name for name in names if getattr(self, name) != getattr(other, name)]

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Recipe:
        """The inverse of `to_dict`, also after JSON made lists of tuples."""
        plain: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        try:
            return cls(**plain)
        except TypeError as error:
            raise NuggetError(
                f"The recipe is of another version of nugget ({error}); begin anew."
            ) from error


def expanded(formulas: list[str]) -> tuple[str, ...]:
    """Formulas with ranges written out: Au10-Au20 is 11 sizes, Au10-20:2 is six."""
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
