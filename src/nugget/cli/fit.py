"""`nugget fit`: fit a potential to labelled structures."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, emit, facts, given, number, progress, refuse_existing, table
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.mean_functions.base import MeanFunction
    from nugget.potential.potential import Potential


Preset = Literal["quick", "balanced", "accurate", "auto"]


def fit(
    data: opt.DataFile,
    output: Path = Option(..., "--output", "-o", help="The model file to write."),
    index: opt.Index = ":",
    forces: bool | None = Option(
        None,
        "--forces/--no-forces",
        help="Require forces, or ignore them. Default: use them where present.",
    ),
    stress: bool = Option(False, "--stress", help="Fit to stress as well."),
    energy_key: opt.EnergyKey = None,
    forces_key: opt.ForcesKey = None,
    stress_key: opt.StressKey = None,
    virial_key: opt.VirialKey = None,
    weight_key: opt.WeightKey = None,
    noise_by: opt.NoiseBy = None,
    e0: opt.IsolatedAtoms = None,
    residuals: Path | None = Option(
        None, help="Write leave-one-out residuals of all structures: .csv or .json."
    ),
    preset: Preset = Option("auto", help="Range, basis, width. auto: by leave-one-out errors."),
    optimise: bool = Option(
        False, "--optimise", help="Kernel and noise by the marginal likelihood."
    ),
    lean: bool = Option(False, "--lean", help="A small model that predicts but cannot be updated."),
    prior: list[str] | None = Option(
        None,
        help="Mean function (repeat to add up): 'species' for energies per element, "
        "'repulsion', another registered name, or an engine such as 'gfn1-xtb' or "
        "module:factory. Default: species, zbl (a repulsion of atoms that are closer than any in "
        "DATA) and, if it explains the forces, second-moment (cohesion of metals) or bond-order "
        "(covalent bonds).",
    ),
    mean: opt.Mean = None,
    mean_option: opt.MeanOption = None,
    mean_weight: float | None = Option(
        None, min=0.0, max=1.0, help="Weight of --mean. Default: by cross-validation."
    ),
    domain: bool = Option(
        True, "--domain/--no-domain", help="σ grows with the distance from the training domain."
    ),
    seed: opt.RandomSeed = 0,
    species: opt.Species = None,
    cutoff: opt.Cutoff = None,
    n_max: opt.NMax = None,
    l_max: opt.LMax = None,
    sigma: opt.Sigma = None,
    length_scale: opt.LengthScale = None,
    amplitude: opt.Amplitude = None,
    noise: opt.Noise = None,
    force_noise: opt.ForceNoise = None,
    descriptor: opt.Descriptor = None,
    descriptor_option: opt.DescriptorOption = None,
    kernel: opt.Kernel = None,
    kernel_option: opt.KernelOption = None,
    inducing: opt.Inducing = "pivoted",
    inducing_option: opt.InducingOption = None,
    points: opt.Points = None,
    tol: opt.Tolerance = None,
    uncertainty: opt.Uncertainty = "posterior",
    uncertainty_option: opt.UncertaintyOption = None,
    members: opt.Members = None,
    label_noise: opt.LabelNoise = None,
    prior_noise: opt.PriorNoise = None,
    force_label_noise: opt.ForceLabelNoise = None,
    observations: opt.Observations = None,
    anyway: bool = Option(
        False, "--anyway", help="Fit even if labels contradict each other or memory is too small."
    ),
    stream: bool = Option(
        False, "--stream", help="Bounded memory, for large DATA; error bars are not calibrated."
    ),
    threads: opt.Threads = 0,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Fit a potential to structures with energies and forces.

    [bold]Examples[/bold]

        nugget fit train.extxyz -o au.model
        nugget fit train.extxyz -o au.model --preset quick --lean
        nugget fit train.extxyz -o au.model --cutoff 6 --n-max 8 --l-max 6
        nugget fit all.extxyz.gz -i 0:225 -o au.model --no-forces --points 300
        nugget fit train.extxyz -o oxide.model --mean sevennet

    By default, leave-one-out errors select the range, the width of the Gaussians, the noise levels
    and the number of inducing points, and the error bars are calibrated on leave-one-out residuals
    unless their levels are given. The choices are printed and stored in the model, and the
    structures with the largest residuals are listed. Inconsistent labels are rejected. Before a
    large fit, an estimate of memory and time is printed.

    With --mean the model learns the error of a foundation model or another engine. Models with and
    without this engine are fitted, and leave-one-out and leave-group-out errors determine its
    weight. With weight 0 the model does not use the engine.
    """
    from nugget import set_threads
    from nugget.calibration.leave_one_out import FEWEST, can_leave_one_out
    from nugget.cli import _fit, _labels
    from nugget.potential.builder import PartSettings, registered_name
    from nugget.potential.mean_choice import fit_with_mean
    from nugget.potential.mean_functions.foundation import engine_mean
    from nugget.potential.training import Noise, TrainingData
    from nugget.structures.io import read_images, relabelled

    def part(name: str | None, default: str, texts: list[str] | None, **own: Any) -> Any:
        options = given(**own) | _fit.given_options(texts)
        return PartSettings(name or default, options) if name or options else None

    refuse_existing(output, force, inputs=(data,))
    set_threads(threads)
    if residuals is not None:
        _labels.check_residuals_file(residuals, force)
    images = read_images(data, index)
    if energy_key or forces_key or stress_key or virial_key:
        images = relabelled(images, energy_key, forces_key, stress_key, virial_key)
        if forces is not False:
            _labels.check_force_names(images, energy_key, forces_key)
    _fit.check_energies(images)
    stress = stress or bool(stress_key or virial_key)
    isolated = _labels.isolated_energies(e0, images)
    images = _labels.with_noise_levels(images, noise_by, weight_key, isolated)
    all_symbols = {symbol for atoms in images for symbol in set(atoms.symbols)}
    elements = species.replace(",", " ").split() if species else sorted(all_symbols)
    data_set = TrainingData.read(images, forces, stress)
    _fit.check_structures(data_set, elements)
    _labels.check_before(data_set.training, anyway)
    if members is not None and uncertainty == "posterior":
        uncertainty = "label-noise"
    kind, levels = (
        registered_name("uncertainty", uncertainty),
        _fit.given_options(uncertainty_option),
    )
    if kind == "LabelNoise":
        own = {"label": label_noise, "prior": prior_noise, "force": force_label_noise}
        levels = given(members=members, **own) | levels
    elif kind == "ProjectedProcess" and observations is not None:
        levels = {"observations": observations} | levels
    levels_are_free = not set(levels) - {"members", "observations"}
    chosen = PartSettings(kind, levels)
    calibrates = levels_are_free and can_leave_one_out(chosen.build("uncertainty"))
    few = len(images) < FEWEST
    basis = {"cutoff": cutoff, "n_max": n_max, "l_max": l_max, "sigma": sigma}
    settings = _fit.Settings(
        "balanced" if few and preset == "auto" else preset,
        elements,
        part(descriptor, "SOAP", descriptor_option, **basis),
        part(kernel, "RBF", kernel_option, length_scale=length_scale),
        part(inducing, "", inducing_option, max_points=points, tol=tol),
        chosen,
        prior or None,
        amplitude,
        Noise.energy if few and noise is None else noise,
        Noise.force if few and force_noise is None else force_noise,
        seed,
        optimise,
        domain,
        isolated,
    )
    _fit.warn_if_few(images)
    if mean is not None and (few or stream):
        raise NuggetError(
            f"--mean compares models by leave-one-out errors, which need {FEWEST} or more "
            "structures and no --stream; use --prior ENGINE instead."
        )
    start = time.perf_counter()
    with progress("Fitting", not json) as step:

        def fitted(more: MeanFunction | None) -> Potential:
            own = replace(settings, engine_mean=more)
            tell = getattr(step, "phase", lambda name: None)
            potential = _fit.make_potential(own, images, data_set, forces, tell)
            _fit.announce(potential, data_set, anyway, stream)
            return potential.fit_data(
                data_set, progress=step,
                calibrate="loo" if calibrates and not few and not stream else None,
                choose_noise=settings.noise_is_free and not stream, stream=stream,
                choose_points=settings.points_are_free and not stream,
            )  # fmt: skip

        if mean is None:
            potential = fitted(None)
        else:
            options = tuple(_fit.given_options(mean_option).items())
            engine = engine_mean(mean, options)
            potential, _ = fit_with_mean(mean, engine, fitted, data_set, mean_weight)
    errors = [] if few or stream else potential.leave_one_out(_labels.group_names(images))
    _labels.check_after(potential.fitted, errors, anyway)
    seconds = time.perf_counter() - start
    report = _report(potential, images, output, seconds, not json)
    report["largest_residuals"] = _labels.largest_residuals(errors)
    if residuals is not None:
        _labels.save_residuals(residuals, errors)
    potential.save(output, lean=lean)
    report["bytes"] = output.stat().st_size
    if json:
        emit(report)
    else:
        _print(report)


