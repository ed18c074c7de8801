"""The page of a search, and the command that repeats the search."""

from __future__ import annotations

import shlex
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ase import Atoms

import nugget
from nugget.errors import NuggetError
from nugget.report import search_sections as built
from nugget.report.digest import informed
from nugget.report.hull_sections import hull_parts, hull_so_far
from nugget.report.minima import AtomModel, Gallery, Low, Lowest, relaxed_ends
from nugget.report.page import Data, Structures, as_html, column, page_spec
from nugget.report.page import sections as parts
from nugget.report.page.sections import Section
from nugget.report.phase_diagram_sections import diagram_parts
from nugget.report.search_sections import NAME, Evaluations, StructureMap
from nugget.report.search_verdict import SearchFacts, search_verdict
from nugget.report.verdict import Verdict
from nugget.search.knowledge import read_knowledge
from nugget.search.record import PolishStep, Record
from nugget.search.search_settings import Config, make_config, toml_value, write_config
from nugget.search.stop import RediscoveryCounter
from nugget.search.store import DATABASE, Reader, State
from nugget.search.surrogate import make_potential
from nugget.storage.database import versions
from nugget.systems.grand_canonical import VariedAtoms
from nugget.systems.system_settings import kind_of, make_goal, make_system

#: Settings with an option of their own in `nugget search`.
_FLAGS = {
    "engine.name": "--engine",
    "search.budget": "--budget",
    "search.seed": "--seed",
    "search.kappa": "--kappa",
    "search.in_flight": "--in-flight",
    "search.candidates": "--candidates",
    "system.pressure": "--pressure",
    "system.template": "--template",
    "system.vary": "--vary",
    "system.chemical_potential": "--chemical-potential",
    "system.reservoirs": "--reservoirs",
    "system.temperature": "--temperature",
    "system.partial_pressures": "--partial-pressures",
}
_ALWAYS = ("engine.name", "search.budget", "search.seed")
_FILES = ("system.template", "search.reference", "search.start", "search.learn", "model.baseline")


def command(config: Config, directory: Path, out: str = "again") -> list[str]:
    """`nugget search …` with every setting that differs from its default."""
    system = config.system
    words, kind = ["nugget", "search"], system.kind
    start: dict[str, Any] = {"system": {"formula": system.formula}}
    if system.vary is None:
        words.append(system.formula)
    else:
        start["system"]["vary"] = system.vary
    if flag := kind_of(config.system).flag:  # such kinds have defaults of their own
        words.append(flag)
        start["system"]["kind"] = kind
    defaults = make_config(start).model_dump()
    files = _present_files(config, directory)
    for section, options in config.model_dump(exclude={"execution"}).items():
        for name, value in options.items():
            key = f"{section}.{name}"
            value = files.get(key, value)
            if key == "system.formula" or value is None:
                continue
            if value == defaults[section][name] and key not in (*_ALWAYS, "system.vary"):
                continue
            if key in _FLAGS:
                words += [_FLAGS[key], str(value)]
            else:
                words += ["--set", f"{key}={toml_value(value)}"]
    return [*words, "--out", out]


def _present_files(config: Config, directory: Path) -> dict[str, str]:
    """Settings that name files in the run directory, with their paths from here."""
    files = {}
    for key in _FILES:
        section, name = key.split(".")
        value = getattr(getattr(config, section), name)
        if isinstance(value, str) and (directory / value).is_file():
            files[key] = str(directory / value)
    return files


def _placed_atoms(problem: VariedAtoms, atoms: Atoms) -> str:
    return problem.name_of(problem.placed(atoms))


def as_line(words: list[str]) -> str:
    """A shell command with a line break before every option."""
    text = ""
    for word in words:
        text += (" \\\n    " if word.startswith("--") else " " if text else "") + shlex.quote(word)
    return text


