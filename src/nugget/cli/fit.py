"""`nugget fit`: a potential from labelled structures."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli._common import (
    DataFile,
    Index,
    Json,
    emit,
    facts,
    number,
    progress,
    stages,
    table,
)

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.potential import Potential


class Preset(StrEnum):
    quick = "quick"
    balanced = "balanced"
    accurate = "accurate"
    auto = "auto"


class InducingRule(StrEnum):
    pivoted = "pivoted"
    cur = "cur"
    random = "random"


class UncertaintyKind(StrEnum):
    posterior = "posterior"
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
    stress_key: Annotated[
        str | None, typer.Option(help="Name of the stress in DATA, if not 'stress'.")
    ] = None,
    preset: Annotated[
        Preset,
        typer.Option(
            help="Range and basis. auto: chosen by the errors on structures that are left out."
        ),
    ] = Preset.auto,
    optimise: Annotated[
        bool,
        typer.Option(
            "--optimise",
            help="Length scale, amplitude and noise by the marginal likelihood of the energies.",
        ),
    ] = False,
    lean: Annotated[
        bool, typer.Option("--lean", help="Write a small model that predicts, but cannot learn on.")
    ] = False,
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
        float | None, _option("--cutoff", "Radius of an environment, Å.", _DESCRIPTOR)
    ] = None,
    n_max: Annotated[
        int | None, _option("--n-max", "Radial functions; 8 resolves far more than 3.", _DESCRIPTOR)
    ] = None,
    l_max: Annotated[
        int | None,
        _option("--l-max", "Highest angular momentum; 6 goes with n-max 8.", _DESCRIPTOR),
    ] = None,
    sigma: Annotated[float | None, _option("--sigma", "Width of an atom, Å.", _DESCRIPTOR)] = None,
    length_scale: Annotated[
        float | None, _option("--length-scale", "Of the kernel, in units of features.", _PROCESS)
    ] = None,
    amplitude: Annotated[
        float | None, _option("--amplitude", "Variance θ₀ of the kernel, eV².", _PROCESS)
    ] = None,
    noise: Annotated[
        float | None, _option("--noise", "Misfit of energies, eV/atom.", _PROCESS)
    ] = None,
    force_noise: Annotated[
        float | None, _option("--force-noise", "Misfit of force components, eV/Å.", _PROCESS)
    ] = None,
    inducing: Annotated[
        InducingRule, _option("--inducing", "How inducing points are chosen.", _PROCESS)
    ] = InducingRule.pivoted,
    points: Annotated[
        int | None,
        _option("--points", "At most so many; 1000 for cur and random.", _PROCESS),
    ] = None,
    tol: Annotated[
        float | None, _option("--tol", "Pivoted: share of the variance that may be left.", _PROCESS)
    ] = None,
    uncertainty: Annotated[
        UncertaintyKind,
        _option(
            "--uncertainty",
            "Where error bars come from. posterior: calibrated on structures that are left out.",
            _SIGMA,
        ),
    ] = UncertaintyKind.posterior,
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
        nugget fit train.extxyz -o au.model --preset quick --lean
        nugget fit train.extxyz -o au.model --cutoff 6 --n-max 8 --l-max 6
        nugget fit all.extxyz.gz -i 0:225 -o au.model --no-forces --points 300

    Without options, range and noise levels are chosen by the data, and error bars are calibrated
    on structures that are left out. What was chosen is printed and kept in the model. An estimate
    of memory and time is printed before a large fit.
    """
    from nugget import LabelNoise, Posterior, ProjectedProcess
    from nugget.calibration.left_out import FEWEST
    from nugget.cli._before_fit import (
        announce,
        check_energies,
        check_structures,
        check_writable,
        warn_if_few,
    )
    from nugget.cli._fit_settings import Settings, make_potential
    from nugget.modelfile.file import save
    from nugget.structures.io import read_images, relabelled

    check_writable(output)
    images = read_images(data, index)
    if energy_key or forces_key or stress_key:
        images = relabelled(images, energy_key, forces_key, stress_key)
    check_energies(images)
    elements = species.replace(",", " ").split() if species else _elements(images)
    check_structures(images, elements, forces, stress)
    kinds: dict[str, Any] = {
        "posterior": Posterior,
        "label-noise": lambda: LabelNoise(label_noise, prior_noise, force_label_noise, members),
        "projected-process": lambda: ProjectedProcess(observations.value),
    }
    if members is not None and uncertainty is UncertaintyKind.posterior:
        uncertainty = UncertaintyKind.label_noise
    few = len(images) < FEWEST
    settings = Settings(
        Preset.balanced.value if few and preset is Preset.auto else preset.value,
        elements, cutoff, n_max, l_max, sigma, length_scale, amplitude,
        0.01 if few and noise is None else noise,
        0.1 if few and force_noise is None else force_noise,
        inducing.value, points, tol, prior or ["species"], seed, optimise,
    )  # fmt: skip
    warn_if_few(images)
    start = time.perf_counter()
    with stages(not json) as stage:
        potential = make_potential(settings, images, forces, kinds[uncertainty.value](), stage.tell)
        announce(potential, images, forces, anyway)
        stage.tell("fitting")
        honest = uncertainty is UncertaintyKind.posterior and not few
        potential.fit(
            images, forces, stress, stage.step,
            calibrate="loo" if honest else None, choose_noise=settings.noise_is_free,
        )  # fmt: skip
    seconds = time.perf_counter() - start
    report = _report(potential, images, output, seconds, not json)
    save(potential, output, lean=lean)
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
    learnt_forces = bool(fitted.training.has_forces.any())
    with progress("Training error", shown) as step:
        found = potential.predict(images, forces=learnt_forces, progress=step)
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
