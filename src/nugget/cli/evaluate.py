"""`nugget evaluate`: how good are predictions, and how honest their error bars."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, number, progress, table
from nugget.cli._output import Force, refuse_existing

if TYPE_CHECKING:
    from nugget.calibration import Bins, Components
    from nugget.calibration.summary import Metrics

# More groups than this make no table; a file of many formulas is shown by the largest groups.
_GROUPS = 15


def evaluate(
    model: opt.ModelFile,
    data: opt.DataFile,
    index: opt.Index = ":",
    energy_key: opt.EnergyKey = None,
    forces_key: opt.ForcesKey = None,
    stress_key: opt.StressKey = None,
    forces: Annotated[
        bool, typer.Option("--forces/--no-forces", help="Judge forces, where DATA has them.")
    ] = True,
    stress: Annotated[bool, typer.Option("--stress", help="Judge the stress, too.")] = False,
    by: Annotated[
        str, typer.Option(help="Groups: a key of info, or 'formula'.", metavar="KEY")
    ] = "formula",
    plot: Annotated[
        Path | None,
        typer.Option(
            help="Directory for figures: calibration and parity, png and pdf.", metavar="DIR"
        ),
    ] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="A page: parity, calibration, the worst in 3D.", metavar="FILE"),
    ] = None,
    resamples: opt.Resamples = 200,
    seed: opt.RandomSeed = 0,
    threads: opt.Threads = 0,
    trust: opt.Trust = False,
    allow_training: opt.AllowTraining = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Judge a model on labelled structures: errors and calibration.

    [bold]Examples[/bold]

        nugget evaluate au.model test.extxyz
        nugget evaluate au.model test.extxyz --html au.html
        nugget evaluate au.model test.extxyz --plot figures
        nugget evaluate au.model all.extxyz.gz -i 250: --json > metrics.json

    Energies are judged per structure and per atom: errors E/N against σ/N. Forces and stresses are
    judged component by component, forces also by the length of an atom's error.
    """
    import numpy as np

    from nugget import set_threads
    from nugget.calibration import components, residuals, sigma_bins
    from nugget.calibration.groups import force_error_per_atom, group_errors, grouped_by
    from nugget.cli._labels import refuse_training
    from nugget.modelfile.file import load
    from nugget.structures.io import read_images, relabelled

    names = [f"{name}.{kind}" for name in ("calibration", "parity") for kind in ("png", "pdf")]
    files = [] if plot is None else [plot / name for name in names]
    for file in files:
        if plot is not None and plot.exists():
            refuse_existing(file, force)
    if html is not None:
        refuse_existing(html, force)
    set_threads(threads)
    potential = load(model, trust_code=trust)
    images = read_images(data, index)
    refuse_training(potential, images, allow_training)
    if energy_key or forces_key or stress_key:
        images = relabelled(images, energy_key, forces_key, stress_key)
    with progress("Predicting", not json) as step:
        found = residuals(potential, images, step)
    parts: dict[str, Components] = {}
    for kind, wanted in (("force", forces), ("stress", stress)):
        with progress(f"Predicting {kind}", not json) as step:
            made = components(potential, images, kind, step) if wanted else None
        if made is not None:
            parts[kind] = made
    rng = np.random.default_rng(seed)
    metrics = found.summary(rng if resamples else None, max(resamples, 1))
    bins = sigma_bins(found.y_true, found.y_pred, found.y_std)
    if plot is not None:
        from nugget.report.calibration_figure import calibration_figure
        from nugget.report.parity_figure import parity_figure

        plot.mkdir(parents=True, exist_ok=True)
        figure = calibration_figure({model.stem: found}, np.random.default_rng(seed))
        figures = {"calibration": figure, "parity": parity_figure(found, parts)}
        for file in files:
            figures[file.stem].savefig(file, dpi=150)
    if html is not None:
        from nugget.report.evaluation_page import evaluation_page
        from nugget.report.evaluation_rows import Evaluation
        from nugget.report.page import write_page

        judged_on = Evaluation(potential, images, found, parts, by, seed)
        options = {
            "-i": index if index != ":" else None, "--energy-key": energy_key,
            "--forces-key": forces_key, "--stress-key": stress_key,
            "--by": by if by != "formula" else None,
        }  # fmt: skip
        words = ["nugget", "evaluate", str(model), str(data), "--html", str(html)]
        words += [word for pair in options.items() if pair[1] for word in pair if word]
        words += ["--stress"] * stress + ["--no-forces"] * (not forces)
        command = shlex.join(words)
        write_page(html, evaluation_page(judged_on, model.name, command))
        files.append(html)
    groups = grouped_by(images, by)
    split = {name: group_errors(found, parts, members) for name, members in groups.items()}
    judged = {kind: part.summary() for kind, part in parts.items()}
    if json:
        columns = ("count", "sigma_min", "sigma_max", "rmv", "rmse", "bias")
        emit(
            {
                "model": model,
                "metrics": metrics.to_dict(),
                "components": {kind: one.to_dict() for kind, one in judged.items()},
                "force_error_per_atom": force_error_per_atom(parts),
                "by": {"key": by, "groups": split},
                "bins": {name: getattr(bins, name) for name in columns},
                "figures": files,
            }
        )
        return
    _print(metrics, bins)
    for kind, one in judged.items():
        _print_components(kind, one, force_error_per_atom(parts) if kind == "force" else None)
    if len(split) > 1:
        _print_groups(by, split)
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