class SearchPage:
    """Reads a search, repeatedly if it is running, and builds its page.

    Nothing is written to the run directory. Code that its settings name runs only with `trust`.
    """

    grows = True  # structures are only appended

    def __init__(self, directory: Path, trust: bool = False, live: bool = False) -> None:
        self.reader = Reader(directory)
        self.directory, self.trust, self.live = directory, trust, live
        self.config = self.reader.config()
        self.goal = make_goal(self.config.system)
        problem = self._problem = make_system(self.config.system, directory)
        # The descriptor does not need the mean function, which may be untrusted code.
        plain = self.config.model.model_copy(update={"baseline": "none", "baseline_options": {}})
        self.map = StructureMap(make_potential(plain, problem, 0, directory).descriptor)
        self.structures = Structures()
        self.evaluations = Evaluations(self.goal, self.structures)
        self.steps: list[PolishStep] = []
        named = None
        if isinstance(problem, VariedAtoms):
            named = partial(_placed_atoms, problem)
        self.gallery = Gallery(self.structures, self.goal, named)
        self.films = built.RelaxationFilms(self.structures)
        self._lowest = Lowest(self.goal)
        self.rediscoveries = RediscoveryCounter(self._learned(problem))
        self.state = State()
        self._model: AtomModel | None = None
        self._no_model = ""
        self._modelled = -1
        self._low: list[Low] = []
        self._sections: list[Section] | None = None
        self._constant = [self._command(), self._provenance()]

    def _learned(self, problem: Any) -> Sequence[Record]:
        try:
            return read_knowledge(self.config, problem, self.directory).learned
        except NuggetError:  # the page does not need them
            return ()

    @property
    def records(self) -> list[Record]:
        return self.evaluations.records

    def replaced(self) -> bool:
        """Whether the directory holds another search now."""
        return self.reader.replaced()

    def last_change(self) -> float | None:
        """The time of the last evaluation, 0 before the first; None if the search has ended."""
        if not self._running:
            return None
        try:
            return (self.directory / DATABASE).stat().st_mtime
        except OSError:
            return 0.0

    def read(self) -> bool:
        """Read new evaluations; True if anything has changed."""
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
            self.rediscoveries.add(record)
        if records or steps:
            self._lowest.add(records)
            ends = relaxed_ends(self.directory)
            self._low = self._lowest.chosen(self.records, self.steps, ends)
        self._sections = self._build_sections()
        return True

    def _inform(self, records: Sequence[Record], steps: Sequence[PolishStep]) -> None:
        """Update the goal, whose convex hull may be lower now; existing rows keep their values."""
        goal = informed(self.goal, records, steps)
        if goal is not self.goal:
            self.goal = self.evaluations.goal = self.gallery.goal = goal
            self._lowest = Lowest(goal)
            self._lowest.add(self.records)

    def _fit_model(self, news: Sequence[Record]) -> None:
        """Fit a model for values per atom once the search has ended."""
        records = [*self.records, *news]
        if self._running:
            self._model, self._no_model, self._modelled = None, "", -1
        elif len(records) != self._modelled:
            self._modelled = len(records)
            try:  # the page is written without the model as well
                self._model = AtomModel.of(self.config, self.directory, records, self.trust)
                self._no_model = ""
            except NuggetError as error:
                self._model, self._no_model = None, str(error)

    @property
    def _running(self) -> bool:
        """Slow work (model, symmetries) is skipped while the search runs."""
        return self.state.doing == "running"

    @property
    def budget(self) -> int:
        asked = self.state.budget or self.config.search.budget
        return max(asked, len(self.records))

    def data(self) -> Data:
        """All rows, with their coordinates on the map."""
        table = self.evaluations.data()
        x, y = self.map.coordinates()
        places = {"map_x": x, "map_y": y}
        more = {name: column(v, shown=False, digits=3) for name, v in places.items()}
        return Data(NAME, {**table.columns, **more}, table.structures)

    def sections(self) -> list[Section]:
        """The sections from top to bottom."""
        return self._sections or self._build_sections()

    def _build_sections(self) -> list[Section]:
        records, steps, goal = self.records, self.steps, self.goal
        rows = self.evaluations.rows
        gallery = self.gallery.section(self._low, rows, self._model, self._no_model, self._running)
        shown = [item["structure"] for item in gallery["items"]]
        rungs, ladder = built.ladder(self._low, shown, goal)
        path, relaxation = self.films.parts(records, steps, self._low, goal)
        self._more_data = [path, rungs]
        return [
            parts.verdict(self.verdict().to_dict()),
            *([hull_so_far(goal.hull)] if self.live and goal.hull is not None else []),
            gallery,
            parts.heading("Search"),
            built.energies(goal),  # sections of their own: a live page replaces only what changes
            ladder,
            built.landscape(),
            built.spent(records, steps, make_goal(self.config.system)),
            parts.heading("Trust"),
            built.expectations(goal),
            built.failed(records, steps, rows),
            parts.heading("Structures"),
            *relaxation,
            parts.rows(NAME, title="All evaluations"),
            parts.heading("Provenance"),
            *self._constant,
        ]

    def verdict(self) -> Verdict:
        """The verdict about the search so far."""
        counts = self._problem.counts_rediscoveries
        sure = self.rediscoveries.confidence() if counts else None
        facts = SearchFacts.of(
            self.directory, self.config, self.goal, self.records, self.steps, self._low, sure,
            self.state, self.reader.checks(),
        )  # fmt: skip
        return search_verdict(facts)

    def _command(self) -> Section:
        line = as_line(command(self.config, self.directory))
        note = "With the same seed and versions the search is repeated bit by bit."
        if self.config.search.in_flight > 1:
            note = (
                "Several evaluations ran at the same time. The order in which they end determines "
                "the course of the search, so a repeated run may differ."
            )
        return {**parts.code(line, title="Command that repeats this search"), "caption": note}

    def _provenance(self) -> Section:
        then, now = self.reader.versions(), versions()
        names = list(dict.fromkeys([*then, *now]))
        rows = [[name, then.get(name, "not recorded"), now.get(name, "–")] for name in names]
        heads = ["package", "search started with", "page written with"]
        text, file = write_config(self.config), "settings.toml"
        return parts.side_by_side(
            parts.code(text, title="All settings", filename=file, folded=True),
            parts.table(heads, rows, title="Versions", folded=True),
        )

    @property
    def title(self) -> str:
        """The system of the search."""
        system = self.config.system
        return f"Search for {kind_of(system).title(system)}"

    def badge_and_subtitle(self) -> tuple[tuple[str, str], str]:
        """The badge, and the text below the title."""
        word, text = built.state_words(self.state, len(self.records), self.budget)
        seed = f"seed {self.config.search.seed}"
        where = f"{self.config.engine.name} · {seed} · {self.directory}"
        return (word, built.BADGES[word]), f"{text} · {where}"

    def spec(self, live: Mapping[str, Any] | None = None) -> dict[str, Any]:
        """The page as plain data; see `page_spec` for `live`. A hull follows the verdict."""
        badge, subtitle = self.badge_and_subtitle()
        verdict, *rest = self.sections()
        hull_data, hull_sections = hull_parts(
            self.directory, self.records, self.steps, self.structures, self.goal, bool(live)
        )
        diagram_data, diagram = diagram_parts(self.directory, self.structures, bool(live))
        now = time.strftime("%Y-%m-%d %H:%M")
        return page_spec(
            self.title, [verdict, *hull_sections, *diagram, *rest], structures=self.structures,
            data=[self.data(), *self._more_data, *hull_data, *diagram_data], badge=badge,
            subtitle=subtitle, live=live,
            footer="" if live else f"Made by nugget {nugget.__version__}, {now}.",
        )  # fmt: skip

    def html(self, live: Mapping[str, Any] | None = None) -> str:
        """The page as HTML."""
        return as_html(self.spec(live))
