"""`nugget evaluate`: errors and calibration of a model on labelled structures."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import (
    Force,
    echo_written,
    emit,
    figure_files,
    number,
    progress,
    refuse_existing,
    show_verdict,
    table,
)
from nugget.display import counted

if TYPE_CHECKING:
    from nugget.calibration import Bins, Components
    from nugget.calibration.metrics import Metrics


# Number of groups in a table; only the largest groups are shown.
_GROUPS = 15


def evaluate(
    model: opt.ModelFile,
    data: opt.DataFile,
    index: opt.Index = ":",
    energy_key: opt.EnergyKey = None,
    forces_key: opt.ForcesKey = None,
    stress_key: opt.StressKey = None,
    forces: bool = Option(
        True, "--forces/--no-forces", help="Evaluate forces, where DATA has them."
    ),
    stress: bool = Option(False, "--stress", help="Evaluate the stress as well."),
    by: str = Option("formula", help="Groups: a key of info, or 'formula'.", metavar="KEY"),
    plot: Path | None = Option(
        None, help="Directory for figures: calibration and parity, png and pdf.", metavar="DIR"
    ),
    html: Path | None = Option(
        None, help="A page: parity, calibration, the worst in 3D.", metavar="FILE"
    ),
    resamples: opt.Resamples = 200,
    seed: opt.RandomSeed = 0,
    threads: opt.Threads = 0,
    trust: opt.Trust = False,
    allow_training: opt.AllowTraining = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Evaluate errors and calibration of a model on labelled structures.

    [bold]Examples[/bold]

        nugget evaluate au.model test.extxyz
        nugget evaluate au.model test.extxyz --html au.html
        nugget evaluate au.model test.extxyz --plot figures
        nugget evaluate au.model all.extxyz.gz -i 250: --json > metrics.json

    Energies are compared per atom, one label per structure. Forces and stresses are compared by
    component, and forces also by the length of the error of each atom.
    """
    import numpy as np

    from nugget import set_threads
    from nugget.calibration.metrics import sigma_bins
    from nugget.cli._fit import refuse_training
    from nugget.potential.mean_functions.base import require_energies
    from nugget.potential.potential import Potential
    from nugget.potential.validation import (
        components,
        force_error_per_atom,
        group_errors,
        grouped_by,
        residuals,
    )
    from nugget.report.run_verdicts import model_verdict
    from nugget.structures.batch import as_batch
    from nugget.structures.io import read_images, relabelled

    files = figure_files(plot, ("calibration", "parity"), force)
    if html is not None:
        refuse_existing(html, force)
    set_threads(threads)
    potential = Potential.load(model, trust_code=trust)
    images = read_images(data, index)
    refuse_training(potential, images, allow_training)
    if energy_key or forces_key or stress_key:
        images = relabelled(images, energy_key, forces_key, stress_key)
    with progress("Predicting", not json) as step:
        found = residuals(potential, images, step)
    require_energies(potential.fitted.mean_function, as_batch(images), found.y_pred)
    parts: dict[str, Components] = {}
    for kind, wanted in (("force", forces), ("stress", stress)):
        with progress(f"Predicting {kind}", not json) as step:
            part = components(potential, images, kind, step) if wanted else None
        if part is not None:
            parts[kind] = part
    rng = np.random.default_rng(seed)
    metrics = found.summary(rng if resamples else None, max(resamples, 1))
    bins = sigma_bins(found.y_true, found.y_pred, found.y_std)
    if plot is not None:
        from nugget.report.figures import calibration_figure, parity_figure

        plot.mkdir(parents=True, exist_ok=True)
        figure = calibration_figure({model.stem: found}, np.random.default_rng(seed))
        figures = {"calibration": figure, "parity": parity_figure(found, parts)}
        for file in files:
            figures[file.stem].savefig(file, dpi=150)
    if html is not None:
        from nugget.report.evaluation_page import Evaluation, evaluation_page
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
        write_page(html, evaluation_page(judged_on, model.name, command, str(data)))
        files.append(html)
    groups = grouped_by(images, by)
    split = {name: group_errors(found, parts, members) for name, members in groups.items()}
    judged = {kind: part.summary() for kind, part in parts.items()}
    verdict = model_verdict(model, data, found, parts, potential.contents().facts)
    if json:
        columns = ("count", "sigma_min", "sigma_max", "rmv", "rmse", "bias")
        report = {
            "model": model,
            "metrics": metrics.to_dict(),
            "components": {kind: one.to_dict() for kind, one in judged.items()},
            "force_error_per_atom": force_error_per_atom(parts),
            "by": {"key": by, "groups": split},
            "bins": {name: getattr(bins, name) for name in columns},
            "figures": files,
            "verdict": verdict.to_dict(),
        }
        emit(report)
        return
    _print(metrics, bins)
    for kind, one in judged.items():
        _print_components(kind, one, force_error_per_atom(parts) if kind == "force" else None)
    if len(split) > 1:
        _print_groups(by, split)
    show_verdict(verdict)
    echo_written(files)


