"""Evaluations of the relaxations at the end of a search, as rows of its database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ase import Atoms

POLISH = "polish"  # the column that tells these rows from those of the search


@dataclass(frozen=True, eq=False)
class PolishStep:
    """One evaluation of the relaxation at the end of a search; no proposal is learned from it."""

    start: int  # iteration of the evaluation that is relaxed
    step: int  # 1 for the first one after it
    atoms: Atoms  # with energy and forces, unless it failed
    failure: str = ""
    reason: str = ""
    engine_seconds: float = 0.0

    @property
    def ok(self) -> bool:
        return not self.failure

    def row(self) -> tuple[Atoms, dict[str, Any], dict[str, Any]]:
        """Structure, columns and data."""
        pairs: dict[str, Any] = {
            POLISH: self.start,
            "step": self.step,
            "engine_seconds": self.engine_seconds,
        }
        if self.failure:
            pairs["failed"] = True
        return self.atoms, pairs, {"failure": self.failure, "reason": self.reason}

    @classmethod
    def of(cls, atoms: Atoms, pairs: Mapping[str, Any], data: Mapping[str, Any]) -> PolishStep:
        """The inverse of `row`."""
        return cls(
            pairs[POLISH], pairs["step"], atoms, data["failure"], data["reason"],
            pairs["engine_seconds"],
        )  # fmt: skip


def energy_of(atoms: Atoms) -> float:
    """The stored energy."""
    return float(atoms.calc.results["energy"])


def lowest_steps(steps: Sequence[PolishStep]) -> dict[int, Atoms]:
    """The lowest structure of every relaxation, by the evaluation that it began with."""
    lowest: dict[int, Atoms] = {}
    for step in steps:
        if step.ok:
            before = lowest.setdefault(step.start, step.atoms)
            lowest[step.start] = min(before, step.atoms, key=energy_of)
    return lowest
