"""`nugget fit`: a potential from labelled structures."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli._common import DataFile, Index, Json, emit, facts, number, progress, table

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.potential import Potential
    from nugget.potential.priors import Prior


class InducingRule(StrEnum):
    pivoted = "pivoted"
    cur = "cur"
    random = "random"


class UncertaintyKind(StrEnum):
    label_noise = "label-noise"
    projected_process = "projected-process"


class Observations(StrEnum):
    structures = "structures"
    environments = "environments"


def _option(name: str, text: str, panel: str) -> Any:
    return typer.Option(name, help=text, rich_help_panel=panel)


_DESCRIPTOR, _PROCESS, _SIGMA = "Descriptor (SOAP)", "Gaussian process", "Uncertainty"


def fit(
    data: DataFile,
    output: Annotated[Path, typer.Option("--output", "-o", help="The model file to write.")],
    index: Index = ":",
    forces: Annotated[
        bool | None,
        typer.Option(
            "--forces/--no-forces",
            help="Learn from forces: insist on them, or leave them out. Default: where present.",
        ),
    ] = None,
    stress: Annotated[bool, typer.Option("--stress", help="Learn from stress, too.")] = False,
    energy_key: Annotated[
        str | None,
        typer.Option(help="Name of the energy in DATA, if not 'energy': 'REF_energy', ..."),
    ] = None,
    forces_key: Annotated[
        str | None, typer.Option(help="Name of the forces in DATA, if not 'forces'.")
    ] = None,
    prior: Annotated[
        list[str] | None,
        typer.Option(
            help="What is subtracted before learning (repeat to add up): 'species' for energies "
            "per element, 'repulsion', or an engine such as 'gfn1-xtb' or module:factory. "
            "Default: species.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of all random choices.")] = 0,
    species: Annotated[
        str | None,
        _option("--species", "Elements, as 'Cu,Au'. Default: those in DATA.", _DESCRIPTOR),
    ] = None,
    cutoff: Annotated[
        float, _option("--cutoff", "Radius of an environment, Å.", _DESCRIPTOR)
    ] = 6.0,
    n_max: Annotated[
        int, _option("--n-max", "Radial functions; 8 resolves far more than 3.", _DESCRIPTOR)
    ] = 3,
    l_max: Annotated[
        int, _option("--l-max", "Highest angular momentum; 6 goes with n-max 8.", _DESCRIPTOR)
    ] = 2,
    sigma: Annotated[float, _option("--sigma", "Width of an atom, Å.", _DESCRIPTOR)] = 1.0,
    length_scale: Annotated[
        float, _option("--length-scale", "Of the kernel, in units of features.", _PROCESS)
    ] = 20.0,
    amplitude: Annotated[
        float, _option("--amplitude", "Variance θ₀ of the kernel, eV².", _PROCESS)
    ] = 1.0,
    noise: Annotated[float, _option("--noise", "Misfit of energies, eV/atom.", _PROCESS)] = 0.01,
    force_noise: Annotated[
        float, _option("--force-noise", "Misfit of force components, eV/Å.", _PROCESS)
    ] = 0.1,
    inducing: Annotated[
        InducingRule, _option("--inducing", "How inducing points are chosen.", _PROCESS)
    ] = InducingRule.pivoted,
    points: Annotated[
        int | None,
        _option("--points", "How many: 1000 for cur and random, no limit for pivoted.", _PROCESS),
    ] = None,
    tol: Annotated[
        float, _option("--tol", "Pivoted: share of the variance that may be left.", _PROCESS)
    ] = 1e-7,
    uncertainty: Annotated[
        UncertaintyKind, _option("--uncertainty", "Where error bars come from.", _SIGMA)
    ] = UncertaintyKind.label_noise,
    members: Annotated[
        int | None,
        _option("--members", "Sampled committee of so many; default: the exact limit.", _SIGMA),
    ] = None,
    label_noise: Annotated[
        float, _option("--label-noise", "Committee: noise on energies, eV/atom.", _SIGMA)
    ] = 0.01,
    prior_noise: Annotated[
        float, _option("--prior-noise", "Committee: noise on the prior, eV/atom.", _SIGMA)
    ] = 0.05,
    force_label_noise: Annotated[
        float, _option("--force-label-noise", "Committee: noise on forces, eV/Å.", _SIGMA)
    ] = 0.05,
    observations: Annotated[
        Observations, _option("--observations", "Projected process: of what.", _SIGMA)
    ] = Observations.structures,
    anyway: Annotated[
        bool, typer.Option("--anyway", help="Begin even if memory will not suffice.")
    ] = False,
    json: Json = False,
) -> None:
    """Fit a potential to structures with energies (and forces, where there are any).

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
    from nugget.cli._before_fit import announce, check_energies, check_writable, warn_if_few
    from nugget.structures.io import read_images, relabelled

    check_writable(output)
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
        rules[inducing.value](),
        noise,
        force_noise,
        LabelNoise(label_noise, prior_noise, force_label_noise, members)
        if uncertainty is UncertaintyKind.label_noise
        else ProjectedProcess(observations.value),
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
