"""`nugget fit`: a potential from labelled structures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, facts, number, progress, table
from nugget.cli._output import Force, refuse_existing

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.potential import Potential


Preset = Literal["quick", "balanced", "accurate", "auto"]


def fit(
    data: opt.DataFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")],
    index: opt.Index = ":",
    forces: Annotated[
        bool | None,
        typer.Option(
            "--forces/--no-forces",
            help="Learn from forces: insist on them, or leave them out. Default: where present.",
        ),
    ] = None,
    stress: Annotated[bool, typer.Option("--stress", help="Learn from stress, too.")] = False,
    energy_key: opt.EnergyKey = None,
    forces_key: opt.ForcesKey = None,
    stress_key: opt.StressKey = None,
    preset: Annotated[
        Preset, typer.Option(help="Range and basis. auto: by errors on structures left out.")
    ] = "auto",
    optimise: Annotated[
        bool, typer.Option("--optimise", help="Kernel and noise by the marginal likelihood.")
    ] = False,
    lean: Annotated[
        bool, typer.Option("--lean", help="A small model: it predicts, but cannot learn on.")
    ] = False,
    prior: Annotated[
        list[str] | None,
        typer.Option(
            help="What is subtracted before learning (repeat to add up): 'species' for energies "
            "per element, 'repulsion', or an engine such as 'gfn1-xtb' or module:factory. "
            "Default: species.",
        ),
    ] = None,
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
    inducing: opt.Inducing = "pivoted",
    points: opt.Points = None,
    tol: opt.Tolerance = None,
    uncertainty: opt.Uncertainty = "posterior",
    members: opt.Members = None,
    label_noise: opt.LabelNoise = 0.01,
    prior_noise: opt.PriorNoise = 0.05,
    force_label_noise: opt.ForceLabelNoise = 0.05,
    observations: opt.Observations = "structures",
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Begin even if memory will not suffice.")
    ] = False,
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

    Without options, range and noise levels are chosen by the data, and error bars are calibrated
    on structures that are left out. What was chosen is printed and kept in the model. An estimate
    of memory and time is printed before a large fit.
    """
    from nugget import LabelNoise, Posterior, ProjectedProcess, set_threads
    from nugget.calibration.left_out import FEWEST
    from nugget.cli._before_fit import (
        announce,
        check_energies,
        check_structures,
        warn_if_few,
    )
    from nugget.cli._fit_settings import Settings, make_potential
    from nugget.structures.io import read_images, relabelled

    refuse_existing(output, force, inputs=(data,))
    set_threads(threads)
    images = read_images(data, index)
    if energy_key or forces_key or stress_key:
        images = relabelled(images, energy_key, forces_key, stress_key)
    check_energies(images)
    elements = species.replace(",", " ").split() if species else _elements(images)
    check_structures(images, elements, forces, stress)
    kinds: dict[str, Any] = {
        "posterior": Posterior,
        "label-noise": lambda: LabelNoise(label_noise, prior_noise, force_label_noise, members),
        "projected-process": lambda: ProjectedProcess(observations),
    }
    if members is not None and uncertainty == "posterior":
        uncertainty = "label-noise"
    few = len(images) < FEWEST
    settings = Settings(
        "balanced" if few and preset == "auto" else preset,
        elements, cutoff, n_max, l_max, sigma, length_scale, amplitude,
        0.01 if few and noise is None else noise,
        0.1 if few and force_noise is None else force_noise,
        inducing, points, tol, prior or ["species"], seed, optimise,
    )  # fmt: skip
    warn_if_few(images)
    start = time.perf_counter()
    with progress("Fitting", not json) as step:
        tell = getattr(step, "phase", lambda name: None)
        potential = make_potential(settings, images, forces, kinds[uncertainty](), tell)
        announce(potential, images, forces, anyway)
        potential.fit(
            images, forces, stress, step,
            calibrate="loo" if uncertainty == "posterior" and not few else None,
            choose_noise=settings.noise_is_free,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    report = _report(potential, images, output, seconds, not json)
    potential.save(output, lean=lean)
    report["bytes"] = output.stat().st_size
    if json:
        emit(report)
    else:
        _print(report)


def _elements(images: list[Atoms]) -> list[str]:
    return sorted({symbol for atoms in images for symbol in set(atoms.symbols)})


def _report(
    potential: Potential, images: list[Atoms], output: Path, seconds: float, shown: bool
) -> dict[str, Any]:
    from nugget.cli._labels import errors_of

    fitted = potential.fitted
    with_forces = bool(fitted.training.has_forces.any())
    with progress("Training error", shown) as step:
        found = potential.predict(images, forces=with_forces, progress=step)
    return {
        "model": str(output),
        "structures": len(images),
        "atoms": len(fitted.training.batch.positions),
        "labels": int(fitted.regression.y.size),
        "inducing_points": len(fitted.inducing),
        "features": int(fitted.inducing.z.shape[1]),
        "seconds": seconds,
        "training": errors_of(images, found),
        "choices": potential.choices,
        "calibration": potential.calibration,
    }


def _print(report: dict[str, Any]) -> None:
    from nugget.cli._before_fit import duration
    from nugget.cli._chosen import choice_rows, left_out_rows
    from nugget.cli._labels import error_rows

    table("Training set", ("", "MAE", "RMSE", "unit"), error_rows(report["training"]))
    if report["calibration"]:
        table(
            "Left out, structure by structure",
            ("", "MAE", "unit", "within 1 σ", "within 2 σ"),
            left_out_rows(report["calibration"]),
        )
    facts("Chosen", choice_rows(report["choices"]))
    facts(
        "Model",
        [
            ("structures", report["structures"]),
            ("labels", report["labels"]),
            ("inducing points", report["inducing_points"]),
            ("features", report["features"]),
            ("time", duration(report["seconds"])),
            ("mean σ", f"{number(1e3 * report['training']['sigma_per_atom'])} meV/atom"),
            ("file", f"{report['model']} ({report['bytes'] / 1e6:.2g} MB)"),
        ],
    )
