"""The kind of a run directory, and the pages that belong to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast
from urllib.parse import unquote

from nugget.campaign.campaign import CAMPAIGN
from nugget.display import Progress
from nugget.errors import NuggetError
from nugget.onthefly.run_directory import RUN
from nugget.report.page.document import as_html
from nugget.search.store import DATABASE, SETTINGS
from nugget.storage.files import read_sealed

if TYPE_CHECKING:
    from nugget.report.search_page import SearchPage

Kind = Literal["search", "campaign", "md", "neb", "saddle"]


@dataclass(frozen=True)
class Pages:
    """A page, the pages that it links to (by relative path), and numbers for JSON output."""

    html: str
    numbers: dict[str, Any]
    others: Mapping[str, Callable[[], str]] = field(default_factory=dict)


def _md(directory: Path) -> dict[str, Any]:
    from nugget.report.md_page import md_spec

    return md_spec(directory)


def _neb(directory: Path) -> dict[str, Any]:
    from nugget.report.path_page import path_spec

    return path_spec(directory)


def _saddle(directory: Path) -> dict[str, Any]:
    from nugget.report.saddle_page import saddle_spec

    return saddle_spec(directory)


def _overview(directory: Path) -> dict[str, Any]:
    """The page of a campaign without pages of its searches."""
    from nugget.report.searches_page import campaign_spec, read_searches

    return campaign_spec(read_searches(directory))


#: The page of each kind as plain data. Searches have a class of their own, which reads on.
SPECS: dict[str, Callable[[Path], dict[str, Any]]] = {
    "campaign": _overview,
    "md": _md,
    "neb": _neb,
    "saddle": _saddle,
}


def kind_of(directory: Path) -> Kind:
    """The command that wrote this directory."""
    if not directory.is_dir():
        raise NuggetError(f"{directory} is no directory; give one that nugget has written.")
    if (directory / CAMPAIGN).exists():
        return "campaign"
    if (directory / RUN).exists():
        kind = read_sealed(directory / RUN, "start the run again").get("kind")
        if kind in SPECS:
            return cast(Kind, kind)
        raise NuggetError(f"{directory / RUN} is of an unknown kind: {kind}.")
    if (directory / SETTINGS).exists() or (directory / DATABASE).exists():
        return "search"
    raise NuggetError(
        f"{directory} holds neither a search nor a campaign nor a run of `nugget md`, `neb` or "
        "`saddle`; give a directory that one of them has written."
    )


def make_pages(
    directory: Path, name: str, trust: bool = False, searches: bool = True,
    progress: Progress | None = None,
) -> Pages:  # fmt: skip
    """The page of a run directory.

    `name` is the file name of the page without suffix. The pages of a campaign's searches are in a
    folder of that name beside it; without `searches` there are none.
    """
    kind = kind_of(directory)
    if kind == "campaign":
        return _campaign(directory, name, trust, searches, progress)
    if kind == "search":
        page = _search(directory, trust)
        return Pages(page.html(), {"kind": kind, "evaluations": len(page.records)})
    return Pages(as_html(SPECS[kind](directory)), {"kind": kind})


def _search(directory: Path, trust: bool) -> SearchPage:
    from nugget.report.search_page import SearchPage

    page = SearchPage(directory, trust)
    page.read()
    return page


def _campaign(
    directory: Path, name: str, trust: bool, searches: bool, progress: Progress | None
) -> Pages:
    from nugget.report.searches_page import address, campaign_spec, read_searches

    campaign = read_searches(directory, progress)
    wanted = campaign.members if searches else []
    links = {member.directory: address(name, member) for member in wanted}

    def html(place: Path) -> str:
        return _search(place, trust).html()

    others = {unquote(link): partial(html, place) for place, link in links.items()}
    numbers = {"kind": "campaign", "searches": len(campaign.campaign.members)}
    return Pages(as_html(campaign_spec(campaign, links)), numbers, others)
