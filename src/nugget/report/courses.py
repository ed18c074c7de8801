"""The course of searches: energies evaluation by evaluation, and what was lowest in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.report.digest import informed
from nugget.report.search_page.minima import Low, Lowest
from nugget.search.config import Config
from nugget.search.goal import Goal, make_goal
from nugget.search.reader import Reader, State

#: Energies so close count as the same (eV, or eV/atom for crystals); bonds decide, too.
CLOSE = 0.05


@dataclass(frozen=True, eq=False)
class Course:
    """One search, as far as it has come."""

    directory: Path
    config: Config
    state: State
    values: Floats  # what is minimised, by evaluation; NaN where it failed
    best: Low | None  # relaxed with the engine, where that is done
    relaxing: int  # evaluations to relax the lowest
    engine_seconds: float
    surrogate_seconds: float

    @property
    def goal(self) -> Goal:
        return make_goal(self.config.system)

    @property
    def evaluations(self) -> int:
        return len(self.values)

    @property
    def failures(self) -> int:
        return int(np.isnan(self.values).sum())

    @property
    def best_so_far(self) -> Floats:
        """The lowest value up to each evaluation; infinite before there is one."""
        known: Floats = np.where(np.isnan(self.values), np.inf, self.values)
        return np.asarray(np.minimum.accumulate(known)) if len(known) else known

    @property
    def to_best(self) -> int | None:
        """The evaluation that the lowest structure is, or was relaxed from; 1 is the first."""
        return None if self.best is None or self.best.start < 0 else self.best.start + 1

    def to_reach(self, value: float) -> int | None:
        """Evaluations until this value, or a lower one; relaxing counts as the last."""
        hits = np.flatnonzero(self.best_so_far <= value)
        if len(hits):
            return int(hits[0]) + 1
        return self.evaluations if self.best is not None and self.best.value <= value else None


def read_course(directory: Path) -> Course:
    """A search, running or not; nothing is written and none of its code is run."""
    reader = Reader(directory)
    config, state = reader.config(), reader.state()
    records, steps = reader.news()
    goal = informed(make_goal(config.system), records, steps)
    values = [goal.value(r.atoms, r.energy) if r.ok else np.nan for r in records]
    low = Lowest(goal, 1)
    low.add(records)
    found = low.chosen(records, steps)
    return Course(
        directory, config, state, np.array(values, float), found[0] if found else None, len(steps),
        sum(r.engine_seconds for r in records), sum(r.surrogate_seconds for r in records),
    )  # fmt: skip


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several searches side by side."""

    courses: list[Course]
    names: list[str]  # as short as they can be
    kinds: list[int | None]  # equal numbers: the same structure; None: there is none yet
    differing: dict[str, list[str]]  # settings that are not the same everywhere

    @property
    def lowest(self) -> float | None:
        """The lowest value of all."""
        return min((c.best.value for c in self.courses if c.best is not None), default=None)

    @property
    def comparable(self) -> bool:
        """Do all energies mean the same: one system, one engine, one pressure? Hulls do not."""
        first = self.courses[0].config
        same = ("formula", "kind", "pressure", "units")
        if first.system.compositions is not None:
            return False
        return all(
            c.config.engine.name == first.engine.name
            and c.config.engine.options == first.engine.options
            and all(getattr(c.config.system, n) == getattr(first.system, n) for n in same)
            for c in self.courses
        )

    def rows(self) -> list[dict[str, Any]]:
        """One line per search, as plain data."""
        low = self.lowest
        made = []
        for course, name, kind in zip(self.courses, self.names, self.kinds, strict=True):
            best = course.best
            reach = None if low is None else course.to_reach(low + CLOSE)
            made.append(
                {
                    "run": name,
                    "directory": str(course.directory),
                    "state": course.state.doing,
                    "evaluations": course.evaluations,
                    "failures": course.failures,
                    "best": None if best is None else best.value,
                    "above_lowest": None if best is None or low is None else best.value - low,
                    "relaxed": best is not None and best.polished,
                    "evaluations_to_best": course.to_best,
                    "evaluations_to_lowest": reach if self.comparable else None,
                    "structure": None if kind is None else letter(kind),
                    "unit": course.goal.unit,
                }
            )
        return made


def compared(directories: Sequence[Path]) -> Comparison:
    """Read searches and set them against each other."""
    if len(directories) < 2:
        raise NuggetError("Give two searches or more to compare.")
    if len({path.resolve() for path in directories}) < len(directories):
        raise NuggetError("A search is given twice; give each directory once.")
    courses = [read_course(path) for path in directories]
    return Comparison(courses, short_names(directories), _kinds(courses), _differing(courses))


def letter(kind: int) -> str:
    """A, B, … Z, then S27 and so on."""
    return chr(ord("A") + kind) if kind < 26 else f"S{kind + 1}"


def short_names(paths: Sequence[Path]) -> list[str]:
    """The last parts of the paths, as many as are needed to tell them apart."""
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path.resolve()) for path in paths]


def _kinds(courses: Sequence[Course]) -> list[int | None]:
    """Equal numbers for lowest structures that are the same; 0 is that of the lowest."""
    order = sorted(
        (k for k, course in enumerate(courses) if course.best is not None),
        key=lambda k: courses[k].best.value,  # type: ignore[union-attr]
    )
    found: list[int | None] = [None] * len(courses)
    seen: list[int] = []
    for k in order:
        same = [one for one in seen if _same(courses[k], courses[one])]
        if same:
            found[k] = found[same[0]]
        else:
            found[k] = len(seen)
            seen.append(k)
    return found


def _same(a: Course, b: Course) -> bool:
    """The same bonds, or the same crystal, and about the same energy."""
    if a.best is None or b.best is None or a.config.system.kind != b.config.system.kind:
        return False
    if sorted(a.best.atoms.numbers) != sorted(b.best.atoms.numbers) and a.goal.unit == "eV":
        return False
    close = abs(a.best.value - b.best.value) <= CLOSE
    engines = a.config.engine.name == b.config.engine.name
    return (close or not engines) and a.goal.same(a.best.atoms, b.best.atoms, loose=False)


def _differing(courses: Sequence[Course]) -> dict[str, list[str]]:
    flat = [dict(_flat(course.config.model_dump())) for course in courses]
    names = list(dict.fromkeys(name for one in flat for name in one))
    texts = {name: [str(one.get(name, "–")) for one in flat] for name in names}
    return {name: values for name, values in texts.items() if len(set(values)) > 1}


def _flat(settings: dict[str, Any], prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            found += _flat(value, f"{prefix}{name}.")
        else:
            found.append((f"{prefix}{name}", value))
    return found
