"""Pages about several searches: those of a campaign, and searches compared by `nugget compare`."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from nugget import __version__
from nugget.campaign.campaign import CAMPAIGN, Campaign, Member
from nugget.campaign.results import Row
from nugget.campaign.statistics import Group, compare, grouped, has_reference
from nugget.display import Progress, counted, duration
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.report.digest import fixed, informed
from nugget.report.minima import COUNT, Low, Lowest, symmetry
from nugget.report.page import Data, Structures, column, page, page_spec, sections
from nugget.report.page.sections import Section
from nugget.report.run_verdicts import campaign_verdict
from nugget.report.search_verdict import reported
from nugget.search.search_settings import Config
from nugget.search.store import Reader, State
from nugget.systems.goal import Goal
from nugget.systems.system_settings import make_goal

#: Energies this close count as equal (eV, or eV/atom for crystals) if the bonds are the same.
CLOSE = 0.05

_FLOOR = 1e-4  # eV; smaller differences stand at the foot of logarithmic axes

#: Bands of more curves than this cannot be distinguished.
_BANDS = 2

_CAMPAIGN_DIGITS = (None, 4, 4, 0, 0, None, None)


# ------------------------------------------------------------------ the course of one search


@dataclass(frozen=True, eq=False)
class Course:
    """The energies of one search so far, and its lowest structure."""

    directory: Path
    config: Config
    state: State
    values: Floats  # minimised quantity of each evaluation; NaN for failures
    best: Low | None  # after the final relaxation, if there was one
    relaxing: int  # evaluations of the final relaxation
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
        """The lowest value up to each evaluation; infinite before the first."""
        values: Floats = np.where(np.isnan(self.values), np.inf, self.values)
        return np.asarray(np.minimum.accumulate(values)) if len(values) else values

    @property
    def to_best(self) -> int | None:
        """The evaluation of the lowest structure or of its unrelaxed form, counted from 1."""
        return None if self.best is None or self.best.start < 0 else self.best.start + 1

    def to_reach(self, value: float) -> int | None:
        """Evaluations until this value or a lower one; final relaxations count as the last."""
        hits = np.flatnonzero(self.best_so_far <= value)
        if len(hits):
            return int(hits[0]) + 1
        return self.evaluations if self.best is not None and self.best.value <= value else None


def read_course(directory: Path) -> Course:
    """Read a search, running or not; nothing is written and none of its code is run."""
    reader = Reader(directory)
    config, state = reader.config(), reader.state()
    records, steps = reader.news()
    goal = informed(make_goal(config.system), records, steps)
    values = [goal.value(r.atoms, r.energy) if r.ok else np.nan for r in records]
    low = Lowest(goal, COUNT)
    low.add(records)
    best = reported(directory, goal, low.chosen(records, steps))
    seconds = [sum(r.engine_seconds for r in records), sum(r.surrogate_seconds for r in records)]
    return Course(directory, config, state, np.array(values, float), best, len(steps), *seconds)


def _add_best(course: Course, label: str, structures: Structures) -> int | None:
    """The lowest structure of a search on the page."""
    if course.best is None:
        return None
    atoms = course.best.atoms
    return structures.add(atoms, label, {}, float(atoms.calc.results["energy"]))


def _best_so_far(
    groups: Mapping[str, Sequence[Course]], low: float, unit: str, caption: str
) -> Section:
    """Best so far: the median of each group, with the interquartile range of one or two groups."""
    has_bands = len(groups) <= _BANDS and any(len(courses) > 1 for courses in groups.values())
    curves = []
    for name, courses in groups.items():
        last = max(course.evaluations for course in courses)
        if not last:
            continue
        table = np.full((len(courses), last), np.inf)
        for row, course in zip(table, courses, strict=True):
            n = course.evaluations
            row[:n] = course.best_so_far - low
            row[n:] = row[n - 1] if n else np.inf  # a finished search keeps its best
        with np.errstate(invalid="ignore"):
            sides = np.quantile(table, [0.25, 0.5, 0.75], axis=0, method="nearest")
        lower, median, upper = [[float(v) if np.isfinite(v) else None for v in s] for s in sides]
        x = list(range(1, last + 1))
        low_side, high_side = (lower, upper) if has_bands else (None, None)
        curves.append(sections.curve(name, x, median, low_side, high_side, steps=True))
    return sections.plot(
        "", curves, title="Best so far", x=sections.axis("evaluations", integer=True),
        y=sections.axis(f"above the lowest of all, {unit}", scale="log", floor=_FLOOR),
        caption=caption, span="half",
    )  # fmt: skip


# ------------------------------------------------------------------ nugget compare


@dataclass(frozen=True, eq=False)
class Comparison:
    """Several searches side by side."""

    courses: list[Course]
    names: list[str]  # the shortest distinct ones
    kinds: list[int | None]  # equal numbers for the same structure; None without a structure
    differing: dict[str, list[str]]  # settings that differ between the searches

    @property
    def lowest(self) -> float | None:
        """The lowest value of all."""
        return min((c.best.value for c in self.courses if c.best is not None), default=None)

    @property
    def comparable(self) -> bool:
        """Whether system, engine and pressure agree; searches with a hull are never comparable."""
        first = self.courses[0].config
        same = ("formula", "kind", "pressure", "units")
        if first.system.compositions is not None or first.system.vary is not None:
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
        rows = []
        for course, name, kind in zip(self.courses, self.names, self.kinds, strict=True):
            best = course.best
            reach = course.to_reach(low + CLOSE) if low is not None and self.comparable else None
            row = {
                "run": name,
                "directory": str(course.directory),
                "state": course.state.doing,
                "evaluations": course.evaluations,
                "failures": course.failures,
                "best": None if best is None else best.value,
                "above_lowest": None if best is None or low is None else best.value - low,
                "relaxed": best is not None and best.polished,
                "evaluations_to_best": course.to_best,
                "evaluations_to_lowest": reach,
                "structure": None if kind is None else letter(kind),
                "unit": course.goal.unit,
            }
            rows.append(row)
        return rows


def compared(directories: Sequence[Path]) -> Comparison:
    """Read searches for a comparison."""
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
    """The last parts of the paths, as many as make the names distinct."""
    for depth in range(1, max(len(path.parts) for path in paths) + 1):
        names = ["/".join(path.parts[-depth:]) for path in paths]
        if len(set(names)) == len(names):
            return names
    return [str(path.resolve()) for path in paths]


def _kinds(courses: Sequence[Course]) -> list[int | None]:
    """Equal numbers for searches with the same lowest structure; 0 is the lowest of all."""
    order = sorted(
        (k for k, course in enumerate(courses) if course.best is not None),
        key=lambda k: courses[k].best.value,  # type: ignore[union-attr]
    )
    kinds: list[int | None] = [None] * len(courses)
    seen: list[int] = []
    for k in order:
        same = [one for one in seen if _same(courses[k], courses[one])]
        if same:
            kinds[k] = kinds[same[0]]
        else:
            kinds[k] = len(seen)
            seen.append(k)
    return kinds


def _same(a: Course, b: Course) -> bool:
    """The same bonds or crystal, and about the same energy."""
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


def _flat(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in settings.items():
        if isinstance(value, dict) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}", value


#: Shown instead of a silent comparison of unlike energies.
NOT_COMPARABLE = (
    "These searches differ in system, pressure or engine, or have a convex hull each. Their "
    "energies cannot be compared."
)


def compare_page(comparison: Comparison) -> str:
    """The page as HTML."""
    structures = Structures()
    named = dict(zip(comparison.names, comparison.courses, strict=True))
    numbers = [_add_best(one, f"lowest of {name}", structures) for name, one in named.items()]
    formulas = dict.fromkeys(course.config.system.formula for course in comparison.courses)
    engines = dict.fromkeys(course.config.engine.name for course in comparison.courses)
    parts = [
        *([] if comparison.comparable else [sections.text(NOT_COMPARABLE)]),
        _comparison_table(comparison, numbers),
        _best_so_far(
            {name: [course] for name, course in named.items()},
            comparison.lowest or 0.0,
            comparison.courses[0].goal.unit,
            "Energies as evaluated; final relaxations are included in the table only.",
        ),
        _times(comparison),
        _gallery(comparison, numbers),
        _differing_settings(comparison),
    ]
    return page(
        f"Searches for {' and '.join(formulas)}", parts, structures=structures,
        data=[_comparison_data(comparison, numbers)],
        subtitle=f"{len(comparison.courses)} searches compared, {', '.join(engines)}",
        footer=f"nugget {__version__}",
    )  # fmt: skip


def _comparison_data(comparison: Comparison, numbers: list[int | None]) -> Data:
    unit = comparison.courses[0].goal.unit
    shown: dict[str, tuple[Any, ...]] = {
        "run": ("run", "search"),
        "best": ("best", "lowest", unit, 4),
        "above": ("above_lowest", "above the lowest", unit, 4),
        "to_best": ("evaluations_to_best", "evaluations to it"),
        "structure": ("structure", "structure"),
    }
    rows = comparison.rows()
    columns = {
        name: column([row[key] for row in rows], *how) for name, (key, *how) in shown.items()
    }
    return Data("searches", columns, numbers)


def _comparison_table(comparison: Comparison, numbers: list[int | None]) -> Section:
    unit = comparison.courses[0].goal.unit
    shown: dict[str, tuple[str, int | None]] = {  # heading and decimals of each column
        "run": ("search", None),
        "best": (f"lowest, {unit}", 4),
        "above_lowest": (f"above the lowest of all, {unit}", 4),
        "structure": ("structure", None),
        "evaluations_to_best": ("evaluations to it", 0),
        "evaluations_to_lowest": (f"to within {CLOSE} {unit} of the lowest", 0),
        "evaluations": ("evaluations", 0),
        "failures": ("failed", 0),
        "state": ("state", None),
    }
    heads, digits = zip(*shown.values(), strict=True)
    rows = [[row[key] for key in shown] for row in comparison.rows()]
    caption = (
        "Searches with the same letter have the same lowest structure: the same bonds (or "
        f"crystal) and energies within {CLOSE} {unit}. Click a row to see it."
    )
    return sections.table(
        heads, rows, title="Lowest energies", structures=numbers, digits=digits, caption=caption
    )


def _times(comparison: Comparison) -> Section:
    items = []
    for name, course in zip(comparison.names, comparison.courses, strict=True):
        seconds = course.engine_seconds + course.surrogate_seconds
        share = course.engine_seconds / seconds if seconds else 0.0
        items.append((name, seconds, f"{duration(seconds)}, {share:.0%} engine"))
    return sections.bars(items, title="Time", span="half")


def _gallery(comparison: Comparison, numbers: list[int | None]) -> Section:
    """One structure of each kind, the lowest first."""
    items = []
    for kind in range(len({kind for kind in comparison.kinds if kind is not None})):
        members = [k for k, other in enumerate(comparison.kinds) if other == kind]
        bests = {k: best for k in members if (best := comparison.courses[k].best) is not None}
        k = min(bests, key=lambda k: bests[k].value)
        facts = [("lowest", f"{fixed(bests[k].value)} {comparison.courses[k].goal.unit}")]
        name, symbol = symmetry(bests[k].atoms)
        facts += [(name, symbol)] if symbol else []
        facts.append(("found by", ", ".join(comparison.names[member] for member in members)))
        items.append(sections.item(numbers[k] or 0, f"Structure {letter(kind)}", facts))
    return sections.gallery(items, title="Structures", empty="No search has an energy yet.")


def _differing_settings(comparison: Comparison) -> Section:
    rows = [[name, *values] for name, values in comparison.differing.items()]
    empty = "The settings are identical."
    heads = ["setting", *comparison.names]
    return sections.table(heads, rows, title="Settings that differ", empty=empty)


# ------------------------------------------------------------------ campaigns


@dataclass(frozen=True, eq=False)
class CampaignSearches:
    """A campaign with the courses of the searches that have started."""

    campaign: Campaign
    rows: list[Row]  # of finished searches
    courses: dict[Path, Course]

    @property
    def members(self) -> list[Member]:
        return [member for member in self.campaign.members if member.directory in self.courses]

    @property
    def has_reference(self) -> bool:
        return bool(self.rows) and has_reference(self.rows)

    def outcome(self, member: Member) -> Row | None:
        key = (member.setting.values, member.seed)
        return next((row for row in self.rows if (row.setting, row.seed) == key), None)

    @property
    def unit(self) -> str:
        return make_goal(self.campaign.base.system).unit

    def lowest(self) -> float | None:
        values = [c.best.value for c in self.courses.values() if c.best is not None]
        return min(values, default=None)


def read_searches(directory: Path, progress: Progress | None = None) -> CampaignSearches:
    """Read all searches of a campaign; nothing is run."""
    # No code of the campaign is run, so no trust is needed.
    campaign = Campaign.resume(directory, trust=True)
    rows = campaign.collect()
    courses = {}
    for k, member in enumerate(campaign.members):
        # A search that has not started or is damaged has an outcome at most.
        with contextlib.suppress(NuggetError):
            courses[member.directory] = read_course(member.directory)
        if progress is not None:
            progress(k + 1, len(campaign.members))
    return CampaignSearches(campaign, rows, courses)


def campaign_spec(
    searches: CampaignSearches, pages: Mapping[Path, str] | None = None
) -> dict[str, Any]:
    """The page as plain data; `pages` are the addresses of the pages of the searches."""
    campaign, structures = searches.campaign, Structures()
    numbers = [
        _add_best(searches.courses[m.directory], f"{_name(m)}", structures)
        for m in searches.members
    ]
    groups = grouped(searches.rows)
    judged = campaign_verdict(campaign, searches.rows, searches.unit)
    parts = [sections.verdict(judged.to_dict())]
    if searches.has_reference:
        parts += [_success(groups), _settings_table(groups)]
    parts += [_progress(searches), _best(searches)]
    parts.append(_campaign_table(searches, pages or {}))
    if searches.has_reference and len(groups) > 1:
        parts.append(_tests(groups))
    settings = (campaign.directory / CAMPAIGN).read_text(encoding="utf-8", errors="replace")
    parts.append(sections.code(settings, title="Settings", filename=CAMPAIGN, folded=True))
    ended = len(searches.rows) == len(campaign.members)
    config, count = campaign.base, counted(len(campaign.members), "search", "searches")
    return page_spec(
        f"Campaign for {config.system.title}", parts, structures=structures,
        data=[_campaign_data(searches, numbers)],
        subtitle=f"{count} · {config.engine.name} · {campaign.directory}",
        badge=("finished", "good") if ended else ("not finished", "busy"),
        footer=f"nugget {__version__}",
    )  # fmt: skip


def address(folder: str, member: Member) -> str:
    """The percent-encoded address of a search's page in the folder beside the campaign's page."""
    return quote(f"{folder}/{member.setting.name}/seed-{member.seed:04d}.html")


def _name(member: Member) -> str:
    cell = "" if member.setting.name == "all" else f"{member.setting.name}, "
    return f"{cell}seed {member.seed}"


def _success(groups: Sequence[Group]) -> Section:
    """Kaplan–Meier curves, with Greenwood bands if there are one or two."""
    curves = []
    for group in groups:
        curve = group.curve
        x = [0.0, *curve.times.tolist(), float(curve.last)]
        solved = [0.0, *(1 - curve.survival).tolist()]
        ends: list[list[float | None]] = []
        for side in (curve.high, curve.low):
            shares = [None if np.isnan(v) else 1 - float(v) for v in side]
            ends.append([0.0, *shares, shares[-1] if shares else 0.0])
        low, high = ends if len(groups) <= _BANDS else (None, None)
        name = group.name if len(groups) > 1 else "searches"
        curves.append(sections.curve(name, x, [*solved, solved[-1]], low, high, steps=True))
    caption = "Share of searches that have found the reference (Kaplan–Meier)"
    caption += ", with 95% bands." if len(groups) <= _BANDS else "; 95% intervals in the table."
    return sections.plot(
        "", curves, title="Success", x=sections.axis("evaluations"),
        y=sections.axis("share found", limits=(0, 1.02)), caption=caption,
    )  # fmt: skip


def _settings_table(groups: Sequence[Group]) -> Section:
    rows = []
    for group in groups:
        low, high = group.interval
        first, last = ("…" if v is None else str(v) for v in group.curve.median_interval)
        median = group.curve.median
        share = [f"{group.success:.0%}", f"{low:.0%} to {high:.0%}"]
        between = f"{first} to {last}" if median is not None else "–"
        rows.append([group.name, len(group.rows), group.hits, *share, median, between])
    heads = ["setting", "searches", "found", "share", "95%"]
    heads += ["median evaluations", "95% of the median"]
    return sections.table(heads, rows, title="Settings compared")


def _progress(searches: CampaignSearches) -> Section:
    """Best so far, by setting."""
    groups: dict[str, list[Course]] = {}
    for member in searches.members:
        groups.setdefault(member.setting.name, []).append(searches.courses[member.directory])
    caption = "Before the final relaxations. Median over the searches of a setting"
    caption += ", with the interquartile range." if len(groups) <= _BANDS else "."
    return _best_so_far(groups, searches.lowest() or 0.0, searches.unit, caption)


def _campaign_data(searches: CampaignSearches, numbers: Sequence[int | None]) -> Data:
    members = searches.members
    courses = [searches.courses[member.directory] for member in members]
    outcomes = [searches.outcome(member) for member in members]
    unit = searches.unit
    low = searches.lowest() or 0.0
    above = [None if c.best is None else c.best.value - low for c in courses]
    columns = {
        "cell": column([member.setting.name for member in members], "setting"),
        "seed": column([member.seed for member in members], "seed"),
        "above": column(above, "above the lowest of all", unit, 4),
        "to_best": column([course.to_best for course in courses], "evaluations to its lowest"),
        "evaluations": column([course.evaluations for course in courses], "evaluations"),
        "found": column([_found(row) for row in outcomes], "reference found"),
    }
    return Data("searches", columns, numbers)


def _found(row: Row | None) -> str:
    if row is None:
        return "not finished"
    if row.outcome.error:
        return "given up"
    return {None: "–", True: "yes", False: "no"}[row.outcome.found]


def _best(searches: CampaignSearches) -> Section:
    low = searches.lowest() or 0.0
    above = [c.best.value - low for c in searches.courses.values() if c.best is not None]
    high = max(1.05 * max(above, default=0.0), 10 * _FLOOR)
    unit = searches.unit
    return sections.plot(
        "searches", [sections.points("to_best", "above")], title="Every search", span="half",
        x=sections.axis("evaluations to its lowest structure", limits=(0, None)),
        y=sections.axis(f"above the lowest of all, {unit}", limits=(-0.02 * high, high)),
        colors=["cell", "found"] if searches.has_reference else ["cell"],
        caption="Click a point to see the lowest structure of a search.",
    )  # fmt: skip


def _campaign_table(searches: CampaignSearches, pages: Mapping[Path, str]) -> Section:
    rows, links = [], []
    low = searches.lowest()
    for member in searches.campaign.members:
        course, row = searches.courses.get(member.directory), searches.outcome(member)
        best = None if course is None or course.best is None else course.best.value
        above = None if best is None or low is None else best - low
        counts = [None, 0] if course is None else [course.to_best, course.evaluations]
        error = row.outcome.error if row is not None else ""
        rows.append([_name(member), best, above, *counts, _found(row), error])
        links.append(pages.get(member.directory))
    unit = searches.unit
    heads = ["search", f"lowest, {unit}", f"above the lowest of all, {unit}"]
    heads += ["evaluations to it", "evaluations", "found", "error"]
    if not any(row[-1] for row in rows):
        heads, rows = heads[:-1], [row[:-1] for row in rows]
    caption = "Click a search to open its page." if pages else ""
    return sections.table(
        heads, rows, title="Searches", links=links, caption=caption, digits=_CAMPAIGN_DIGITS
    )


def _tests(groups: Sequence[Group]) -> Section:
    pairs = list(combinations(groups, 2))
    rows = []
    for test in compare(pairs):
        p = [float(f"{test[f'{name}_p_holm']:.2g}") for name in ("fisher", "logrank")]
        rows.append([f"{test['a']} – {test['b']}", f"{test['success_difference']:+.0%}", *p])
    heads = ["settings", "difference of success", "p, Fisher", "p, log-rank"]
    caption = "p values with Holm's correction for the number of pairs."
    return sections.table(heads, rows, title="Tests between settings", folded=True, caption=caption)
