"""Links between pages lead somewhere, and the site is built without warnings or other hosts."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from doc_pages import ROOT, pages

LINK = re.compile(r"(?<!\\)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^```.*?^```$", re.DOTALL | re.MULTILINE)
MORE = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "benchmarks/README.md")


def anchors(page: Path) -> set[str]:
    """The anchors of headings, as GitHub and the site make them."""
    heads = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    plain = [re.sub(r"[^\w\- ]", "", head.lower()) for head in heads]
    return {head.strip().replace(" ", "-") for head in plain}


@pytest.mark.parametrize(
    "page", [*pages(), *(ROOT / name for name in MORE)], ids=lambda p: str(p.relative_to(ROOT))
)
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(FENCE.sub("", page.read_text(encoding="utf-8"))):
        if link.startswith(("http://", "https://", "mailto:")):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        assert target.exists(), f"{link}: there is no such file"
        if anchor and target.suffix == ".md":
            assert anchor in anchors(target), f"{link}: no such heading"


@pytest.mark.slow
def test_the_site_is_built_without_warnings_and_asks_nobody(tmp_path: Path) -> None:
    pytest.importorskip("sphinx", reason="make docs installs it")
    pytest.importorskip("furo")
    command = [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "-q"]
    done = subprocess.run(
        [*command, str(ROOT / "docs"), str(tmp_path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "searchindex.js").exists()
    for page in tmp_path.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        loaded = re.findall(r"<(?:script|link|img|iframe)\b[^>]*?(?:src|href)=\"([^\"]+)\"", text)
        assert not [name for name in loaded if name.startswith(("http:", "https:", "//"))], page
    for sheet in tmp_path.rglob("*.css"):
        assert not re.search(r"url\(['\"]?(https?:)?//", sheet.read_text(encoding="utf-8")), sheet
