"""Expected uncertainty of a pool against the number of labels."""

from __future__ import annotations

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from nugget.dataset.selection import UNITS, WORTH, Selection
from nugget.report.style import COLUMN, drawing, finish


def selection_figure(selection: Selection, worth: float = WORTH, dark: bool = False) -> Figure:
    """σ after each label, and the number of labels after which more are not worthwhile."""
    with drawing(dark) as theme:
        figure = Figure(figsize=(COLUMN, 2.6), layout="constrained")
        axes = figure.subplots()
        labels = range(1, len(selection.choices) + 1)
        values = [choice.after for choice in selection.choices]
        axes.plot(labels, values, color=theme.colour(0), marker="o", ms=2.5, lw=1.2)
        enough = selection.worthwhile(worth)
        if 0 < enough < len(values):
            axes.axvline(enough, color=theme.soft, lw=0.8, ls="--")
        axes.set_yscale("log")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        unit = UNITS[selection.by]
        axes.set(xlabel="labels", ylabel=f"expected σ of the pool ({unit})")
        return finish(figure)
