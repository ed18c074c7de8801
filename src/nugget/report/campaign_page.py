"""The page of a campaign: how often and how soon, cell by cell, and every search one click away."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np

from nugget import __version__
from nugget.campaign.results import Row
from nugget.campaign.run import CAMPAIGN, Campaign, Member
from nugget.campaign.summary import Group, compare, grouped, has_reference
from nugget.errors import NuggetError
from nugget.report.courses import CLOSE, Course, read_course
from nugget.report.page import Data, Structures, column, page, sections
from nugget.report.page.sections import Section

Progress = Callable[[int, int], None]
_DIGITS = (None, 4, 4, 0, 0, None, None)  # of the columns of the last table
_BANDS = 2  # more bands than these cannot be told from each other


@dataclass(frozen=True, eq=False)
class Searches:
    """A campaign with the courses of its searches, those that have begun."""

    campaign: Campaign
    rows: list[Row]  # of those that have ended
    courses: dict[Path, Course]

    @property
    def members(self) -> list[Member]:
        return [member for member in self.campaign.members if member.directory in self.courses]

    @property
    def judged(self) -> bool:
        return bool(self.rows) and has_reference(self.rows)

    def outcome(self, member: Member) -> Row | None:
        key = (member.cell.values, member.seed)
        return next((row for row in self.rows if (row.cell, row.seed) == key), None)

    def lowest(self) -> float | None:
        values = [c.best.value for c in self.courses.values() if c.best is not None]
        return min(values, default=None)


def read_searches(directory: Path, progress: Progress | None = None) -> Searches:
    """All searches of a campaign as they stand; nothing is run."""
    # No code of the campaign is run, so that none need be trusted.
    campaign = Campaign.resume(directory, trust=True)
    rows = campaign.collect()
    courses = {}
    for k, member in enumerate(campaign.members):
        # Not begun, or damaged: what is known of it is its outcome.
        with contextlib.suppress(NuggetError):
            courses[member.directory] = read_course(member.directory)
        if progress is not None:
            progress(k + 1, len(campaign.members))
    return Searches(campaign, rows, courses)


def campaign_page(found: Searches, pages: Mapping[Path, str] | None = None) -> str:
    """The page as HTML; `pages` are those of the searches, relative to it."""
    campaign, structures = found.campaign, Structures()
    numbers = [_add(found, member, structures) for member in found.members]
    groups = grouped(found.rows)
    parts = [_figures(found)]
    if found.judged:
        parts += [_success(groups), _cells(groups)]
    parts += [_progress(found), _best(found)]
    parts.append(_table(found, pages or {}))
    if found.judged and len(groups) > 1:
        parts.append(_tests(groups))
    settings = (campaign.directory / CAMPAIGN).read_text(encoding="utf-8", errors="replace")
    parts.append(sections.code(settings, title="Settings", filename=CAMPAIGN, folded=True))
    ended = len(found.rows) == len(campaign.members)
    config = campaign.base
    return page(
        f"{config.system.formula}, {config.engine.name}", parts, structures=structures,
        data=[_data(found, numbers)],
        subtitle=f"a campaign of {len(campaign.members)} searches, {campaign.directory}",
        badge=("finished", "good") if ended else ("not finished", "busy"),
        footer=f"nugget {__version__}",
    )  # fmt: skip


def address(folder: str, member: Member) -> str:
    """Of a search's page, below the folder beside the campaign's page; percent-encoded."""
    return quote(f"{folder}/{member.cell.name}/seed-{member.seed:04d}.html")


def _add(found: Searches, member: Member, structures: Structures) -> int | None:
    best = found.courses[member.directory].best
    if best is None:
        return None
    label = f"{_name(member)}: the lowest"
    return structures.add(best.atoms, label, {}, float(best.atoms.calc.results["energy"]))


def _name(member: Member) -> str:
    cell = "" if member.cell.name == "all" else f"{member.cell.name}, "
    return f"{cell}seed {member.seed}"


def _figures(found: Searches) -> Section:
    total, ended = len(found.campaign.members), len(found.rows)
    items = [("searches", f"{ended} of {total}", "have ended")]
    if found.judged:
        hits = sum(bool(row.outcome.found) for row in found.rows)
        items.append(("found", f"{hits} of {ended}", f"{hits / max(ended, 1):.0%}"))
    low = found.lowest()
    if low is not None:
        unit = next(iter(found.courses.values())).goal.unit
        items.append(("lowest energy", f"{low:.4f} {unit}", "of all searches"))
    evaluations = sum(course.evaluations for course in found.courses.values())
    failures = sum(course.failures for course in found.courses.values())
    items.append(("evaluations", f"{evaluations}", f"{failures} failed"))
    errors = sum(bool(row.outcome.error) for row in found.rows)
    if errors:
        items.append(("given up", f"{errors}", "searches that ended with an error"))
    return sections.figures(items)


def _success(groups: Sequence[Group]) -> Section:
    """Kaplan–Meier curves, with Greenwood's bands where they can be told apart."""
    curves = []
    for group in groups:
        curve = group.curve
        x = [0.0, *curve.times.tolist(), float(curve.last)]
        solved = [0.0, *(1 - curve.survival).tolist()]
        ends: list[list[float | None]] = []
        for side in (curve.high, curve.low):
            known = [None if np.isnan(v) else 1 - float(v) for v in side]
            ends.append([0.0, *known, known[-1] if known else 0.0])
        low, high = ends if len(groups) <= _BANDS else (None, None)
        name = group.name if len(groups) > 1 else "searches"
        curves.append(_curve(name, x, [*solved, solved[-1]], low, high))
    caption = "Share that had found the reference after so many evaluations (Kaplan and Meier)"
    caption += ", with 95 % bands." if len(groups) <= _BANDS else "; 95 % intervals in the table."
    return sections.plot(
        "", curves, title="Success", x=sections.axis("evaluations"),
        y=sections.axis("share found", limits=(0, 1.02)), caption=caption,
    )  # fmt: skip


