"""Matplotlib figures: calibration, parity, learning curves, campaigns, hulls, paths, selections."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import (
    LogLocator,
    MaxNLocator,
    NullFormatter,
    PercentFormatter,
    ScalarFormatter,
)

from nugget.calibration import calibration_curve, calibration_error, sigma_bins
from nugget.campaign.statistics import Group
from nugget.dataset.selection import UNITS, WORTH, Selection
from nugget.errors import NuggetError
from nugget.onthefly.reaction_path import NEBResult
from nugget.report.style import COLUMN, MARKERS, PAGE, Theme, drawing, finish
from nugget.storage.files import replacing

if TYPE_CHECKING:
    from nugget.calibration import Components, Residuals
    from nugget.numerics.arrays import Floats, Ints
    from nugget.potential.learning_curve import CurvePoint


_PARITY = 2  # parity panels; further models appear as curves only


def calibration_figure(
    models: Mapping[str, Residuals],
    rng: np.random.Generator,
    shown: int = 60,
    parity: tuple[str, ...] | None = None,
    dark: bool = False,
) -> Figure:
    """Parity with error bars of `shown` random structures, calibration curves, and binned σ.

    Error bars are 2σ. Parity panels are drawn for the models named in `parity`, else for the first
    two. All numbers in the panels are of all structures, in eV/atom.
    """
    if not models:
        raise NuggetError("There is nothing to draw; give the residuals of at least one model.")
    names = parity or tuple(models)[:_PARITY]
    with drawing(dark) as theme:
        colours = {name: theme.colour(k) for k, name in enumerate(models)}
        rows, columns, height = (1, 3, 2.5) if len(names) == 1 else (2, 2, 6.4)
        figure = Figure(figsize=(PAGE, height), layout="constrained")
        axes = list(figure.subplots(rows, columns).ravel())
        n = min(len(residuals.y_true) for residuals in models.values())
        chosen = np.sort(rng.permutation(n)[: min(shown, n)])
        for name, panel in zip(names, axes, strict=False):
            draw_parity(panel, models[name], colours[name], name, chosen, theme)
            if panel is not axes[0]:  # the same scale for all error bars
                panel.sharey(axes[0])
                axes[0].autoscale(axis="y")
        draw_curves(axes[-2], models, colours, theme)
        draw_bins(axes[-1], models, colours, theme)
        return finish(figure, axes)


def draw_parity(
    panel: Axes, residuals: Residuals, colour: str, name: str, chosen: Ints, theme: Theme
) -> None:
    """Predicted against true energies per atom, with 2σ bars, of the chosen structures."""
    true, pred, std = residuals.y_true[chosen], residuals.y_pred[chosen], residuals.y_std[chosen]
    panel.errorbar(
        true, pred, yerr=2 * std, fmt="o", ms=3, lw=0.8, capsize=1.5, color=colour, zorder=2
    )
    _diagonal(panel, [*true, *pred], theme)
    errors = 1e3 * (residuals.y_pred - residuals.y_true)
    mae, rmse = np.mean(np.abs(errors)), np.sqrt(np.mean(errors**2))
    text = f"MAE {mae:.1f} meV/atom\nRMSE {rmse:.1f} meV/atom"
    panel.text(0.04, 0.96, text, transform=panel.transAxes, va="top", fontsize=7.5)
    panel.set_title(name)
    panel.set(xlabel="true energy (eV/atom)", ylabel=r"predicted energy $\pm\,2\sigma$ (eV/atom)")


def _diagonal(panel: Axes, values: Sequence[float], theme: Theme) -> None:
    ends = [min(values), max(values)]
    panel.plot(ends, ends, color=theme.soft, lw=0.8, ls="--", zorder=1)


def draw_curves(
    panel: Axes, models: Mapping[str, Residuals], colours: Mapping[str, str], theme: Theme
) -> None:
    """Observed share of labels below the predicted quantiles; calibrated σ lie on the diagonal."""
    _diagonal(panel, (0, 1), theme)
    for name, residuals in models.items():
        data = (residuals.y_true, residuals.y_pred, residuals.y_std)
        expected, observed = calibration_curve(*data)
        label = f"{name}, CE {calibration_error(*data):.3f}"
        panel.plot(expected, observed, color=colours[name], lw=1.6, label=label)
    panel.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    panel.set(xlabel="expected share of labels", ylabel="observed share of labels")
    panel.legend(loc="upper left")


def draw_bins(
    panel: Axes, models: Mapping[str, Residuals], colours: Mapping[str, str], theme: Theme
) -> None:
    """Root mean square error against σ in bins of equal count; calibrated σ lie on the diagonal."""
    ends: list[float] = []
    for name, residuals in models.items():
        bins = sigma_bins(residuals.y_true, residuals.y_pred, residuals.y_std)
        x, y = 1e3 * bins.rmv, 1e3 * bins.rmse
        # The relative standard error of an RMSE of n Gaussian errors is 1/√(2n).
        bars: Any = 2 * y / np.sqrt(2 * bins.count)
        label = f"{name}, ENCE {bins.ence:.2f}"
        panel.errorbar(
            x, y, yerr=bars, fmt="o-", ms=3.5, lw=1, capsize=1.5, color=colours[name], label=label
        )
        ends += [x.min(), x.max(), y.min(), y.max()]
    low, high = min(ends) / 1.3, max(ends) * 1.3
    _diagonal(panel, (low, high), theme)
    # σ of structures unlike the training set can be ten times that of the others.
    panel.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high * 1.8))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
    panel.set(xlabel=r"predicted $\sigma$ (meV/atom)", ylabel="observed RMSE (meV/atom)")
    panel.legend(loc="upper left")


_POINTS = 5000  # points of a parity panel at most


def parity_figure(
    energies: Residuals, parts: Mapping[str, Components], dark: bool = False
) -> Figure:
    """One panel per kind of label, with the diagonal and the mean absolute error."""
    panels: list[tuple[Floats, Floats, str, str]] = [
        (energies.y_true, energies.y_pred, "energy, eV/atom", "eV/atom")
    ]
    units = {"force": "eV/Å", "stress": "eV/Å³"}
    for kind, part in parts.items():
        panels.append((part.y_true, part.y_pred, f"{kind}, {units[kind]}", units[kind]))
    with drawing(dark) as theme:
        width = COLUMN if len(panels) == 1 else PAGE
        figure = Figure(figsize=(width, width / max(len(panels), 1.1)), layout="constrained")
        axes = list(figure.subplots(1, len(panels), squeeze=False).ravel())
        for k, (panel, (true, predicted, name, unit)) in enumerate(zip(axes, panels, strict=True)):
            step = -(-len(true) // _POINTS)
            panel.plot(
                true[::step], predicted[::step], ".", ms=3, alpha=0.5, mew=0, color=theme.colour(k)
            )
            _diagonal(panel, [*true, *predicted], theme)
            mae = float(np.mean(np.abs(true - predicted)))
            panel.set(xlabel=f"label: {name}", title=f"MAE {mae:.3g} {unit}")
        axes[0].set_ylabel("prediction")
        return finish(figure, axes)


def learning_figure(points: Sequence[CurvePoint], dark: bool = False) -> Figure:
    """Errors of energies and forces against the number of structures, both logarithmic."""
    panels = [("energy_mae", "energy MAE, meV/atom", 1e3)]
    if all(point.force_mae for point in points):
        panels.append(("force_mae", "force MAE, eV/Å", 1.0))
    x = [point.structures for point in points]
    with drawing(dark) as theme:
        figure = Figure(figsize=(COLUMN * len(panels), 2.6), layout="constrained")
        axes = list(figure.subplots(1, len(panels), squeeze=False).ravel())
        for k, (panel, (name, label, factor)) in enumerate(zip(axes, panels, strict=True)):
            values = [[factor * v for v in getattr(point, name)] for point in points]
            colour = theme.colour(k)
            panel.plot(x, [sum(v) / len(v) for v in values], "o-", color=colour)
            low, high = [min(v) for v in values], [max(v) for v in values]
            panel.fill_between(x, low, high, alpha=0.2, color=colour, lw=0)
            panel.set(xscale="log", yscale="log", xlabel="training structures", ylabel=label)
            panel.set_xticks(x, [str(n) for n in x])
            panel.minorticks_off()
        return finish(figure, axes)


# ------------------------------------------------------------------ success of campaigns

_COLUMNS = 3  # panels side by side
_BANDS = 2  # more bands cannot be distinguished
_NAMES = {"kappa": "κ", "uncertainty": ""}  # labels of settings
Series = dict[str, list[Group]]


def success_figure(groups: Sequence[Group], title: str = "", dark: bool = False) -> Figure:
    """Success with Wilson's intervals, then Kaplan–Meier curves with Greenwood's.

    The first varied setting with numbers is the axis of the left panel and the colour of the
    curves; every combination of the others is a line on the left and a panel of curves. One or two
    curves have bands.
    """
    if not groups:
        raise NuggetError("There is nothing to draw because no search has finished.")
    axis, series = arrange(groups)
    # Without an axis, only colours distinguish the curves: one panel for all.
    panels = (
        series if axis is not None else {"": [g for members in series.values() for g in members]}
    )
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
        for k, (panel, (name, members)) in enumerate(zip(axes[1:], panels.items(), strict=False)):
            draw_success_curves(panel, axis, members, name, theme)
            if (k + 1) % columns and k > 0:  # the scale is that of the panel on its left
                panel.set_ylabel("")
                panel.tick_params(labelleft=False)
        for panel in axes[count:]:
            panel.remove()
        if title:
            figure.suptitle(title, fontsize=9)
        return finish(figure, axes[:count])


def arrange(groups: Sequence[Group]) -> tuple[str | None, Series]:
    """The first numeric setting, if any, and the groups by all other settings."""
    axis = None
    for key in groups[0].setting:
        values = {group.setting[key] for group in groups}
        if len(values) > 1 and all(_number(value) is not None for value in values):
            axis = key
            break
    series: Series = {}
    for group in groups:
        others = [_label(key, value) for key, value in group.setting.items() if key != axis]
        series.setdefault(", ".join(others), []).append(group)
    if axis is not None:
        for members in series.values():
            members.sort(key=lambda group: _number(group.setting[axis]) or 0.0)
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
    texts = sorted({g.setting[axis] for members in series.values() for g in members}, key=float)
    place = {text: k for k, text in enumerate(texts)}
    shift = 0.14 if len(series) > 1 else 0.0  # bars side by side
    for k, (name, members) in enumerate(series.items()):
        x = [place[group.setting[axis]] + shift * (k - (len(series) - 1) / 2) for group in members]
        share = np.array([group.success for group in members])
        ends = np.array([group.interval for group in members]).T
        colour = theme.colour(k)
        panel.plot(x, share, "-", color=colour, lw=1.2, alpha=0.45)
        marker: Any = {"fmt": MARKERS[k % len(MARKERS)], "ms": 5, "mec": theme.paper, "mew": 0.6}
        bars: Any = np.abs(ends - share)
        panel.errorbar(x, share, bars, lw=1.5, color=colour, label=name or None, **marker)
    panel.set_xticks(range(len(texts)), texts)
    panel.grid(axis="x", visible=False)
    panel.set(xlim=(-0.5, len(texts) - 0.5), ylim=(0, 1.03))
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set(xlabel=_NAMES.get(axis, axis), ylabel="found within the budget")
    if len(series) > 1:  # above the panel, where no point can be
        panel.legend(
            loc="lower center", bbox_to_anchor=(0.5, 0.99), labelspacing=0.2, borderpad=0.1
        )
    else:
        panel.set_title("success, 95% intervals")


def draw_cells(panel: Axes, groups: Sequence[Group], theme: Theme) -> None:
    """Success of settings without an order: a point and a bar for each."""
    for k, group in enumerate(groups):
        colour, marker = theme.colour(k), MARKERS[k % len(MARKERS)]
        panel.plot(group.interval, [k, k], color=colour, lw=1.8, solid_capstyle="round")
        panel.plot(group.success, k, marker, color=colour, ms=6, mec=theme.paper, mew=0.6)
    panel.set_yticks(range(len(groups)), [_cell_label(group) for group in groups])
    panel.set(xlim=(0, 1.03), ylim=(len(groups) - 0.5, -0.5), xlabel="found within the budget")
    panel.xaxis.set_major_formatter(PercentFormatter(1.0))
    panel.grid(axis="y", visible=False)
    panel.set_title("success, 95% intervals")


def _cell_label(group: Group) -> str:
    return ",\n".join(_label(key, value) for key, value in group.setting.items()) or "all searches"


def draw_success_curves(
    panel: Axes, axis: str | None, groups: Sequence[Group], name: str, theme: Theme
) -> None:
    """Share of solved searches against evaluations (1 − Kaplan–Meier)."""
    banded = len(groups) <= _BANDS
    shades = theme.ordered(len(groups))
    for k, group in enumerate(groups):
        if axis is None:
            colour, label = theme.colour(k), _cell_label(group).replace("\n", " ")
        else:
            colour, label = shades[k], _label(axis, group.setting[axis])
        curve = group.curve
        solved = [0.0, *(1 - curve.survival)]
        times = [0, *curve.times, curve.last]
        panel.step(times, [*solved, solved[-1]], where="post", color=colour, label=label)
        valid = ~np.isnan(curve.low)
        if banded and valid.any():
            low, high = 1 - curve.high[valid], 1 - curve.low[valid]
            ends = ([*low, low[-1]], [*high, high[-1]])
            x = [*curve.times[valid], curve.last]
            panel.fill_between(x, *ends, step="post", color=colour, alpha=0.15, lw=0)
    last = max(group.curve.last for group in groups)
    panel.set(xlim=(0, last), ylim=(0, 1.03), xlabel="evaluations", ylabel="searches solved")
    panel.xaxis.set_major_locator(MaxNLocator(4, integer=True, steps=[1, 2, 2.5, 5, 10]))
    panel.yaxis.set_major_formatter(PercentFormatter(1.0))
    panel.set_title(name or ("share solved, 95% bands" if banded else "share solved"))
    if len(groups) > 1 or axis is not None:
        panel.legend(loc="best")


# ------------------------------------------------------------------ convex hulls and paths

#: Numbers of elements that a figure can show.
DRAWN = (2, 3)


def hull_figure(phases: Sequence[Mapping[str, Any]], title: str = "", dark: bool = False) -> Figure:
    """The phases (rows of hull.json): stable ones on the hull, others above it."""
    elements = list(phases[0]["composition"]) if phases else []
    if len(elements) not in DRAWN:
        raise NuggetError(
            f"Only hulls of 2 or 3 elements can be drawn, not of {len(elements)}; see "
            "hull.json for the numbers."
        )
    with drawing(dark) as theme:
        binary = len(elements) == 2
        figure = Figure(figsize=(1.3 * COLUMN, 3.0 if binary else 3.8), layout="constrained")
        draw = _line if binary else _triangle
        draw(figure.subplots(), phases, elements, theme)
        if title:
            figure.suptitle(title, fontsize=9)
        return finish(figure)


def _line(
    axes: Axes, phases: Sequence[Mapping[str, Any]], elements: list[str], theme: Theme
) -> None:
    second = elements[1]
    x = np.array([phase["composition"][second] for phase in phases])
    y = 1e3 * np.array([phase["formation"] for phase in phases])
    on = np.array([phase["stable"] for phase in phases])
    order = np.argsort(x[on])
    axes.axhline(0.0, color=theme.soft, linewidth=0.8)
    axes.plot(x[on][order], y[on][order], "-o", color=theme.colour(0), label="stable")
    axes.plot(x[~on], y[~on], "s", color=theme.colour(1), mfc="none", ms=3.5, label="others")
    for phase, a, b in zip(phases, x, y, strict=True):
        if phase["stable"]:
            place: Any = {"xytext": (0, -11), "textcoords": "offset points", "ha": "center"}
            axes.annotate(phase["formula"], (a, b), fontsize=7.5, **place)
    axes.margins(y=0.15)
    axes.set_xlabel(f"share of {second}")
    axes.set_ylabel("formation enthalpy, meV/atom")
    axes.legend()


def _triangle(
    axes: Axes, phases: Sequence[Mapping[str, Any]], elements: list[str], theme: Theme
) -> None:
    corners = np.array([[0.0, 0.0], [1.0, 0.0], [0.5, np.sqrt(0.75)]])
    points = np.array([[phase["composition"][e] for e in elements] for phase in phases]) @ corners
    above = 1e3 * np.array([phase["above_hull"] for phase in phases])
    on = np.array([phase["stable"] for phase in phases])
    axes.plot(*corners[[0, 1, 2, 0]].T, color=theme.soft, linewidth=0.8)
    x, y = points.T
    shown = axes.scatter(x, y, np.where(on, 60, 22), above, cmap="viridis_r", zorder=2)
    for phase, point in zip(phases, points, strict=True):
        if phase["stable"]:
            place: Any = {"xytext": (5, 4), "textcoords": "offset points"}
            axes.annotate(phase["formula"], tuple(point), fontsize=8, **place)
    axes.figure.colorbar(shown, ax=axes, label="above the hull, meV/atom (stable: large)")
    axes.set_aspect("equal")
    axes.axis("off")


def draw_path(result: NEBResult, path: Path) -> None:
    """Energy along the path relative to the start, with σ of the model, as a PNG."""
    band = result.band
    zero = result.start.get_potential_energy()
    steps = [np.linalg.norm(b.positions - a.positions) for a, b in pairwise(band.images)]
    length = np.concatenate([[0.0], np.cumsum(steps)])
    with drawing() as theme:
        figure = Figure(figsize=(COLUMN, 2.6), layout="constrained")
        FigureCanvasAgg(figure)
        axes = figure.add_subplot()
        energy, blue = band.energy - zero, theme.colour(0)
        axes.plot(length, energy, "o-", color=blue, label="model, ± σ")
        low, high = energy - band.energy_std, energy + band.energy_std
        axes.fill_between(length, low, high, alpha=0.2, color=blue, lw=0)
        ends = [0.0, result.reaction_energy]
        axes.plot(length[[0, -1]], ends, "s", color=theme.ink, label="engine")
        if result.saddle is not None:
            axes.plot(length[result.saddle.image], result.barrier, "s", color=theme.ink)
            barrier = f"{result.barrier:.3f} ± {result.error:.3f} eV"
            axes.set_title(f"barrier {barrier}, {result.calls} calls")
        axes.set(xlabel="length of the path, Å", ylabel="energy, eV")
        axes.legend()
        finish(figure)
        with replacing(path) as partial:
            figure.savefig(partial, dpi=200, format="png")


def selection_figure(selection: Selection, worth: float = WORTH, dark: bool = False) -> Figure:
    """Expected σ of the pool after each label; a line marks where more are not worthwhile."""
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
