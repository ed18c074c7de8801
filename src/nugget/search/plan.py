"""The calls of the engine that a search plans, by purpose, and the time that they will take."""

from __future__ import annotations

from dataclasses import dataclass

from nugget.display import counted, duration
from nugget.engines.engine_check import evaluates_single_atoms
from nugget.search.search_settings import Config
from nugget.systems.base import System

#: Calls that final relaxations may always use, for each structure.
PER_STRUCTURE = 30

# A repetition and a finite difference at the beginning, a repetition of the lowest structure at
# the end. Doubtful results add more.
_CHECKS = 3


@dataclass(frozen=True)
class CallPlan:
    """The largest number of calls for each purpose, and the structures of final relaxations."""

    search: int
    checks: int
    polish: int
    structures: int

    @classmethod
    def of(cls, config: Config, system: System, budget: int) -> CallPlan:
        """The plan of a search with this budget.

        Final relaxations get as many calls as the search itself, and at least PER_STRUCTURE for
        each structure, unless `search.polish_calls` gives another number.
        """
        checks, structures = 0, config.search.polish
        if config.engine.verify:
            single = evaluates_single_atoms(config.engine)
            checks = _CHECKS + (len(set(system.numbers.tolist())) if single else 0)
        polish = config.search.polish_calls or max(budget, PER_STRUCTURE * structures)
        return cls(budget, checks, polish if structures else 0, structures)

    @property
    def total(self) -> int:
        return self.search + self.checks + self.polish

    def __str__(self) -> str:
        parts = [f"{self.search} for the search"]
        if self.checks:
            parts.append(f"{self.checks} to check the engine")
        if self.polish:
            what = counted(self.structures, "structure")
            parts.append(f"at most {self.polish} for final relaxations of {what}")
        return f"{counted(self.total, 'call')} of the engine are planned: {', '.join(parts)}"

    def expected_time(self, seconds: float, in_flight: int) -> str:
        """The time for the engine, from the seconds of one call."""
        search = duration(seconds * self.search / in_flight)
        text = f"the engine took {duration(seconds)}: about {search} for the search"
        if not self.polish:
            return text
        return f"{text}, at most {duration(seconds * self.polish / in_flight)} for relaxations"
