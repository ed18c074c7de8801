"""The built site: no broken link, no lost page, no request to other hosts, rendered equations.

The site is built into a temporary directory. `NUGGET_SITE=docs/_build/html` checks a built site.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from doc_pages import ROOT

DOCS = ROOT / "docs"
#: Attributes that make a browser load a file, by tag.
LOADED = {"script": "src", "link": "href", "img": "src", "iframe": "src", "source": "src"}
#: Pages that Sphinx writes by itself.
OWN_PAGES = {"genindex.html", "search.html", "py-modindex.html", "404.html"}
INCLUDE = re.compile(r"^```\{include\} (\S+)$", re.MULTILINE)
FENCE = re.compile(r"^(`{3,}|:{3,}).*?^\1$", re.DOTALL | re.MULTILINE)


@dataclass
class Page(HTMLParser):
    """The links, loaded files, anchors and the title of one page of the site."""

    file: Path
    links: list[str] = field(default_factory=list)
    loaded: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)
    title: str = ""
    equations: int = 0

    def __post_init__(self) -> None:
        super().__init__()
        self._in_title = False
        self.feed(self.file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = {key: value or "" for key, value in attrs}
        self.anchors.update(values[key] for key in ("id", "name") if key in values)
        self.equations += tag == "svg" and values.get("role") == "math"
        self._in_title |= tag == "h1" and not self.title
        self._in_title &= tag != "a"  # the permalink behind the title
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag in LOADED and LOADED[tag] in values:
            self.loaded.append(values[LOADED[tag]])

    def handle_endtag(self, tag: str) -> None:
        self._in_title &= tag != "h1"

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self.title += data


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if "NUGGET_SITE" in os.environ:
        return Path(os.environ["NUGGET_SITE"]).resolve()
    pytest.importorskip("sphinx", reason="make docs installs it")
    pytest.importorskip("furo")
    target = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q"]
    build = subprocess.run([*command, str(DOCS), str(target)], capture_output=True, text=True)
    assert build.returncode == 0, build.stderr
    return target


@pytest.fixture(scope="module")
def pages(site: Path) -> dict[Path, Page]:
    return {
        file.resolve(): Page(file) for file in site.rglob("*.html") if "_static" not in file.parts
    }


def sources() -> list[Path]:
    """The source pages, relative to docs/."""
    every = (path.relative_to(DOCS) for path in DOCS.rglob("*.md"))
    return sorted(path for path in every if path.parts[0] != "_build")


def title_of(source: Path) -> str:
    """The first heading of a source page, or of the file that it includes, without markup."""
    text = source.read_text(encoding="utf-8")
    heading = re.search(r"^# (.+)$", FENCE.sub("", text), re.MULTILINE)
    if heading is None:
        included = INCLUDE.search(text)
        assert included, f"{source} has no title"
        return title_of((source.parent / included[1]).resolve())
    return plain(heading[1])


def plain(title: str) -> str:
    return " ".join(re.sub(r"[`*]", "", title).split())


@pytest.mark.slow
def test_every_source_page_has_its_own_output_with_its_title(
    site: Path, pages: dict[Path, Page]
) -> None:
    outputs = {str(source): (site / source).with_suffix(".html").resolve() for source in sources()}
    assert len(set(outputs.values())) == len(outputs)
    for source, output in outputs.items():
        assert output.exists(), f"{source} is not part of the site"
        assert str(output.relative_to(site)) not in OWN_PAGES, (
            f"{source} is overwritten by a page of Sphinx"
        )
        title = title_of(DOCS / source)
        assert plain(pages[output].title) == title, f"{source} is lost: {output} has another title"


@pytest.mark.slow
def test_internal_links_lead_to_an_anchor_that_exists(pages: dict[Path, Page]) -> None:
    broken = []
    for page in pages.values():
        for link in page.links + page.loaded:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            name = unquote(parts.path)
            target = (page.file.parent / name).resolve() if name else page.file.resolve()
            anchor = unquote(parts.fragment)
            if not target.exists():
                broken.append(f"{page.file.name}: {link}: no such file")
            elif anchor and target in pages and anchor not in pages[target].anchors:
                broken.append(f"{page.file.name}: {link}: no such anchor")
    assert not broken, "\n".join(broken)


@pytest.mark.slow
def test_pages_request_nothing_from_other_hosts(site: Path, pages: dict[Path, Page]) -> None:
    for page in pages.values():
        outside = [name for name in page.loaded if urlsplit(name).netloc]
        assert not outside, f"{page.file}: {outside}"
    for sheet in site.rglob("*.css"):
        text = sheet.read_text(encoding="utf-8")
        assert not re.search(r"(url\(|@import\s*)['\"]?(https?:)?//", text), sheet


@pytest.mark.slow
def test_equations_are_rendered(site: Path, pages: dict[Path, Page]) -> None:
    source = (DOCS / "explanation" / "method.md").read_text(encoding="utf-8")
    page = pages[(site / "explanation" / "method.html").resolve()]
    displayed = source.count("$$") // 2
    assert displayed > 5
    assert page.equations > displayed
    assert "$$" not in page.file.read_text(encoding="utf-8")


def test_the_check_of_titles_notices_a_lost_page(tmp_path: Path) -> None:
    """Sphinx's own search page has replaced a page called search.md before."""
    (tmp_path / "search.md").write_text("# Search performance\n\n```text\n# no title\n```\n")
    (tmp_path / "search.html").write_text(
        "<h1>Search<a href='#'>¶</a></h1><a id='x' href='y'>z</a>"
    )
    page = Page(tmp_path / "search.html")
    assert title_of(tmp_path / "search.md") == "Search performance"
    assert page.title == "Search"
    assert page.links == ["#", "y"]
    assert page.anchors == {"x"}
