"""The result of one evaluation: labels or a failure, as plain data that is exact in JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.jsonio import decode, encode

from nugget.errors import NuggetError


class Failure(StrEnum):
    """Why an evaluation has no results; the values are written to files."""

    EXCEPTION = "exception"  # the engine raised an error
    TIMEOUT = "timeout"  # the time limit was exceeded
    NAN = "nan"  # energy, forces or stress are not finite
    INVALID = "invalid"  # they have the wrong type or shape
    UNCONVERGED = "unconverged"  # the engine reports that it did not converge
    DIED = "died"  # the process ended
    IMPLAUSIBLE = "implausible"  # rejected by `nugget.engines.plausibility`


class WalltimeError(NuggetError):
    """The batch job of an evaluation reached its walltime; the same job would reach it again."""


class EngineMissingError(NuggetError):
    """The engine cannot run on the machine of a worker, whatever the structure is."""


@dataclass(frozen=True, eq=False)
class Outcome:
    """The result of evaluating one structure.

    After a success `atoms` has energy and forces (constraints not applied) in a
    SinglePointCalculator. After a failure it is the submitted structure without results.
    `path` contains earlier structures of the same evaluation, all with results: the steps of a
    relaxation with `keep_path`, or the steps before a failure.
    """

    atoms: Atoms
    failure: Failure | None = None
    reason: str = ""
    seconds: float = 0.0
    attempts: int = 1
    path: tuple[Atoms, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether there are an energy and forces."""
        return self.failure is None

    @property
    def energy(self) -> float:
        """Energy in eV; only after a success."""
        if not self.ok:
            raise NuggetError(f"no energy: the evaluation failed ({self.failure}: {self.reason}).")
        return float(self.atoms.calc.results["energy"])

    def to_json(self) -> str:
        """One line of text, exact to the last bit."""
        return encode(
            {
                "atoms": atoms_dict(self.atoms),
                "failure": self.failure,
                "reason": self.reason,
                "seconds": self.seconds,
                "attempts": self.attempts,
                "path": [atoms_dict(atoms) for atoms in self.path],
            }
        )

    @classmethod
    def from_json(cls, text: str) -> Outcome:
        """The inverse of `to_json`."""
        data = decode(text)
        return cls(
            atoms=atoms_from(data["atoms"]),
            failure=None if data["failure"] is None else Failure(data["failure"]),
            reason=data["reason"],
            seconds=data["seconds"],
            attempts=data["attempts"],
            path=tuple(atoms_from(frame) for frame in data["path"]),
        )


def atoms_dict(atoms: Atoms) -> dict[str, Any]:
    """A structure and its results, without `info` (which may contain anything)."""
    bare = atoms.copy()
    bare.info = {}
    results = {} if atoms.calc is None else dict(atoms.calc.results)
    return {"structure": bare.todict(), "results": results}


def atoms_from(data: Mapping[str, Any]) -> Atoms:
    """The inverse of `atoms_dict`."""
    structure = data["structure"]
    atoms = structure if isinstance(structure, Atoms) else Atoms.fromdict(structure)
    if data["results"]:
        atoms.calc = SinglePointCalculator(atoms, **data["results"])
    return atoms
