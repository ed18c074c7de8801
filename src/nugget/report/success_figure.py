"""How often and how soon: success at the budget, and the share solved against evaluations."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from nugget.campaign.summary import Group
from nugget.errors import NuggetError
from nugget.report.style import MARKERS, PAGE, Theme, drawing, finish

_COLUMNS = 3  # panels side by side
_BANDS = 2  # more bands than these cannot be told from each other
_NAMES = {"kappa": "κ", "uncertainty": ""}  # as readers know them

Series = dict[str, list[Group]]


def success_figure(groups: Sequence[Group], title: str = "", dark: bool = False) -> Figure:
    """Success with Wilson's intervals, then Kaplan–Meier curves with Greenwood's.

    The first varied setting with numbers is the axis of the left panel and the colour of the
    curves; every combination of the others is a line on the left and a panel of curves. One or two
    curves have bands; of more, the intervals where they end are drawn beside the panel.
    """
    if not groups:
        raise NuggetError("There is nothing to draw: no search has ended yet.")
    axis, series = arrange(groups)
    # Without an axis, only colours distinguish the curves: one panel for all.
    panels = series if axis is not None else {"": [g for found in series.values() for g in found]}
    count = 1 + len(panels)
    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    with drawing(dark) as theme:
        figure = Figure(figsize=(PAGE, 2.6 * rows + 0.3), layout="constrained")
        axes = list(figure.subplots(rows, columns, squeeze=False).ravel())
        if axis is None:
            draw_cells(axes[0], panels[""], theme)
        else:
            draw_success(axes[0], axis, series, theme)
        for k, (panel, (name, found)) in enumerate(zip(axes[1:], panels.items(), strict=False)):
            draw_curves(panel, axis, found, name, theme)
            if (k + 1) % columns and k > 0:  # the scale is that of the panel on its left
                panel.set_ylabel("")
                panel.tick_params(labelleft=False)
        for panel in axes[count:]:
            panel.remove()
        if title:
            figure.suptitle(title, fontsize=9)
        return finish(figure, axes[:count])


def arrange(groups: Sequence[Group]) -> tuple[str | None, Series]:
    """The setting with numbers, if there is one, and the cells by all other settings."""
    axis = None
    for key in groups[0].cell:
        values = {group.cell[key] for group in groups}
        if len(values) > 1 and all(_number(value) is not None for value in values):
            axis = key
            break
    series: Series = {}
    for group in groups:
        others = [_label(key, value) for key, value in group.cell.items() if key != axis]
        series.setdefault(", ".join(others), []).append(group)
    if axis is not None:
        for found in series.values():
            found.sort(key=lambda group: _number(group.cell[axis]) or 0.0)
    return axis, series


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _label(key: str, value: str) -> str:
    name = _NAMES.get(key, key)
    return f"{name} = {value}" if name else value.replace("-", " ")


def draw_success(panel: Axes, axis: str, series: Series, theme: Theme) -> None:
    """Share of searches that succeeded, one line per combination of the other settings."""
    texts = sorted(
        {group.cell[axis] for found in series.values() for group in found}, key=lambda t: float(t)
    )
    place = {text: k for k, text in enumerate(texts)}
    shift = 0.14 if len(series) > 1 else 0.0  # bars side by side
    for k, (name, found) in enumerate(series.items()):
        x = [place[group.cell[axis]] + shift * (k - (len(series) - 1) / 2) for group in found]
        share = np.array([group.success for group in found])
        ends = np.array([group.interval for group in found]).T
        colour = theme.colour(k)
        panel.plot(x, share, "-", color=colour, lw=1.2, alpha=0.45)
        panel.errorbar(
            x,
            share,
            yerr=np.abs(ends - share),
            fmt=MARKERS[k % len(MARKERS)],
            ms=5,
            mec=theme.paper,
            mew=0.6,
            lw=1.5,
            capsize=0,
            color=colour,
            label=name or None,
        )
    panel.set_xticks(range(len(texts)), texts)
    panel.grid(axis="x", visible=False)
    panel.set(xlim=(-0.5, len(texts) - 0.5), ylim=(0, 1.03))
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set(xlabel=_NAMES.get(axis, axis), ylabel="found within the budget")
    if len(series) > 1:  # above the panel, where no point can be
        panel.legend(
            loc="lower center",
            bbox_to_anchor=(0.5, 0.99),
            handletextpad=0.1,
            labelspacing=0.2,
            borderpad=0.1,
        )
    else:
        panel.set_title("success, 95 % intervals")


def draw_cells(panel: Axes, groups: Sequence[Group], theme: Theme) -> None:
    """Success of cells that have no order: a point and a bar for each."""
    for k, group in enumerate(groups):
        colour, marker = theme.colour(k), MARKERS[k % len(MARKERS)]
        panel.plot(group.interval, [k, k], color=colour, lw=1.8, solid_capstyle="round")
        panel.plot(group.success, k, marker, color=colour, ms=6, mec=theme.paper, mew=0.6)
    panel.set_yticks(range(len(groups)), [_cell_label(group) for group in groups])
    panel.set(xlim=(0, 1.03), ylim=(len(groups) - 0.5, -0.5), xlabel="found within the budget")
    panel.xaxis.set_major_formatter(PercentFormatter(1.0))
    panel.grid(axis="y", visible=False)
    panel.set_title("success, 95 % intervals")


def _cell_label(group: Group) -> str:
    return ",\n".join(_label(key, value) for key, value in group.cell.items()) or "all searches"


def draw_curves(
    panel: Axes, axis: str | None, groups: Sequence[Group], name: str, theme: Theme
) -> None:
    """Share of searches solved after so many evaluations (1 − Kaplan–Meier)."""
    last = max(group.curve.last for group in groups)
    banded = len(groups) <= _BANDS
    shades = theme.ordered(len(groups))
    ends: list[tuple[float, str, Any]] = []
    for k, group in enumerate(groups):
        if axis is None:
            colour: Any = theme.colour(k)
            label = _cell_label(group) if len(groups) > 1 else ""
        else:
            colour = shades[k]
            label = _label(axis, group.cell[axis])
        height, interval = _draw_curve(panel, group, colour, banded)
        ends.append((height, label, colour))
        if not banded and interval is not None:  # beside the panel, next to each other
            x = 1.035 + 0.035 * k
            panel.plot(
                [x, x], interval, color=colour, lw=1.4, solid_capstyle="butt",
                transform=panel.get_yaxis_transform(), clip_on=False,
            )  # fmt: skip
            panel.plot(
                x, height, "o", ms=3, color=colour,
                transform=panel.get_yaxis_transform(), clip_on=False,
            )  # fmt: skip
    right = 1.02 if banded else 1.05 + 0.035 * len(groups)
    heights = _apart([end[0] for end in ends], 0.085)
    for (_, label, colour), y in zip(ends, heights, strict=True):
        panel.annotate(
            label.replace("\n", " "), (right, y), xycoords=panel.get_yaxis_transform(),
            color=colour, va="center", fontsize=7.5, annotation_clip=False,
        )  # fmt: skip
    panel.set(xlim=(0, last), ylim=(0, 1.03), xlabel="evaluations", ylabel="searches solved")
    panel.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set_title(name or ("share solved, 95 % bands" if banded else "share solved"))


def _draw_curve(
    panel: Axes, group: Group, colour: Any, banded: bool
) -> tuple[float, tuple[float, float] | None]:
    """A step at every solution; the height where it ends, and its interval there."""
    curve = group.curve
    times = np.concatenate([[0], curve.times, [curve.last]])
    solved = np.concatenate([[0.0], 1 - curve.survival])
    solved = np.append(solved, solved[-1])
    panel.step(times, solved, where="post", color=colour)
    height, known = float(solved[-1]), ~np.isnan(curve.low)
    if not known.any():
        return height, None
    low, high = 1 - curve.high[known], 1 - curve.low[known]
    if banded:
        x = np.append(curve.times[known], curve.last)
        ends = (np.append(low, low[-1]), np.append(high, high[-1]))
        panel.fill_between(x, *ends, step="post", color=colour, alpha=0.15, lw=0)
    return height, (float(low[-1]), float(high[-1]))


def _apart(heights: Sequence[float], gap: float) -> list[float]:
    """Places for labels: in the same order, no two closer than the gap, all within 0 and 1."""
    order = sorted(range(len(heights)), key=lambda k: heights[k])
    placed = [0.0] * len(heights)
    floor = 0.0
    for k in order:
        placed[k] = max(heights[k], floor)
        floor = placed[k] + gap
    ceiling = 1.0
    for k in reversed(order):
        placed[k] = min(placed[k], ceiling)
        ceiling = placed[k] - gap
    return placed
