"""Equations of the site are outlines whose size and baseline are those of the formula."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import numpy as np
import pytest
from doc_pages import ROOT

sys.path.insert(0, str(ROOT / "docs" / "_ext"))

from _outlines import displayed, outline

NUMBER = r"-?\d+\.\d+"


DISPLAYED = re.compile(r"^\$\$(.+?)\$\$", re.DOTALL | re.MULTILINE)
PAGES = [p for p in sorted((ROOT / "docs").rglob("*.md")) if DISPLAYED.search(p.read_text())]


def box(svg: str) -> list[float]:
    found = re.search(rf'viewBox="0 ({NUMBER}) ({NUMBER}) ({NUMBER})"', svg)
    assert found
    return [float(value) for value in found.groups()]


@pytest.mark.parametrize(
    "latex", ["E", r"\sigma_l^2", r"\frac{a}{b}", r"\left[K_{mm} + U^T U\right]^{-1}", r"y_j"]
)
def test_the_outline_fills_its_box(latex: str) -> None:
    svg = outline(latex)
    top, width, height = box(svg)
    drawing = re.search(r' d="([^"]*)"', svg)
    assert drawing
    points = np.array(re.findall(rf"({NUMBER}) ({NUMBER})", drawing[1]), float)
    assert len(points) > 4
    assert np.all(points.min(axis=0) > [-15, top - 15])
    assert np.all(points.max(axis=0) < [width + 15, top + height + 15])


def test_the_baseline_is_that_of_the_text() -> None:
    """A letter that stands on the line is not lowered; a subscript is, by its depth."""
    lowered = [re.search(rf"vertical-align:({NUMBER})em", outline(text)) for text in ("E", "E_j")]
    assert all(lowered)
    plain, subscript = (float(found[1]) for found in lowered if found)
    assert plain > -0.05
    assert subscript < -0.1


def test_the_label_is_the_formula_for_readers_that_do_not_see_it() -> None:
    assert 'aria-label="a &lt; b"' in outline("a < b")


def test_a_command_that_is_unknown_is_an_error() -> None:
    with pytest.raises(ValueError, match="Unknown symbol"):
        outline(r"\nosuchcommand")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_displayed_equations_are_drawn(page: Path) -> None:
    for latex in DISPLAYED.findall(page.read_text()):
        assert displayed(latex)[0]
