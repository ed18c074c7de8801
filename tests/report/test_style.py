"""All figures have one look: width, letters, sizes of text, and colours that can be told apart."""

import itertools

import numpy as np
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text

from nugget.calibration import Components, Residuals
from nugget.campaign.results import Outcome, Row
from nugget.campaign.statistics import grouped
from nugget.potential.learning_curve import CurvePoint
from nugget.report.figures import calibration_figure, learning_figure, parity_figure, success_figure
from nugget.report.style import COLUMN, DARK, LIGHT, PAGE, drawing, finish, save

# Machado, Oliveira and Fernandes (2009), severity 1, for linear RGB.
BLINDNESS = {
    "none": np.eye(3),
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
}  # fmt: skip


def linear(colour):
    c = np.array(to_rgb(colour))
    return np.where(c <= 0.04045, c / 12.92, ((c + 0.055) / 1.055) ** 2.4)


def luminance(colour):
    return float(linear(colour) @ [0.2126, 0.7152, 0.0722])


def contrast(a, b):
    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def lab(rgb):
    """CIE L*a*b* (D65) of linear RGB."""
    matrix = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]
    x, y, z = np.cbrt(np.array(matrix) @ np.clip(rgb, 0, 1) / [0.9505, 1, 1.089])
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


@pytest.mark.parametrize("theme", [LIGHT, DARK], ids=["light", "dark"])
def test_colours_stand_out_and_differ(theme):
    assert contrast(theme.ink, theme.paper) > 7  # WCAG, AAA
    assert contrast(theme.soft, theme.paper) > 4.5
    for colour in theme.colours:
        assert contrast(colour, theme.paper) > 2
    for name, matrix in BLINDNESS.items():
        seen = [lab(np.array(matrix) @ linear(colour)) for colour in theme.colours[:4]]
        for a, b in itertools.combinations(seen, 2):
            assert np.linalg.norm(a - b) > 15, name


def figures(dark):
    rng = np.random.default_rng(0)
    true, std = rng.normal(size=40), np.full(40, 0.1)
    found = Residuals(true, true + 0.1 * rng.normal(size=40), std, np.full(40, 10))
    part = Components("force", true, true + 0.1, std, np.arange(40))
    rows = [
        Row({"kappa": k, "uncertainty": u}, seed, Outcome(seed < 3, 10 * seed + 5, 50))
        for k in "01248"
        for u in ("a", "b")
        for seed in range(5)
    ]
    points = [CurvePoint(n, (0.01, 0.02), (0.1, 0.2), ((0.7, 0.9),) * 2) for n in (10, 20, 40)]
    return {
        "calibration": calibration_figure({"model": found}, rng, dark=dark),
        "two models": calibration_figure({"one": found, "two": found}, rng, dark=dark),
        "parity": parity_figure(found, {"force": part}, dark),
        "learning": learning_figure(points, dark),
        "success": success_figure(grouped(rows), "title", dark),
    }


@pytest.mark.parametrize("dark", [False, True])
def test_every_figure_has_the_look(dark):
    theme = DARK if dark else LIGHT
    for name, figure in figures(dark).items():
        assert COLUMN <= figure.get_figwidth() <= PAGE, name
        assert to_rgb(figure.get_facecolor()) == to_rgb(theme.paper), name
        bold = [
            text.get_text()
            for panel in figure.axes
            for text in panel.texts
            if text.get_fontweight() == "bold"
        ]
        assert bold == list("abcdefgh"[: len(figure.axes)]), name
        for text in figure.findobj(Text):
            if text.get_text() and text.get_visible():
                assert text.get_fontsize() >= 7, (name, text)
        for panel in figure.axes:  # also those that Matplotlib makes late
            for label in panel.get_xticklabels():
                assert to_rgb(label.get_color()) == to_rgb(theme.ink), name


def test_many_curves_have_no_bands():
    panels = figures(False)["success"].axes[1:]
    assert all(not panel.collections for panel in panels)  # bands are collections
    few = [Row({"kappa": k}, s, Outcome(s < 2, 9, 50)) for k in "01" for s in range(4)]
    assert len(success_figure(grouped(few)).axes[1].collections) == 2


def test_files(tmp_path):
    for dark in (False, True):
        with drawing(dark):
            figure = Figure(figsize=(COLUMN, 2))
            figure.add_subplot()
            finish(figure)
        written = save(figure, tmp_path / "new" / "figure.png", dark)
        names = ["figure_dark.png"] if dark else ["figure.png", "figure.pdf"]
        assert [path.name for path in written] == names
        assert all(path.stat().st_size > 500 for path in written)
