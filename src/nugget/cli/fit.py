"""`nugget fit`: a potential from labelled structures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, facts, number, progress, table
from nugget.cli._output import Force, refuse_existing

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.potential import Potential
    from nugget.potential.priors import Prior


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
    cutoff: opt.Cutoff = 6.0,
    n_max: opt.NMax = 3,
    l_max: opt.LMax = 2,
    sigma: opt.Sigma = 1.0,
    length_scale: opt.LengthScale = 20.0,
    amplitude: opt.Amplitude = 1.0,
    noise: opt.Noise = 0.01,
    force_noise: opt.ForceNoise = 0.1,
    inducing: opt.Inducing = "pivoted",
    points: opt.Points = None,
    tol: opt.Tolerance = 1e-7,
    uncertainty: opt.Uncertainty = "label-noise",
    members: opt.Members = None,
    label_noise: opt.LabelNoise = 0.01,
    prior_noise: opt.PriorNoise = 0.05,
    force_label_noise: opt.ForceLabelNoise = 0.05,
    observations: opt.Observations = "structures",
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Begin even if memory will not suffice.")
    ] = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Fit a potential to structures with energies and forces.

    [bold]Examples[/bold]

        nugget fit train.extxyz -o au.model
        nugget fit train.extxyz -o au.model --n-max 8 --l-max 6
        nugget fit all.extxyz.gz -i 0:225 -o au.model --no-forces --points 300
        nugget fit train.extxyz -o au.model --inducing cur --members 50

    An estimate of memory and time is printed before a large fit.
    """
    from nugget import (
        CUR,
        RBF,
        SOAP,
        LabelNoise,
        PivotedCholesky,
        Potential,
        ProjectedProcess,
        Random,
    )
    from nugget.cli._before_fit import announce, check_energies, warn_if_few
    from nugget.structures.io import read_images, relabelled

    refuse_existing(output, force, inputs=(data,))
    images = read_images(data, index)
    if energy_key or forces_key:
        images = relabelled(images, energy_key, forces_key)
    check_energies(images)
    elements = species.replace(",", " ").split() if species else _elements(images)
    rules: dict[str, Any] = {
        "pivoted": lambda: PivotedCholesky(tol, points),
        "cur": lambda: CUR(1000 if points is None else points),
        "random": lambda: Random(1000 if points is None else points),
    }
    potential = Potential(
        SOAP(tuple(elements), cutoff, n_max, l_max, sigma),
        RBF(length_scale, amplitude),
        rules[inducing](),
        noise,
        force_noise,
        LabelNoise(label_noise, prior_noise, force_label_noise, members)
        if uncertainty == "label-noise"
        else ProjectedProcess(observations),
        _priors(prior or ["species"]),
        seed,
    )
    warn_if_few(images)
    announce(potential, images, forces, anyway)
    start = time.perf_counter()
    with progress("Fitting", not json) as step:
        potential.fit(images, forces, stress, step)
    seconds = time.perf_counter() - start
    report = _report(potential, images, output, seconds, not json)
    potential.save(output)
    report["bytes"] = output.stat().st_size
    if json:
        emit(report)
    else:
        _print(report)


def _elements(images: list[Atoms]) -> list[str]:
    return sorted({symbol for atoms in images for symbol in set(atoms.symbols)})


def _priors(names: list[str]) -> list[Prior]:
    from nugget.evaluation.engines import get_engine
    from nugget.potential.priors import CalculatorPrior, Repulsion, SpeciesEnergies

    made: list[Prior] = []
    for name in names:
        if name == "species":
            made.append(SpeciesEnergies())
        elif name == "repulsion":
            made.append(Repulsion())
        else:
            get_engine(name)  # a name that does not exist is refused here
            made.append(CalculatorPrior(name))
    return made


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
    }


def _print(report: dict[str, Any]) -> None:
    from nugget.cli._before_fit import duration
    from nugget.cli._labels import error_rows

    table("Training set", ("", "MAE", "RMSE", "unit"), error_rows(report["training"]))
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
