"""Every command and every program in README and docs is run, in order, in an empty directory."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import KINDS, ROOT, Block, blocks, pages, run

# Pages that take more than some seconds: `make test-slow`.
SLOW_FOLDERS = ("tutorials", "how-to", "examples", "paper", "python")
SLOW_PAGES = ("get_started.md", "index.md", "pages.md")
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
            if block.reason and block.kind != "text":
                assert block.reason.startswith(REASONS), f"{where}: {block.reason}"


def test_printed_text_is_compared_or_marked_as_a_sample() -> None:
    """Tables and energies on tutorials have been printed by a run."""
    for name, page in PAGES.items():
        for block in blocks(page) if page.parent.name == "tutorials" else ():
            if block.kind == "text" and re.search(r"│| eV", block.code):
                assert block.comparison or block.reason, f"{name}:{block.line}: mark this block"


def test_few_blocks_are_not_run() -> None:
    not_run = {
        name: [b.reason for b in blocks(page) if b.reason and b.kind != "text"]
        for name, page in PAGES.items()
    }
    run_here = sum(len(programs(page)) for page in PAGES.values())
    assert sum(map(len, not_run.values())) < run_here / 2, not_run


@pytest.mark.parametrize("name", PAGES)
def test_marks_are_invisible(name: str) -> None:
    assert "Not run by the tests" not in PAGES[name].read_text(encoding="utf-8")


def test_the_reason_is_read_from_the_mark_above_the_block(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    mark = "<!-- not run: needs VASP -->"
    page.write_text(f"A sentence.\n\n{mark}\n\n```bash\nvasp\n```\n\n```bash\ntrue\n```\n")
    assert [block.reason for block in blocks(page)] == ["needs VASP", ""]


class WrittenPage(type(ROOT)):  # type: ignore[misc]
    """A page of docs/ with the given text."""

    text = ""

    def read_text(self, encoding: str | None = None) -> str:
        return self.text


def run_text(text: str, tmp_path: Path) -> int:
    page = WrittenPage(ROOT / "docs" / "no_such_page.md")
    page.text = text
    directory = tmp_path / "empty"
    directory.mkdir()
    return run(page, directory)


def test_a_block_that_fails_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match=r"no_such_page\.md:5"):
        run_text("```bash\ntrue\n```\n\n```python\nraise SystemExit(3)\n```\n", tmp_path)


@pytest.mark.parametrize(("energy", "agrees"), [("1.25", True), ("1.4", False)])
def test_shown_output_is_compared_with_what_was_printed(
    energy: str, agrees: bool, tmp_path: Path
) -> None:
    text = "```bash\necho energy 1.2 eV\n```\n\n<!-- output: within 0.1 -->\n\n```text\n"
    text += f"energy {energy} eV\n```\n"
    if agrees:
        assert run_text(text, tmp_path) == 1
    else:
        with pytest.raises(AssertionError, match=r"no_such_page\.md:7: not printed: energy 1\.4"):
            run_text(text, tmp_path)
