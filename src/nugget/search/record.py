"""What a search writes down: proposals, evaluations, steps of final relaxations, and its end.

The names of fields and the values of enums are those of the columns in the database; they must not
change.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, TypeVar

from ase import Atoms

from nugget.numerics.arrays import Floats
from nugget.systems.goal import Goal

#: The iteration of an evaluation in flight.
UNFINISHED = -1


class Purpose(StrEnum):
    """Why a structure was evaluated."""

    START = "start"  # before there was a model
    IMPROVE = "improve"  # to find a lower structure
    EXPLORE = "explore"  # to learn about unfamiliar structures, when none was worth an evaluation


@dataclass(frozen=True, eq=False)
class Record:
    """One evaluation with its proposal, prediction and result.

    Evaluations in flight finish in any order. `proposal` and `n_observed` of all records determine
    what was proposed when, and from which results. One at a time, both equal `iteration`.
    """

    iteration: int  # order of completion; UNFINISHED while it is in flight
    atoms: Atoms  # with energy and forces, unless it failed
    generator: str
    failure: str = ""  # empty, or the kind of failure
    reason: str = ""
    predicted: float | None = None  # mean of the model at the time, eV
    std: float | None = None  # its standard deviation before rescaling, eV
    scale: float = 1.0  # factor of the online calibration at the time
    kappa: float = 0.0  # exploration weight of the acquisition at the time
    acquisition: float | None = None  # its score
    purpose: Purpose = Purpose.START
    engine_seconds: float = 0.0
    surrogate_seconds: float = 0.0
    proposal: int = UNFINISHED  # order of proposal
    n_observed: int = UNFINISHED  # evaluations that were complete when it was proposed
    proposed_positions: Floats | None = None  # if the engine moved the atoms
    draws: str = ""  # relaxed candidates without parents; see `stop`
    walkers: Floats | None = None  # positions of the walkers after the proposal

    def __post_init__(self) -> None:
        object.__setattr__(self, "purpose", Purpose(self.purpose))
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


class EndStatus(StrEnum):
    """How a run of a search ended."""

    FINISHED = "finished"
    FOUND = "found"  # a reference structure was found
    INTERRUPTED = "interrupted"
    FAILED = "failed"


class EndReason(StrEnum):
    """Why a run of a search ended."""

    BUDGET = "budget"
    REFERENCE = "reference"
    CONFIDENCE = "confidence"  # search.stop_when
    EXHAUSTED = "exhausted"  # every candidate is known
    REQUEST = "request"  # stopped by the user, after the evaluations in flight
    BROKEN_OFF = "broken off"  # stopped by the user at once
    NO_SUCCESS = "no success"  # no evaluation within the budget succeeded
    FAILURES = "failures"  # too many failures in a row
    ERROR = "error"


# Sentences from which the reasons in status files of version 0.2 are read.
_SENTENCES_0_2 = {
    "the budget is used up": EndReason.BUDGET,
    "the reference was found": EndReason.REFERENCE,
    "the lowest structure is found by search.stop_when": EndReason.CONFIDENCE,
    "nothing new is left to evaluate": EndReason.EXHAUSTED,
    "stopped on request": EndReason.REQUEST,
    "broken off": EndReason.BROKEN_OFF,
}


@dataclass(frozen=True)
class End:
    """How the last run of a search ended. A run that was killed leaves none."""

    status: EndStatus
    reason: str  # a sentence for users
    evaluations: int
    budget: int
    cause: EndReason = EndReason.ERROR

    def __post_init__(self) -> None:
        object.__setattr__(self, "status", EndStatus(self.status))
        object.__setattr__(self, "cause", EndReason(self.cause))

    def __str__(self) -> str:
        return f"{self.status}: {self.reason}"

    @property
    def exhausted(self) -> bool:
        """Did the search finish before its budget was used?"""
        return self.status is EndStatus.FINISHED and self.evaluations < self.budget

    def to_dict(self) -> dict[str, Any]:
        """The contents of the status file."""
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> End:
        """The inverse of `to_dict`; status files of version 0.2 have no cause."""
        cause = _SENTENCES_0_2.get(data["reason"], EndReason.ERROR)
        return cls(**{"cause": cause, **data})


@dataclass(frozen=True, eq=False)
class Proposal:
    """A structure to evaluate, with the model's prediction for it.

    All fields go to the fields of the same names of the `Record`.
    """

    atoms: Atoms
    generator: str
    predicted: float | None = None
    std: float | None = None  # before rescaling
    scale: float = 1.0
    kappa: float | None = None  # None before there is a model
    acquisition: float | None = None
    purpose: Purpose = Purpose.START
    draws: str = ""  # relaxed candidates without parents; see `stop`
    walkers: Floats | None = None  # positions of the walkers; see `walkers`


#: The column that distinguishes evaluations of final relaxations from those of the search.
POLISH = "polish"


@dataclass(frozen=True, eq=False)
class PolishStep:
    """One evaluation of a final relaxation; the search does not learn from it."""

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


class CheckKind(StrEnum):
    """What an additional evaluation checks, or the verdict about an earlier one."""

    ATOM = "atom"  # an isolated atom
    REPETITION = "repetition"  # of the first structure
    DIFFERENCE = "difference"  # the first structure with displaced atoms
    RESUMED = "resumed"  # a structure that was evaluated before the search was resumed
    CONFIRMED = "confirmed"  # the result of an earlier evaluation is right
    UNCONFIRMED = "unconfirmed"  # it could not be repeated, because the engine failed
    CORRECTED = "corrected"  # it is replaced by this one
    REJECTED = "rejected"  # it counts as a failure, "implausible"


@dataclass(frozen=True, eq=False)
class Check:
    """An additional evaluation, and what follows from it. Such rows are never changed.

    `after` and `proposal` are the numbers of evaluations and of proposals at the time, so that a
    replay applies a verdict at the same moment.
    """

    kind: CheckKind
    atoms: Atoms  # with energy and forces, unless it failed
    after: int
    proposal: int
    iteration: int = UNFINISHED  # the evaluation that is checked
    step: int = 0  # the step of its final relaxation; 0: the evaluation itself
    evaluations: int = 1  # calls of the engine
    engine_seconds: float = 0.0
    reason: str = ""

    @property
    def changes(self) -> bool:
        """Whether the earlier evaluation counts no more as it was recorded."""
        return self.kind in (CheckKind.CORRECTED, CheckKind.REJECTED)

    @property
    def remarkable(self) -> bool:
        """Whether users should know about it."""
        return self.changes or self.kind is CheckKind.UNCONFIRMED

    def row(self) -> tuple[Atoms, dict[str, Any], dict[str, Any]]:
        """Structure, columns and data."""
        names = ("after", "proposal", "iteration", "step", "evaluations", "engine_seconds")
        pairs = {name: getattr(self, name) for name in names}
        return self.atoms, pairs, {"kind": self.kind.value, "reason": self.reason}

    @classmethod
    def of(cls, atoms: Atoms, pairs: Mapping[str, Any], data: Mapping[str, Any]) -> Check:
        """The inverse of `row`."""
        return cls(CheckKind(data["kind"]), atoms, reason=data["reason"], **pairs)


def amended(records: Sequence[Record], checks: Sequence[Check]) -> list[Record]:
    """The evaluations with the verdicts of later checks."""
    verdicts = {check.iteration: check for check in checks if check.changes and not check.step}
    return [_amended(one, verdicts.get(one.iteration)) for one in records]


def amended_steps(steps: Sequence[PolishStep], checks: Sequence[Check]) -> list[PolishStep]:
    """The steps of final relaxations with the verdicts of later checks."""
    verdicts = {(check.iteration, check.step): check for check in checks if check.changes}
    return [_amended(one, verdicts.get((one.start, one.step))) for one in steps]


_Evaluation = TypeVar("_Evaluation", Record, PolishStep)


def _amended(evaluation: _Evaluation, verdict: Check | None) -> _Evaluation:
    if verdict is None:
        return evaluation
    atoms = verdict.atoms.copy()
    atoms.info = dict(evaluation.atoms.info)
    if verdict.kind is CheckKind.REJECTED:
        return replace(evaluation, atoms=atoms, failure="implausible", reason=verdict.reason)
    atoms.calc = verdict.atoms.calc
    return replace(evaluation, atoms=atoms, failure="", reason="")


def energy_of(atoms: Atoms) -> float:
    """The stored energy."""
    return float(atoms.calc.results["energy"])


def lowest_steps(steps: Sequence[PolishStep], goal: Goal) -> dict[int, Atoms]:
    """The lowest structure of every final relaxation, by the evaluation it started from.

    Under pressure the enthalpy decides, not the energy.
    """
    lowest: dict[int, Atoms] = {}
    for step in steps:
        if step.ok:
            before = lowest.setdefault(step.start, step.atoms)
            lowest[step.start] = min(
                before, step.atoms, key=lambda atoms: goal.enthalpy(atoms, energy_of(atoms))
            )
    return lowest
