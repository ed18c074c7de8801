"""`nugget calibrate`: make the error bars of a model honest."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli._common import DataFile, Index, Json, ModelFile, Trust, emit, facts, number, table

if TYPE_CHECKING:
    from nugget.calibration import Calibration
    from nugget.calibration.summary import Metrics


class ObjectiveName(StrEnum):
    calibration_error = "calibration_error"
    nll = "nll"
    crps = "crps"


class MethodName(StrEnum):
    levels = "levels"
    scale = "scale"


def calibrate(
    model: ModelFile,
    data: DataFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="The model file to write. Default: MODEL itself."),
    ] = None,
    index: Index = ":",
    energy_key: Annotated[
        str | None,
        typer.Option(help="Name of the energy in DATA, if not 'energy': 'REF_energy', ..."),
    ] = None,
    objective: Annotated[
        ObjectiveName, typer.Option(help="What is minimised over the structures of DATA.")
    ] = ObjectiveName.calibration_error,
    method: Annotated[
        MethodName,
        typer.Option(
            help="levels: the noise levels of a committee (a projected process has one factor "
            "only); scale: one factor on every σ."
        ),
    ] = MethodName.levels,
    forces: Annotated[
        bool,
        typer.Option(
            "--forces/--no-forces", help="Calibrate forces (and stress), too, where DATA has them."
        ),
    ] = True,
    resamples: Annotated[
        int, typer.Option(help="Bootstrap samples for the intervals; 0 for none.", min=0)
    ] = 40,
    seed: Annotated[int, typer.Option(help="Of the bootstrap.")] = 0,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """Find the noise levels that make error bars honest, on structures not used for fitting.

    [bold]Examples[/bold]

        nugget calibrate au.model validation.extxyz
        nugget calibrate au.model all.extxyz.gz -i 225:250 -o calibrated.model
        nugget calibrate au.model validation.extxyz --objective nll --method scale

    Energies and forces that the model predicts do not change, only their uncertainty. 25 structures
    are enough for a first calibration, but see the interval. Errors and σ are compared per atom.
    `nugget fit` calibrates by itself, on structures that it leaves out; this command replaces that,
    and intervals of `nugget predict --interval` then hold with their full guarantee.
    """
    import numpy as np

    from nugget.calibration import calibrate as run
    from nugget.calibration import residuals
    from nugget.modelfile.file import load
    from nugget.structures.io import read_images, relabelled

    potential = load(model, trust_code=trust)
    images = read_images(data, index)
    if energy_key:
        images = relabelled(images, energy_key)
    before = residuals(potential, images).summary()
    start = time.perf_counter()
    found = run(
        potential, images, objective.value, method=method.value,
        rng=np.random.default_rng(seed), resamples=resamples,
    )  # fmt: skip
    more: dict[str, float] = {}
    if forces and method is MethodName.levels:
        from nugget.calibration import calibrate_components

        if "force_floor" in vars(potential.fitted.uncertainty.settings):
            for kind in ("force", "stress"):
                more |= calibrate_components(potential, images, kind) or {}
    seconds = time.perf_counter() - start
    after = residuals(potential, images).summary()
    target = model if output is None else output
    potential.save(target)
    if json:
        emit(
            {
                "model": target,
                "seconds": seconds,
                "calibration": potential.calibration,
                "before": before.to_dict(),
                "after": after.to_dict(),
            }
        )
    else:
        _print(found, more, before, after, target)


_LEVELS = {
    "label": ("σ_l, noise on energies", "eV/atom"),
    "prior": ("σ_p, noise on the prior", "eV/atom"),
    "force": ("σ_lf, noise on forces", "eV/Å"),
    "scale": ("factor on σ", ""),
    "energy": ("factor on the posterior's σ", ""),
    "energy_floor": ("floor of σ", "eV/atom"),
    "force_floor": ("floor of σ, forces", "eV/Å"),
    "stress": ("factor on σ, stress", ""),
    "stress_floor": ("floor of σ, stress", "eV/Å³"),
}
_SHOWN = {
    "calibration_error": "calibration error",
    "nll": "negative log-likelihood",
    "crps": "CRPS, eV/atom",
    "coverage_1": "labels within 1 σ (0.68)",
    "coverage_2": "labels within 2 σ (0.95)",
}


def _print(
    found: Calibration, more: dict[str, float], before: Metrics, after: Metrics, target: Path
) -> None:
    values: dict[str, Any] = dict(found.levels) or {"scale": found.scale}
    rows = []
    for name, value in values.items():
        text, unit = _LEVELS[name]
        low, high = found.interval.get(name, (None, None))
        between = f"{number(low, 3)} … {number(high, 3)}"
        if low is None:  # σ_p alone may lack one: see `nugget.calibration.calibrate`
            between = "not felt by these" if found.interval else "–"
        rows.append((text, number(value), between, unit))
    for name, value in more.items():
        text, unit = ("factor on σ, forces", "") if name == "force" else _LEVELS[name]
        rows.append((text, number(value), "–", unit))
    table(f"Calibrated on {found.n} structures", ("", "value", "90 % interval", "unit"), rows)
    table(
        "On these structures",
        ("", "before", "after"),
        [
            (text, number(getattr(before, name), 3), number(getattr(after, name), 3))
            for name, text in _SHOWN.items()
        ],
    )
    facts("Model", [("file", target)])