def _curve(name: str, x: list[float], y: list[float], low: Any, high: Any) -> Section:
    return sections.curve(name, x, y, low, high, steps=True)


def _cells(groups: Sequence[Group]) -> Section:
    rows = []
    for group in groups:
        low, high = group.interval
        first, last = ("…" if v is None else str(v) for v in group.curve.median_interval)
        median = group.curve.median
        rows.append(
            [
                group.name, len(group.rows), group.hits, f"{group.success:.0%}",
                f"{low:.0%} to {high:.0%}", median,
                f"{first} to {last}" if median is not None else "–",
            ]
        )  # fmt: skip
    heads = [
        "cell", "searches", "found", "share", "95 %", "median evaluations", "95 % of the median",
    ]  # fmt: skip
    return sections.table(heads, rows, title="Cells")


def _progress(found: Searches) -> Section:
    """Best so far: the median of each cell, and the middle half of its searches."""
    low = found.lowest() or 0.0
    cells: dict[str, list[Course]] = {}
    for member in found.members:
        cells.setdefault(member.cell.name, []).append(found.courses[member.directory])
    curves, early = [], [CLOSE]
    for name, courses in cells.items():
        last = max(course.evaluations for course in courses)
        if not last:
            continue
        table = np.full((len(courses), last), np.inf)
        for row, course in zip(table, courses, strict=True):
            n = course.evaluations
            row[:n] = course.best_so_far - low
            row[n:] = row[n - 1] if n else np.inf  # a search that has ended keeps what it has
        with np.errstate(invalid="ignore"):
            sides = np.quantile(table, [0.25, 0.5, 0.75], axis=0, method="nearest")
        shown = [[float(v) if np.isfinite(v) else None for v in side] for side in sides]
        band = len(cells) <= _BANDS
        x = list(range(1, last + 1))
        curves.append(
            _curve(name, x, shown[1], shown[0] if band else None, shown[2] if band else None)  # type: ignore[arg-type]
        )
        early.append(max((v for v in shown[1][last // 10 :] if v is not None), default=0.0))
    unit = next(iter(found.courses.values())).goal.unit if found.courses else "eV"
    return sections.plot(
        "", curves, title="Best so far", x=sections.axis("evaluations"),
        y=sections.axis(f"above the lowest of all, {unit}", limits=(0, 1.2 * max(early))),
        caption="Medians over the searches of a cell"
        + (", and the middle half of them." if len(cells) <= _BANDS else "."),
    )  # fmt: skip


def _data(found: Searches, numbers: Sequence[int | None]) -> Data:
    members = found.members
    courses = [found.courses[member.directory] for member in members]
    outcomes = [found.outcome(member) for member in members]
    unit = courses[0].goal.unit if courses else "eV"
    low = found.lowest() or 0.0
    above = [None if c.best is None else c.best.value - low for c in courses]
    columns = {
        "cell": column([member.cell.name for member in members], "cell"),
        "seed": column([member.seed for member in members], "seed"),
        "above": column(above, "above the lowest of all", unit, 4),
        "to_best": column([course.to_best for course in courses], "evaluations to its lowest"),
        "evaluations": column([course.evaluations for course in courses], "evaluations"),
        "found": column([_found(row) for row in outcomes], "reference found"),
    }
    return Data("searches", columns, numbers)


def _found(row: Row | None) -> str:
    if row is None:
        return "not ended"
    if row.outcome.error:
        return "given up"
    return {None: "–", True: "yes", False: "no"}[row.outcome.found]


def _best(found: Searches) -> Section:
    low = found.lowest() or 0.0
    above = [c.best.value - low for c in found.courses.values() if c.best is not None]
    high = max(1.05 * max(above, default=0.0), 2 * CLOSE)
    unit = next(iter(found.courses.values())).goal.unit if found.courses else "eV"
    return sections.plot(
        "searches", [sections.points("to_best", "above")], title="Every search",
        x=sections.axis("evaluations to its lowest structure", limits=(0, None)),
        y=sections.axis(f"above the lowest of all, {unit}", limits=(-0.02 * high, high)),
        colors=["cell", "found"] if found.judged else ["cell"],
        caption="A click shows the lowest structure of a search.",
    )  # fmt: skip


def _table(found: Searches, pages: Mapping[Path, str]) -> Section:
    rows, links = [], []
    low = found.lowest()
    for member in found.campaign.members:
        course, row = found.courses.get(member.directory), found.outcome(member)
        best = None if course is None or course.best is None else course.best.value
        rows.append(
            [
                _name(member), best, None if best is None or low is None else best - low,
                None if course is None else course.to_best,
                0 if course is None else course.evaluations, _found(row),
                row.outcome.error if row is not None else "",
            ]
        )  # fmt: skip
        links.append(pages.get(member.directory))
    heads = ["search", "lowest", "above", "evaluations to it", "evaluations", "found", "error"]
    caption = "A click on a search opens its own page." if pages else ""
    return sections.table(
        heads, rows, title="Searches", links=links, caption=caption, digits=_DIGITS
    )


def _tests(groups: Sequence[Group]) -> Section:
    pairs = [(a, b) for k, a in enumerate(groups) for b in groups[k + 1 :]]
    rows = [
        [
            f"{test['a']} – {test['b']}", f"{test['success_difference']:+.0%}",
            float(f"{test['fisher_p_holm']:.2g}"), float(f"{test['logrank_p_holm']:.2g}"),
        ]
        for test in compare(pairs)
    ]  # fmt: skip
    heads = ["cells", "difference of success", "p, Fisher", "p, log-rank"]
    return sections.table(
        heads, rows, title="Tests between cells", folded=True,
        caption="Probabilities after Holm's correction for the number of pairs.",
    )  # fmt: skip
