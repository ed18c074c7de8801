"""The page of a search, which grows with it."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import nugget
from nugget.errors import NuggetError
from nugget.report.digest import informed
from nugget.report.hull_sections import hull_parts, hull_so_far
from nugget.report.page import Data, Structures, column, page
from nugget.report.page import sections as parts
from nugget.report.page.sections import Section
from nugget.report.search_page import sections as made
from nugget.report.search_page.atom_values import AtomModel, try_model
from nugget.report.search_page.evaluations import NAME, Evaluations
from nugget.report.search_page.landscape import Landscape
from nugget.report.search_page.minima import Gallery, Low, Lowest
from nugget.report.search_page.provenance import as_line, command
from nugget.search.config import write_config
from nugget.search.goal import AboveHull, make_goal
from nugget.search.knowledge import read_knowledge
from nugget.search.model import make_potential
from nugget.search.polish_step import PolishStep
from nugget.search.prepare import make_problem
from nugget.search.reader import Reader, State
from nugget.search.stop import Meetings
from nugget.search.store import Record
from nugget.structures.database import versions


class SearchPage:
    """Reads a search, again and again, and tells what stands on its page.

    Nothing is written to the search's directory and none of its code is run, unless `trust`.
    """

    def __init__(self, directory: Path, trust: bool = False, live: bool = False) -> None:
        self.reader = Reader(directory)
        self.directory, self.trust, self.live = directory, trust, live
        self.config = self.reader.config()
        self.goal = make_goal(self.config.system)
        problem = make_problem(self.config.system, directory)
        # The descriptor knows nothing of the baseline, which may be a stranger's code.
        plain = self.config.model.model_copy(update={"baseline": "none", "baseline_options": {}})
        self.map = Landscape(make_potential(plain, problem, 0, directory).descriptor)
        self.structures = Structures()
        self.evaluations = Evaluations(self.goal, self.structures)
        self.steps: list[PolishStep] = []
        self.gallery = Gallery(self.structures, self.goal)
        self._lowest = Lowest(self.goal)
        self.meetings = Meetings(self._learned(problem))
        self.state = State("stopped")
        self._model: AtomModel | None = None
        self._no_model = ""
        self._modelled = -1
        self._low: list[Low] = []
        self._sections: list[Section] | None = None
        self._constant = [self._again(), self._origins()]

    def _learned(self, problem: Any) -> Sequence[Record]:
        try:
            return read_knowledge(self.config, problem, self.directory).learned
        except NuggetError:  # the page does without
            return ()

    @property
    def records(self) -> list[Record]:
        return self.evaluations.records

    def read(self) -> bool:
        """Take in what is new; whether there was anything."""
        state = self.reader.state()
        records, steps = self.reader.news()
        changed = state != self.state or bool(records) or bool(steps)
        if not changed and self._sections is not None:
            return False
        self.state = state
        self.steps += steps
        self._inform(records, steps)
        self._fit_model(records)
        self.evaluations.add(records, self._model)
        self.map.add([record.atoms for record in records])
        for record in records:
            self.meetings.add(record)
        if records or steps:
            self._lowest.add(records)
            self._low = self._lowest.chosen(self.records, self.steps)
        self._sections = self._made_sections()
        return True

    def _inform(self, records: Sequence[Record], steps: Sequence[PolishStep]) -> None:
        """A convex hull may have sunk; rows that are on a page already stay as they are."""
        goal = informed(self.goal, records, steps)
        if goal is not self.goal:
            self.goal = self.evaluations.goal = self.gallery.goal = goal
            self._lowest = Lowest(goal)
            self._lowest.add(self.records)

    def _fit_model(self, news: Sequence[Record]) -> None:
        """A model for numbers per atom, once the search has ended: fitting costs time."""
        known = [*self.records, *news]
        if self._running:
            self._model, self._no_model, self._modelled = None, "", -1
        elif len(known) != self._modelled:
            self._model, self._no_model = try_model(self.config, self.directory, known, self.trust)
            self._modelled = len(known)

    @property
    def _running(self) -> bool:
        """Then time is not ours: no model, no symmetries."""
        return self.state.doing == "running"

    @property
    def budget(self) -> int:
        asked = self.state.budget or self.config.search.budget
        return max(asked, len(self.records))

    def data(self) -> Data:
        """All rows, with their places on the map."""
        found = self.evaluations.data()
        x, y = self.map.places
        more = {
            "map_x": column(x, shown=False, digits=3),
            "map_y": column(y, shown=False, digits=3),
        }
        return Data(NAME, {**found.columns, **more}, found.structures)

    def sections(self) -> list[Section]:
        """Always as many, in the same order."""
        return self._sections or self._made_sections()

    def _made_sections(self) -> list[Section]:
        records, steps, goal = self.records, self.steps, self.goal
        rows = self.evaluations.rows
        sure = self.meetings.confidence()
        return [
            made.figures(records, steps, self._low, goal, sure, self.budget),
            *([hull_so_far(goal)] if self.live and isinstance(goal, AboveHull) else []),
            self.gallery.section(self._low, rows, self._model, self._no_model, self._running),
            made.energies(goal),
            made.expectations(goal),
            made.landscape(),
            made.spent(records, steps, make_goal(self.config.system)),
            made.failed(records, steps, rows),
            parts.rows(NAME, title="All evaluations"),
            *self._constant,
        ]

    def _again(self) -> Section:
        line = as_line(command(self.config, self.directory))
        several = self.config.search.in_flight > 1
        note = (
            "Several evaluations were under way at a time: the order in which they end decides how "
            "the search goes on, so another run may take another way."
            if several
            else "The same settings and the same seed make the same search, on the same versions."
        )
        return {**parts.code(line, title="To do it again"), "caption": note}

    def _origins(self) -> Section:
        then, now = self.reader.versions(), versions()
        names = list(dict.fromkeys([*then, *now]))
        rows = [[name, then.get(name, "not noted"), now.get(name, "–")] for name in names]
        return parts.side_by_side(
            parts.code(
                write_config(self.config), title="All settings", filename="settings.toml",
                folded=True,
            ),
            parts.table(
                ["package", "begun with", "page made with"], rows, title="Versions", folded=True
            ),
        )  # fmt: skip

    @property
    def title(self) -> str:
        """What is searched for."""
        system = self.config.system
        if system.kind == "surface":
            return f"{system.formula} on {Path(system.template or '').stem}"
        if system.compositions:
            return f"{system.title} crystals"
        return f"{system.formula} crystal" if system.kind == "crystal" else system.formula

    def words(self) -> tuple[tuple[str, str], str]:
        """The badge, and what stands below the title."""
        word, text = made.state_words(self.state, len(self.records), self.budget)
        seed = f"seed {self.config.search.seed}"
        where = f"{self.config.engine.name} · {seed} · {self.directory}"
        return (word, made.BADGES[word]), f"{text} · {where}"

    def html(self, live: Mapping[str, Any] | None = None) -> str:
        """The whole page; see `page` for `live`. A hull stands after the first numbers."""
        badge, subtitle = self.words()
        first, *rest = self.sections()
        hull = hull_parts(self.directory, self.records, self.steps, self.structures, bool(live))
        now = time.strftime("%Y-%m-%d %H:%M")
        return page(
            self.title, [first, *hull.sections, *rest], structures=self.structures,
            data=[self.data(), *hull.data], badge=badge, subtitle=subtitle, live=live,
            footer="" if live else f"Made by nugget {nugget.__version__}, {now}.",
        )  # fmt: skip
