"""Engine calls that are written down before anybody sees them, so that a killed run repeats none.

`calls.jsonl` holds one outcome per line, exact to the last bit. A run that is continued from an
earlier state meets the same structures in the same order, and is given what was written down.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import numpy as np
from ase import Atoms

from nugget.errors import NuggetError
from nugget.evaluation.config import EngineConfig
from nugget.evaluation.outcome import Outcome
from nugget.evaluation.plausibility import doubt
from nugget.evaluation.queue import EvaluationQueue

CALLS = "calls.jsonl"


class RecordedEngine:
    """A function from structures to structures with results, None where the engine failed.

    `used` is how many outcomes have been given out; the model is made of the good ones among them.
    """

    def __init__(self, engine: EngineConfig, directory: Path, used: int = 0) -> None:
        self.path, self.engine, self.directory, self.used = (
            directory / CALLS,
            engine,
            directory,
            used,
        )
        self.outcomes = read_outcomes(self.path)
        if used > len(self.outcomes):
            raise NuggetError(f"{self.path} has lost calls that the run has used; start anew.")
        self._queue: EvaluationQueue | None = None

    def __enter__(self) -> RecordedEngine:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._queue is not None:
            self._queue.__exit__(kind, error, trace)

    @property
    def good(self) -> list[Atoms]:
        """Structures with results, of the outcomes that were given out."""
        return [outcome.atoms for outcome in self.outcomes[: self.used] if outcome.ok]

    def __call__(self, atoms: Atoms) -> Atoms | None:
        if self.used == len(self.outcomes):
            self._append(self._evaluate(atoms))
        outcome = self.outcomes[self.used]
        if not np.array_equal(outcome.atoms.positions, atoms.positions):
            raise NuggetError(
                f"Call {self.used + 1} in {self.path} is for another structure: this machine's "
                "arithmetic differs from that of the run; continue where it was begun."
            )
        self.used += 1
        self._refuse_failures()
        return outcome.atoms if outcome.ok else None

    def _evaluate(self, atoms: Atoms) -> Outcome:
        if self._queue is None:  # a run that only repeats what is written down needs no engine
            self._queue = EvaluationQueue(
                self.engine, 1, directory=self.directory, judge=judge_of(lambda: self.good)
            )
        self._queue.submit(0, atoms)
        return self._queue.next()[1]

    def _append(self, outcome: Outcome) -> None:
        with open(self.path, "ab") as file:
            file.write(outcome.to_json().encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())
        self.outcomes.append(Outcome.from_json(outcome.to_json()))

    def _refuse_failures(self) -> None:
        last = self.outcomes[max(self.used - self.engine.max_failures, 0) : self.used]
        if len(last) == self.engine.max_failures and not any(outcome.ok for outcome in last):
            raise NuggetError(
                f"The engine failed {len(last)} times in a row, at last with: "
                f"{last[-1].failure}: {last[-1].reason}"
            )

    def failures(self) -> dict[str, int]:
        """How many calls failed, by kind."""
        kinds = [o.failure for o in self.outcomes[: self.used] if o.failure is not None]
        return {kind: kinds.count(kind) for kind in sorted(set(kinds))}


def judge_of(known: Callable[[], list[Atoms]]) -> Callable[[Atoms], str | None]:
    """Says of results why they cannot be true, against all earlier ones."""

    def judge(atoms: Atoms) -> str | None:
        others = known()
        energies = [other.get_potential_energy() / len(other) for other in others]
        forces = [float(np.abs(other.calc.results["forces"]).max()) for other in others]
        return doubt(atoms, energies, forces)

    return judge


def read_outcomes(path: Path, repair: bool = True) -> list[Outcome]:
    """What was written down; a last line that was cut off by a kill is left out.

    With `repair` it is removed from the file, too; whoever only looks at a run must not do that.
    """
    if not path.exists():
        return []
    content = path.read_bytes()
    whole = content[: content.rfind(b"\n") + 1]
    if repair and len(whole) < len(content):
        os.truncate(path, len(whole))
    try:
        return [Outcome.from_json(line.decode()) for line in whole.splitlines()]
    except (ValueError, KeyError, TypeError) as error:
        raise NuggetError(f"{path} is damaged ({error}); start anew.") from None