def _print_components(kind: str, metrics: Metrics, per_atom: dict[str, float] | None) -> None:
    factor, unit = (1.0, "eV/Å") if kind == "force" else (1e3, "meV/Å³")
    rows = [
        (text, number(scale * getattr(metrics, name), 4), unit if scaled else note)
        for name, (text, scaled, note) in _COMPONENT_ROWS.items()
        for scale in (factor if scaled else 1.0,)
    ]
    if per_atom is not None:
        rows += [
            ("length of an atom's error, mean", number(per_atom["mean"], 4), unit),
            ("... 95 % are below", number(per_atom["quantile_95"], 4), unit),
        ]
    table(f"{metrics.n} {kind} components", ("", "value", "unit"), rows)


# Name: text, whether it has a unit, and what it should be.
_COMPONENT_ROWS = {
    "mae": ("MAE", True, ""),
    "rmse": ("RMSE", True, ""),
    "miscalibration_area": ("miscalibration area", False, "0 is perfect"),
    "ence": ("ENCE, binned by σ", False, "0 is perfect"),
    "sharpness": ("sharpness (rms of σ)", True, ""),
    "spearman": ("Spearman of σ and |error|", False, "0: σ ranks nothing"),
    "coverage_1": ("within 1 σ", False, "0.683 if normal"),
    "coverage_2": ("within 2 σ", False, "0.954 if normal"),
}


def _print_groups(by: str, split: dict[str, dict[str, float]]) -> None:
    shown = list(split.items())[:_GROUPS]
    more = f" (the {_GROUPS} largest of {len(split)})" if len(split) > _GROUPS else ""
    with_forces = any("force_mae" in group for _, group in shown)
    columns = [by, "number", "meV/atom", "in 1 σ", "in 2 σ"]
    columns += ["eV/Å", "in 1 σ", "in 2 σ"] if with_forces else []
    rows = []
    for name, group in shown:
        row = [name, group["structures"], f"{1e3 * group['energy_mae']:.3g}"]
        row += [f"{group[key]:.0%}" for key in ("within_1", "within_2")]
        if with_forces:
            row.append(number(group.get("force_mae"), 2))
            shares = [group.get(f"force_within_{k}") for k in (1, 2)]
            row += ["–" if share is None else f"{share:.0%}" for share in shares]
        rows.append(row)
    table(f"MAE and coverage by {by}{more}", columns, rows)
