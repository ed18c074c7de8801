"""The style of all figures: sizes, panel letters and colours, light or dark.

Figures have their printed width, one or two columns, so that font sizes are those on paper. The
colours are those of Okabe and Ito (jfly.uni-koeln.de/color), which most colour-blind readers can
distinguish; curves also differ by markers or labels.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matplotlib import colormaps, rc_context
from matplotlib.axes import Axes
from matplotlib.figure import Figure

COLUMN = 3.4  # inches: one column of a journal
PAGE = 7.0  # both columns
MARKERS = "osD^vPX"
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Theme:
    """Colours of a figure."""

    colours: tuple[str, ...]  # of categories
    ink: str  # text, axes, data of the engine
    soft: str  # diagonals and secondary text
    grid: str
    paper: str
    shade: tuple[float, float]  # the range of viridis that contrasts with the paper

    def colour(self, k: int) -> str:
        return self.colours[k % len(self.colours)]

    def ordered(self, n: int) -> list[Any]:
        """Colours of n ordered values."""
        low, high = self.shade
        return [colormaps["viridis"](low + (high - low) * k / max(n - 1, 1)) for k in range(n)]

    def settings(self) -> Any:
        """Matplotlib's settings."""
        return _SETTINGS | {
            "grid.color": self.grid,
            **dict.fromkeys(_IN_INK, self.ink),
            **dict.fromkeys(_IN_PAPER, self.paper),
        }


_SETTINGS = {
    "font.size": 8, "axes.titlesize": 8.5, "axes.labelsize": 8, "xtick.labelsize": 7.5,
    "ytick.labelsize": 7.5, "legend.fontsize": 7.5, "legend.frameon": False,
    "legend.handlelength": 1.4, "lines.linewidth": 1.5, "lines.markersize": 4,
    "axes.linewidth": 0.7, "axes.spines.top": False, "axes.spines.right": False,
    "axes.grid": True, "axes.axisbelow": True, "grid.linewidth": 0.6,
}  # fmt: skip
_IN_INK = ("text.color", "axes.edgecolor", "axes.labelcolor", "axes.titlecolor", "xtick.color",
           "ytick.color")  # fmt: skip
_IN_PAPER = ("axes.facecolor", "figure.facecolor", "savefig.facecolor")

LIGHT = Theme(
    ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#666666"),
    ink="#1a1a1a", soft="#666666", grid="#e8e8e8", paper="#ffffff", shade=(0.0, 0.8),
)  # fmt: skip
DARK = Theme(
    ("#56b4e9", "#f08c3c", "#2dc79a", "#e3a1c6", "#f0e442", "#b39ddb", "#aaaaaa"),
    ink="#e6e6e6", soft="#a0a0a0", grid="#30363d", paper="#0d1117", shade=(0.35, 1.0),
)  # fmt: skip


@contextmanager
def drawing(dark: bool = False) -> Iterator[Theme]:
    """Figures drawn inside have this style; call `finish` before the end of the block."""
    theme = DARK if dark else LIGHT
    with rc_context(theme.settings()):
        yield theme


def finish(figure: Figure, panels: Iterable[Axes] = ()) -> Figure:
    """Add panel letters, and create the ticks while the style is active."""
    for letter, panel in zip(_LETTERS, panels, strict=False):
        panel.annotate(
            letter, (0, 1), (-0.6, 0.5), "axes fraction", textcoords="offset fontsize",
            ha="right", va="bottom", fontweight="bold", fontsize=10, annotation_clip=False,
        )  # fmt: skip
    figure.draw_without_rendering()
    return figure


def save(figure: Figure, path: Path, dark: bool = False) -> list[Path]:
    """Write PNG and PDF; dark figures are PNG only, with `_dark` in their names."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if dark:
        written = [path.with_name(f"{path.stem}_dark.png")]
    else:
        written = [path.with_suffix(".png"), path.with_suffix(".pdf")]
    for file in written:
        figure.savefig(file, dpi=220)
    return written