# Text of a metric, and what it should be; empty for those with the unit of the labels.
_METRICS = {
    "mae": ("MAE", ""),
    "rmse": ("RMSE", ""),
    "bias": ("bias", ""),
    "calibration_error": ("calibration error (CE)", "0 is perfect"),
    "miscalibration_area": ("miscalibration area", "0 is perfect"),
    "ence": ("ENCE, binned by σ", "0 is perfect"),
    "nll": ("negative log-likelihood", "smaller is better"),
    "crps": ("CRPS", ""),
    "sharpness": ("sharpness (rms of σ)", ""),
    "dispersion": ("dispersion of σ", "0: all alike"),
    "spearman": ("Spearman of σ and |error|", "0: σ ranks nothing"),
    "coverage_1": ("labels within 1 σ", "0.683 if normal"),
    "coverage_2": ("labels within 2 σ", "0.954 if normal"),
}
_NOT_OF_COMPONENTS = {"bias", "calibration_error", "nll", "crps", "dispersion"}


def _print(metrics: Metrics, bins: Bins) -> None:
    rows = []
    for name, (text, note) in _METRICS.items():
        factor, unit = (1.0, note) if note else (1e3, "meV/atom")
        low, high = metrics.intervals.get(name, (float("nan"), float("nan")))
        between = "–" if low != low else f"{number(factor * low, 3)} … {number(factor * high, 3)}"
        rows.append((text, number(factor * getattr(metrics, name), 4), between, unit))
    table(counted(metrics.n, "structure"), ("", "value", "95 % interval", "unit"), rows)
    lines = []
    for b, count in enumerate(bins.count):
        least, most, rmv, rmse = (
            f"{1e3 * values[b]:.3g}"
            for values in (bins.sigma_min, bins.sigma_max, bins.rmv, bins.rmse)
        )
        lines.append((f"{least} … {most}", count, rmv, rmse, f"{1e3 * bins.bias[b]:+.2g}"))
    columns = ("σ from … to", "structures", "rms σ", "RMSE", "bias")
    table("σ against error, meV/atom", columns, lines)


def _print_components(kind: str, metrics: Metrics, per_atom: dict[str, float] | None) -> None:
    factor, unit = (1.0, "eV/Å") if kind == "force" else (1e3, "meV/Å³")
    rows = [
        (text, number((1.0 if note else factor) * getattr(metrics, name), 4), note or unit)
        for name, (text, note) in _METRICS.items()
        if name not in _NOT_OF_COMPONENTS
    ]
    if per_atom is not None:
        rows += [
            ("length of an atom's error, mean", number(per_atom["mean"], 4), unit),
            ("... 95 % are below", number(per_atom["quantile_95"], 4), unit),
        ]
    table(counted(metrics.n, f"{kind} component"), ("", "value", "unit"), rows)


def _print_groups(by: str, split: dict[str, dict[str, float]]) -> None:
    shown = list(split.items())[:_GROUPS]
    more = f" (the {_GROUPS} largest of {len(split)})" if len(split) > _GROUPS else ""
    with_forces = any("force_mae" in group for _, group in shown)
    columns = [by, "number", "meV/atom", "in σ", "in 2σ", "rms z"]
    columns += ["eV/Å", "in σ", "in 2σ"] if with_forces else []
    rows = []
    for name, group in shown:
        row = [name, group["structures"], f"{1e3 * group['energy_mae']:.3g}"]
        row += [f"{group[key]:.0%}" for key in ("within_1", "within_2")]
        row.append(number(group["rms_z"], 2))
        if with_forces:
            row.append(number(group.get("force_mae"), 2))
            shares = [group.get(f"force_within_{k}") for k in (1, 2)]
            row += ["–" if share is None else f"{share:.0%}" for share in shares]
        rows.append(row)
    table(f"MAE and coverage by {by}{more}", columns, rows)
