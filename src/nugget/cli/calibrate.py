"""`nugget calibrate`: calibrate the error bars of a model on validation structures."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, emit, facts, number, refuse_existing, table
from nugget.display import counted

if TYPE_CHECKING:
    from nugget.calibration import Calibration
    from nugget.calibration.metrics import Metrics


Objective = Literal["calibration_error", "nll", "crps"]
Method = Literal["levels", "scale"]


def calibrate(
    model: opt.ModelFile,
    data: opt.DataFile,
    output: Path | None = Option(
        None, "--output", "-o", help="The model to write; default: MODEL itself, with --force."
    ),
    index: opt.Index = ":",
    energy_key: opt.EnergyKey = None,
    objective: Objective = Option("calibration_error", help="Objective that is minimised."),
    method: Method = Option(
        "levels", help="levels: noise levels, or factor and floor; scale: one factor on σ."
    ),
    forces: bool = Option(
        True, "--forces/--no-forces", help="Calibrate forces and stress, where DATA has them."
    ),
    by: str | None = Option(
        None, help="Also one factor on σ of energies for each group: a key of info.", metavar="KEY"
    ),
    resamples: opt.Resamples = 40,
    seed: opt.RandomSeed = 0,
    trust: opt.Trust = False,
    allow_training: opt.AllowTraining = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Calibrate error bars on structures that were not used for fitting.

    [bold]Examples[/bold]

        nugget calibrate au.model validation.extxyz --force
        nugget calibrate au.model all.extxyz.gz -i 225:250 -o calibrated.model
        nugget calibrate au.model validation.extxyz --method scale -o scaled.model

    Only the uncertainties change, not the predicted energies and forces. 25
    structures suffice for a first calibration; the printed interval shows its
    accuracy. Errors and σ are compared per atom. `nugget fit` calibrates on
    leave-one-out residuals; this command replaces that calibration. It refuses
    levels that would make all error bars alike, and --by measures a factor for
    each group of structures, which `predict` and `evaluate` apply. The
    intervals of `nugget predict --interval` then have their full guarantee.
    """
    import numpy as np

    from nugget.cli._fit import refuse_training
    from nugget.potential.potential import Potential
    from nugget.potential.validation import calibrate as run
    from nugget.potential.validation import calibrate_groups, residuals
    from nugget.structures.io import read_images, relabelled

    target = model if output is None else output
    refuse_existing(target, force, inputs=(data,))
    potential = Potential.load(model, trust_code=trust)
    images = read_images(data, index)
    refuse_training(potential, images, allow_training)
    if energy_key:
        images = relabelled(images, energy_key)
    before = residuals(potential, images).summary()
    start = time.perf_counter()
    rng = np.random.default_rng(seed)
    result = run(potential, images, objective, method=method, rng=rng, resamples=resamples)
    more: dict[str, float] = {}
    if forces and method == "levels":
        from nugget.gp.uncertainty.base import HasFloors
        from nugget.potential.validation import calibrate_components

        settings = potential.fitted.uncertainty.settings
        if isinstance(settings, HasFloors):
            for kind in settings.floor_kinds:
                if kind != "energy":
                    more |= calibrate_components(potential, images, kind) or {}
    factors = {} if by is None else calibrate_groups(potential, images, by)
    seconds = time.perf_counter() - start
    after = residuals(potential, images).summary()
    potential.save(target)
    if json:
        scores = {"before": before.to_dict(), "after": after.to_dict()}
        emit({"model": target, "seconds": seconds, "calibration": potential.calibration, **scores})
    else:
        _print(result, more, before, after, target)
        if factors:
            rows = [(name, number(factor, 3)) for name, factor in factors.items()]
            table(f"Factor on σ of energies by {by}", (by or "", "factor"), rows)


_LEVELS = {
    "label": ("σ_l, noise on energies", "eV/atom"),
    "prior": ("σ_p, noise on the mean function", "eV/atom"),
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
    result: Calibration, more: dict[str, float], before: Metrics, after: Metrics, target: Path
) -> None:
    values: dict[str, Any] = dict(result.levels) or {"scale": result.scale}
    rows = []
    for name, value in values.items():
        text, unit = _LEVELS[name]
        low, high = result.interval.get(name, (None, None))
        between = f"{number(low, 3)} … {number(high, 3)}"
        if low is None:  # σ_p may have none: see `nugget.calibration.calibrate`
            between = "not determined" if result.interval else "–"
        rows.append((text, number(value), between, unit))
    for name, value in more.items():
        text, unit = ("factor on σ, forces", "") if name == "force" else _LEVELS[name]
        rows.append((text, number(value), "–", unit))
    title = f"Calibrated on {counted(result.n, 'structure')}"
    table(title, ("", "value", "90 % interval", "unit"), rows)
    scores = [
        (text, *(number(getattr(metrics, name), 3) for metrics in (before, after)))
        for name, text in _SHOWN.items()
    ]
    table("On these structures", ("", "before", "after"), scores)
    facts("Model", [("file", target)])
