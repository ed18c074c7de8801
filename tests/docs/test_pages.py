"""Every command and every program in README and docs is run, in order, in an empty directory."""

from __future__ import annotations

from pathlib import Path

import pytest
from doc_pages import KINDS, ROOT, Block, blocks, pages, run

# Pages that take more than some seconds: `make test-slow`.
SLOW_FOLDERS = ("tutorials", "how-to", "examples", "paper")
SLOW_PAGES = ("get_started.md", "index.md")
REASONS = ("needs ", "takes ", "is ")
PAGES = {str(page.relative_to(ROOT)): page for page in pages()}


def programs(page: Path) -> list[Block]:
    return [block for block in blocks(page) if block.kind != "text" and not block.reason]


def parameters() -> list[object]:
    made = []
    for name, page in PAGES.items():
        if programs(page):
            slow = page.parent.name in SLOW_FOLDERS or page.name in SLOW_PAGES
            marks = [pytest.mark.slow] if slow else []
            made.append(pytest.param(page, id=name, marks=marks))
    return made


@pytest.mark.parametrize("page", parameters())
def test_the_page_works(page: Path, tmp_path: Path) -> None:
    directory = tmp_path / "empty"
    directory.mkdir()
    assert run(page, directory) == len(programs(page))


def test_every_block_says_what_it_is() -> None:
    for name, page in PAGES.items():
        for block in blocks(page):
            where = f"{name}:{block.line}"
            assert block.kind in KINDS, f"{where}: label this block as one of {', '.join(KINDS)}"
            if block.reason:
                assert block.reason.startswith(REASONS), f"{where}: {block.reason}"


def test_few_blocks_are_not_run() -> None:
    not_run = {name: [b.reason for b in blocks(page) if b.reason] for name, page in PAGES.items()}
    run_here = sum(len(programs(page)) for page in PAGES.values())
    assert sum(map(len, not_run.values())) < run_here / 3, not_run


@pytest.mark.parametrize("name", [name for name in PAGES if not name.startswith("paper/")])
def test_marks_are_invisible(name: str) -> None:
    assert "Not run by the tests" not in PAGES[name].read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "mark", ["<!-- not run: needs VASP -->", "*Not run by the tests: needs VASP.*"]
)
def test_the_reason_is_read_from_the_mark_above_the_block(mark: str, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(f"A sentence.\n\n{mark}\n\n```bash\nvasp\n```\n\n```bash\ntrue\n```\n")
    assert [block.reason for block in blocks(page)] == ["needs VASP", ""]


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    page = ROOT / "docs" / "no_such_page.md"
    directory = tmp_path / "empty"
    directory.mkdir()

    class Page(type(page)):  # type: ignore[misc]
        def read_text(self, encoding: str | None = None) -> str:
            return "```bash\ntrue\n```\n\n```python\nraise SystemExit(3)\n```\n"

    with pytest.raises(AssertionError, match=r"no_such_page\.md:5"):
        run(Page(page), directory)
