"""`nugget calibrate`: make the error bars of a model honest."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, facts, number, several, table
from nugget.cli._output import Force, refuse_existing

if TYPE_CHECKING:
    from nugget.calibration import Calibration
    from nugget.calibration.summary import Metrics


Objective = Literal["calibration_error", "nll", "crps"]
Method = Literal["levels", "scale"]


def calibrate(
    model: opt.ModelFile,
    data: opt.DataFile,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output", "-o", help="The model to write; default: MODEL itself, with --force."
        ),
    ] = None,
    index: opt.Index = ":",
    energy_key: opt.EnergyKey = None,
    objective: Annotated[Objective, typer.Option(help="What is minimised.")] = "calibration_error",
    method: Annotated[
        Method,
        typer.Option(help="levels: noise levels, or factor and floor; scale: one factor on σ."),
    ] = "levels",
    forces: Annotated[
        bool,
        typer.Option(
            "--forces/--no-forces", help="Calibrate forces and stress, where DATA has them."
        ),
    ] = True,
    resamples: opt.Resamples = 40,
    seed: opt.RandomSeed = 0,
    trust: opt.Trust = False,
    allow_training: opt.AllowTraining = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Make error bars honest, on structures not used for fitting.

    [bold]Examples[/bold]

        nugget calibrate au.model validation.extxyz --force
        nugget calibrate au.model all.extxyz.gz -i 225:250 -o calibrated.model
        nugget calibrate au.model validation.extxyz --method scale -o scaled.model

    Energies and forces that the model predicts do not change, only their
    uncertainty. 25 structures are enough for a first calibration, but see the
    interval. Errors and σ are compared per atom. `nugget fit` calibrates by
    itself, on structures that it leaves out; this command replaces that, and
    intervals of `nugget predict --interval` then hold with their full guarantee.
    """
    import numpy as np

    from nugget.calibration import calibrate as run
    from nugget.calibration import residuals
    from nugget.cli._labels import refuse_training
    from nugget.modelfile.file import load
    from nugget.structures.io import read_images, relabelled

    target = model if output is None else output
    refuse_existing(target, force, inputs=(data,))
    potential = load(model, trust_code=trust)
    images = read_images(data, index)
    refuse_training(potential, images, allow_training)
    if energy_key:
        images = relabelled(images, energy_key)
    before = residuals(potential, images).summary()
    start = time.perf_counter()
    found = run(
        potential, images, objective, method=method,
        rng=np.random.default_rng(seed), resamples=resamples,
    )  # fmt: skip
    more: dict[str, float] = {}
    if forces and method == "levels":
        from nugget.calibration import calibrate_components

        if "force_floor" in vars(potential.fitted.uncertainty.settings):
            for kind in ("force", "stress"):
                more |= calibrate_components(potential, images, kind) or {}
    seconds = time.perf_counter() - start
    after = residuals(potential, images).summary()
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
    table(
        f"Calibrated on {several(found.n, 'structure')}",
        ("", "value", "90 % interval", "unit"),
        rows,
    )
    table(
        "On these structures",
        ("", "before", "after"),
        [
            (text, number(getattr(before, name), 3), number(getattr(after, name), 3))
            for name, text in _SHOWN.items()
        ],
    )
    facts("Model", [("file", target)])
