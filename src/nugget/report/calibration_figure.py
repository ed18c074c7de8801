"""Parity, calibration curves and σ against error in one figure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator, NullFormatter, ScalarFormatter
from numpy.typing import NDArray

from nugget.calibration import Residuals, calibration_curve, calibration_error, sigma_bins
from nugget.errors import NuggetError
from nugget.report.style import PAGE, Theme, drawing, finish

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
        n = min(len(found.y_true) for found in models.values())
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
    panel: Axes, found: Residuals, colour: str, name: str, chosen: NDArray[np.int64], theme: Theme
) -> None:
    """Predicted against true energies per atom, with 2σ bars, of the chosen structures."""
    true, pred, std = found.y_true[chosen], found.y_pred[chosen], found.y_std[chosen]
    panel.errorbar(
        true, pred, yerr=2 * std, fmt="o", ms=3, lw=0.8, capsize=1.5, color=colour, zorder=2
    )
    ends = [min(true.min(), pred.min()), max(true.max(), pred.max())]
    panel.plot(ends, ends, color=theme.soft, lw=0.8, ls="--", zorder=1)
    errors = 1e3 * (found.y_pred - found.y_true)
    panel.text(
        0.04,
        0.96,
        f"MAE {np.mean(np.abs(errors)):.1f} meV/atom\n"
        f"RMSE {np.sqrt(np.mean(errors**2)):.1f} meV/atom",
        transform=panel.transAxes,
        va="top",
        fontsize=7.5,
    )
    panel.set_title(name)
    panel.set(
        xlabel="true energy (eV/atom)",
        ylabel=r"predicted energy $\pm\,2\sigma$ (eV/atom)",
    )


def draw_curves(
    panel: Axes, models: Mapping[str, Residuals], colours: Mapping[str, str], theme: Theme
) -> None:
    """Observed share of labels below the predicted quantiles; honest σ lie on the diagonal."""
    panel.plot([0, 1], [0, 1], color=theme.soft, lw=0.8, ls="--")
    for name, found in models.items():
        data = (found.y_true, found.y_pred, found.y_std)
        expected, observed = calibration_curve(*data)
        label = f"{name}, CE {calibration_error(*data):.3f}"
        panel.plot(expected, observed, color=colours[name], lw=1.6, label=label)
    panel.set(xlim=(0, 1), ylim=(0, 1), aspect="equal")
    panel.set(xlabel="expected share of labels", ylabel="observed share of labels")
    panel.legend(loc="upper left")


def draw_bins(
    panel: Axes, models: Mapping[str, Residuals], colours: Mapping[str, str], theme: Theme
) -> None:
    """Root mean square error against σ in bins of equal count; honest σ lie on the diagonal."""
    ends: list[float] = []
    for name, found in models.items():
        bins = sigma_bins(found.y_true, found.y_pred, found.y_std)
        x, y = 1e3 * bins.rmv, 1e3 * bins.rmse
        # The relative standard error of an RMSE of n Gaussian errors is 1/√(2n).
        bars: Any = 2 * y / np.sqrt(2 * bins.count)
        label = f"{name}, ENCE {bins.ence:.2f}"
        panel.errorbar(
            x, y, yerr=bars, fmt="o-", ms=3.5, lw=1, capsize=1.5, color=colours[name], label=label
        )
        ends += [x.min(), x.max(), y.min(), y.max()]
    low, high = min(ends) / 1.3, max(ends) * 1.3
    panel.plot([low, high], [low, high], color=theme.soft, lw=0.8, ls="--")
    # σ of structures unlike the training set can be ten times that of the others.
    panel.set(xscale="log", yscale="log", xlim=(low, high), ylim=(low, high * 1.8))
    for axis in (panel.xaxis, panel.yaxis):
        axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
        axis.set_major_formatter(ScalarFormatter())
        axis.set_minor_formatter(NullFormatter())
    panel.set(xlabel=r"predicted $\sigma$ (meV/atom)", ylabel="observed RMSE (meV/atom)")
    panel.legend(loc="upper left")
