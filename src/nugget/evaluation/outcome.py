"""What came of an evaluation: results or a failure, as plain data that travels exactly."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from ase import Atoms
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.jsonio import decode, encode

from nugget.errors import NuggetError

Failure = Literal[
    "exception",  # the engine raised an error
    "timeout",  # it took longer than it may
    "nan",  # energy, forces or stress are not finite
    "invalid",  # they have the wrong type or shape
    "unconverged",  # the engine says so
    "died",  # the process is gone
    "implausible",  # the numbers cannot be true, see `nugget.evaluation.plausibility`
]
FAILURES: tuple[str, ...] = get_args(Failure)


@dataclass(frozen=True, eq=False)
class Outcome:
    """What came of one structure.

    On success `atoms` carries energy and forces (without constraints applied) in a
    SinglePointCalculator. On failure it is the structure as submitted, without results.
    `path` holds the structures on the way, all with results: those before the last one of a
    relaxation with `keep_path`, or those before a failure.
    """

    atoms: Atoms
    failure: Failure | None = None
    reason: str = ""
    seconds: float = 0.0
    attempts: int = 1
    path: tuple[Atoms, ...] = ()

    @property
    def ok(self) -> bool:
        """Are there an energy and forces?"""
        return self.failure is None

    @property
    def energy(self) -> float:
        """Energy in eV; only after success."""
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
            failure=data["failure"],
            reason=data["reason"],
            seconds=data["seconds"],
            attempts=data["attempts"],
            path=tuple(atoms_from(frame) for frame in data["path"]),
        )


def atoms_dict(atoms: Atoms) -> dict[str, Any]:
    """A structure and its results, without `info` (which may hold anything)."""
    bare = atoms.copy()
    bare.info = {}
    results = {} if atoms.calc is None else dict(atoms.calc.results)
    return {"structure": bare.todict(), "results": results}


def atoms_from(data: Mapping[str, Any]) -> Atoms:
    structure = data["structure"]
    atoms = structure if isinstance(structure, Atoms) else Atoms.fromdict(structure)
    if data["results"]:
        atoms.calc = SinglePointCalculator(atoms, **data["results"])
    return atoms
