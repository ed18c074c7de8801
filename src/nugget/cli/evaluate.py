"""`nugget evaluate`: how good are predictions, and how honest their error bars."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, number, progress, table
from nugget.cli._output import Force, refuse_existing

if TYPE_CHECKING:
    from nugget.calibration import Bins
    from nugget.calibration.summary import Metrics


def evaluate(
    model: opt.ModelFile,
    data: opt.DataFile,
    index: opt.Index = ":",
    energy_key: opt.EnergyKey = None,
    plot: Annotated[
        Path | None,
        typer.Option(help="Directory for the figure calibration.png and .pdf.", metavar="DIR"),
    ] = None,
    resamples: opt.Resamples = 200,
    seed: opt.RandomSeed = 0,
    trust: opt.Trust = False,
    allow_training: opt.AllowTraining = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Judge a model on labelled structures: errors and calibration.

    [bold]Examples[/bold]

        nugget evaluate au.model test.extxyz
        nugget evaluate au.model test.extxyz --plot figures
        nugget evaluate au.model all.extxyz.gz -i 250: --json > metrics.json

    Everything is per structure and per atom: errors E/N against σ/N.
    """
    import numpy as np

    from nugget.calibration import residuals, sigma_bins
    from nugget.cli._labels import refuse_training
    from nugget.modelfile.file import load
    from nugget.structures.io import read_images, relabelled

    files = [] if plot is None else [plot / f"calibration.{kind}" for kind in ("png", "pdf")]
    for file in files:
        if plot is not None and plot.exists():
            refuse_existing(file, force)
    potential = load(model, trust_code=trust)
    images = read_images(data, index)
    refuse_training(potential, images, allow_training)
    if energy_key:
        images = relabelled(images, energy_key)
    with progress("Predicting", not json) as step:
        found = residuals(potential, images, step)
    rng = np.random.default_rng(seed)
    metrics = found.summary(rng if resamples else None, max(resamples, 1))
    bins = sigma_bins(found.y_true, found.y_pred, found.y_std)
    if plot is not None:
        from nugget.report.calibration_figure import calibration_figure

        plot.mkdir(parents=True, exist_ok=True)
        figure = calibration_figure({model.stem: found}, np.random.default_rng(seed))
        for file in files:
            figure.savefig(file, dpi=150)
    if json:
        columns = ("count", "sigma_min", "sigma_max", "rmv", "rmse", "bias")
        emit(
            {
                "model": model,
                "metrics": metrics.to_dict(),
                "bins": {name: getattr(bins, name) for name in columns},
                "figures": files,
            }
        )
        return
    _print(metrics, bins)
    for file in files:
        typer.echo(f"Written: {file}")


# Name, factor, unit, and what it should be.
_ROWS = {
    "mae": ("MAE", 1e3, "meV/atom"),
    "rmse": ("RMSE", 1e3, "meV/atom"),
    "bias": ("bias", 1e3, "meV/atom"),
    "calibration_error": ("calibration error (CE)", 1.0, "0 is perfect"),
    "miscalibration_area": ("miscalibration area", 1.0, "0 is perfect"),
    "ence": ("ENCE, binned by σ", 1.0, "0 is perfect"),
    "nll": ("negative log-likelihood", 1.0, "smaller is better"),
    "crps": ("CRPS", 1e3, "meV/atom"),
    "sharpness": ("sharpness (rms of σ)", 1e3, "meV/atom"),
    "dispersion": ("dispersion of σ", 1.0, "0: all alike"),
    "spearman": ("Spearman of σ and |error|", 1.0, "0: σ ranks nothing"),
    "coverage_1": ("labels within 1 σ", 1.0, "0.683 if normal"),
    "coverage_2": ("labels within 2 σ", 1.0, "0.954 if normal"),
}


def _print(metrics: Metrics, bins: Bins) -> None:
    rows = []
    for name, (text, factor, unit) in _ROWS.items():
        low, high = metrics.intervals.get(name, (float("nan"), float("nan")))
        between = "–" if low != low else f"{number(factor * low, 3)} … {number(factor * high, 3)}"
        rows.append((text, number(factor * getattr(metrics, name), 4), between, unit))
    table(f"{metrics.n} structures", ("", "value", "95 % interval", "unit"), rows)
    table(
        "σ against error, meV/atom",
        ("σ from … to", "structures", "rms σ", "RMSE", "bias"),
        [
            (
                f"{1e3 * bins.sigma_min[b]:.3g} … {1e3 * bins.sigma_max[b]:.3g}",
                bins.count[b],
                f"{1e3 * bins.rmv[b]:.3g}",
                f"{1e3 * bins.rmse[b]:.3g}",
                f"{1e3 * bins.bias[b]:+.2g}",
            )
            for b in range(len(bins.count))
        ],
    )