def _report(
    potential: Potential, images: list[Atoms], output: Path, seconds: float, shown: bool
) -> dict[str, Any]:
    from nugget.cli._fit import training_errors

    fitted = potential.fitted
    with progress("Training error", shown) as step:
        errors = training_errors(potential, images, step)
    return {
        "model": str(output),
        "structures": len(images),
        "atoms": len(fitted.training.batch.positions),
        "labels": int(fitted.regression.y.size),
        "inducing_points": len(fitted.inducing),
        "features": int(fitted.inducing.z.shape[1]),
        "seconds": seconds,
        "training": errors,
        "choices": potential.choices,
        "calibration": potential.calibration,
    }


def _print(report: dict[str, Any]) -> None:
    from nugget.cli._fit import choice_rows, error_rows, leave_one_out_rows
    from nugget.cli._labels import residual_rows
    from nugget.display import duration

    table("Training set", ("", "MAE", "RMSE", "unit"), error_rows(report["training"]))
    if report["calibration"]:
        columns = ("", "MAE", "unit", "within 1 σ", "within 2 σ")
        table("Leave-one-out", columns, leave_one_out_rows(report["calibration"]))
    if report["largest_residuals"]:
        names = ("structure", "", "group", "energy, meV/atom", "z", "forces, eV/Å", "z")
        worst = residual_rows(report["largest_residuals"])
        table("Largest leave-one-out residuals", names, worst)
    facts("Chosen", choice_rows(report["choices"]))
    counts = ("structures", "labels", "inducing_points", "features")
    rows: list[tuple[str, object]] = [(name.replace("_", " "), report[name]) for name in counts]
    rows += [
        ("time", duration(report["seconds"])),
        ("mean σ", f"{number(1e3 * report['training']['sigma_per_atom'])} meV/atom"),
        ("file", f"{report['model']} ({report['bytes'] / 1e6:.2g} MB)"),
    ]
    facts("Model", rows)
