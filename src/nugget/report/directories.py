"""What a directory holds, and the page that belongs to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote

from nugget.campaign.run import CAMPAIGN
from nugget.errors import NuggetError
from nugget.onthefly.directory import RUN
from nugget.search.store import DATABASE, SETTINGS
from nugget.structures.sealed import read_sealed

Kind = Literal["search", "campaign", "md", "neb"]
Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class Pages:
    """A page, others that it links to (paths relative to it), and numbers to tell."""

    html: str
    numbers: dict[str, Any]
    others: dict[str, Callable[[], str]] = field(default_factory=dict)


def kind_of(directory: Path) -> Kind:
    """What `nugget` wrote into this directory."""
    if not directory.is_dir():
        raise NuggetError(f"{directory} is no directory: give one that nugget has written.")
    if (directory / CAMPAIGN).exists():
        return "campaign"
    if (directory / RUN).exists():
        kind = read_sealed(directory / RUN, "start the run anew").get("kind")
        known: dict[object, Kind] = {"md": "md", "neb": "neb"}
        if kind not in known:
            raise NuggetError(f"{directory / RUN} is of an unknown kind: {kind}.")
        return known[kind]
    if (directory / SETTINGS).exists() or (directory / DATABASE).exists():
        return "search"
    raise NuggetError(
        f"{directory} holds neither a search nor a campaign nor a run of `nugget md` or `nugget "
        "neb`: give a directory that one of them has written."
    )


def make_pages(
    directory: Path, name: str, trust: bool = False, searches: bool = True,
    progress: Progress | None = None,
) -> Pages:  # fmt: skip
    """The page of whatever a directory holds.

    `name` is that of the page without its ending: pages of a campaign's searches are in a folder
    of that name beside it, unless `searches` says that there shall be none.
    """
    kind = kind_of(directory)
    if kind == "search":
        html, evaluations = _search(directory, trust)
        return Pages(html, {"kind": kind, "evaluations": evaluations})
    if kind == "campaign":
        return _campaign(directory, name, trust, searches, progress)
    if kind == "md":
        from nugget.report.md_page import md_page

        return Pages(md_page(directory), {"kind": kind})
    from nugget.report.path_page import path_page

    return Pages(path_page(directory), {"kind": kind})


def _search(directory: Path, trust: bool) -> tuple[str, int]:
    from nugget.report.search_page import SearchPage

    made = SearchPage(directory, trust)
    made.read()
    return made.html(), len(made.records)


def _campaign(
    directory: Path, name: str, trust: bool, searches: bool, progress: Progress | None
) -> Pages:
    from nugget.report.campaign_page import address, campaign_page, read_searches

    found = read_searches(directory, progress)
    wanted = found.members if searches else []
    links = {member.directory: address(name, member) for member in wanted}
    others: dict[str, Callable[[], str]] = {
        unquote(link): (lambda place=place: _search(place, trust)[0])  # type: ignore[misc]
        for place, link in links.items()
    }
    numbers = {"kind": "campaign", "searches": len(found.campaign.members)}
    return Pages(campaign_page(found, links), numbers, others)
