"""`nugget predict`: energies, forces and their uncertainty."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Option

from nugget.cli import _options as opt
from nugget.cli._console import Force, echo_written, emit, facts, progress, refuse_existing, table

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.prediction import Prediction


_SHOWN = 20

# Value of `outside` above which a structure is reported.
_OUTSIDE = 0.5


def predict(
    model: opt.ModelFile,
    data: opt.DataFile,
    output: Path | None = Option(
        None, "--output", "-o", help="Where to write structures: .extxyz, .db, .traj."
    ),
    index: opt.Index = ":",
    forces: bool = Option(True, help="Predict forces."),
    stress: bool = Option(False, "--stress", help="Predict stress, and its σ if it was measured."),
    per_atom: bool = Option(False, "--per-atom", help="Energies of single atoms and their σ."),
    force_uncertainty: bool = Option(
        False, "--force-uncertainty", help="σ of every force component."
    ),
    interval: float | None = Option(
        None, help="Intervals that contain this share of labels, as 0.9.", metavar="SHARE"
    ),
    threads: opt.Threads = 0,
    trust: opt.Trust = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Predict energies, forces and uncertainties of structures.

    [bold]Examples[/bold]

        nugget predict au.model test.extxyz -o predicted.extxyz
        nugget predict au.model relaxed.traj -i -1 --force-uncertainty -o last.db
        nugget predict au.model candidates.db --interval 0.9 --json > out.json

    In OUT, energy and forces are the predictions; info["energy_uncertainty"] is
    σ in eV for the whole structure, info["stress_uncertainty"] that of the
    stress (eV/Å³, in Voigt's order). info["outside"] and arrays["outside_atoms"]
    say how far structure and atoms are outside the training domain, from 0
    (inside) to 1. σ of a group that `nugget calibrate --by` measured has the
    factor of this group. Labels of DATA are written as
    reference_energy and reference_forces, and the errors against them are
    printed.
    """
    from nugget.cli._fit import errors_of, stored_label
    from nugget.potential.mean_functions.base import require_energies
    from nugget.potential.potential import Potential
    from nugget.potential.validation import with_group_factors
    from nugget.structures.batch import as_batch
    from nugget.structures.io import read_images, write_images
    from nugget.structures.labels import check_stored

    if output is not None:
        refuse_existing(output, force, inputs=(data, model))
    potential = Potential.load(model, trust_code=trust)
    factor = None
    if interval is not None:
        from nugget.calibration.metrics import interval_factor

        factor = interval_factor(potential.calibration, "energy", interval)
    images = read_images(data, index)
    check_stored(images)
    stress_std = stress and potential.has_stress_levels
    if stress and not stress_std:
        typer.echo("The stress has no σ: the model was calibrated without stress labels.", err=True)
    with progress("Predicting", not json) as step:
        prediction = potential.predict(
            images,
            forces,
            energies=per_atom,
            energies_uncertainty=per_atom,
            stress=stress,
            stress_uncertainty=stress_std,
            forces_uncertainty=force_uncertainty,
            progress=step,
            threads=threads,
        )
    require_energies(potential.fitted.mean_function, as_batch(images), prediction.energy)
    prediction = with_group_factors(potential, images, prediction)
    errors = errors_of(images, prediction)
    assert prediction.energy_uncertainty is not None
    if output is not None:
        labelled = [_labelled(atoms, prediction, s) for s, atoms in enumerate(images)]
        if factor is not None:
            for atoms, sigma in zip(labelled, prediction.energy_uncertainty, strict=True):
                atoms.info["energy_interval"] = float(factor * sigma)
        write_images(output, labelled)
    rows = [
        {
            "structure": s,
            "formula": atoms.get_chemical_formula(),
            "atoms": len(atoms),
            "energy": float(prediction.energy[s]),
            "energy_uncertainty": float(prediction.energy_uncertainty[s]),
            "reference_energy": stored_label(atoms, "energy"),
        }
        for s, atoms in enumerate(images)
    ]
    if prediction.outside is not None:
        for row, value in zip(rows, prediction.outside, strict=True):
            row["outside"] = float(value)
    for name in ("stress", "stress_uncertainty"):
        for row, value in zip(rows, getattr(prediction, name) if stress else (), strict=stress):
            row[name] = [float(number) for number in value]
    summary: dict[str, Any] = {}
    if factor is not None:
        from nugget.calibration.metrics import score_source

        for row in rows:
            row["energy_interval"] = factor * row["energy_uncertainty"]
        summary = {"share": interval, "factor": factor, "from": score_source(potential.calibration)}
        errors["within_interval"] = _share_within(rows)
    if json:
        emit({"output": output, "summary": errors, "interval": summary, "structures": rows})
    else:
        _print(rows, errors, summary, output)


def _share_within(rows: list[dict[str, Any]]) -> float | None:
    """Share of the labels that lie within their intervals."""
    inside = [
        abs(row["energy"] - row["reference_energy"]) <= row["energy_interval"]
        for row in rows
        if row["reference_energy"] is not None
    ]
    return sum(inside) / len(inside) if inside else None


def _labelled(atoms: Atoms, prediction: Prediction, s: int) -> Atoms:
    """A copy with the prediction as its results, and its labels as reference values."""
    import numpy as np
    from ase.calculators.singlepoint import SinglePointCalculator

    from nugget.cli._fit import stored_label

    copy = atoms.copy()
    if (energy := stored_label(atoms, "energy")) is not None:
        copy.info["reference_energy"] = float(energy)
    if (forces := stored_label(atoms, "forces")) is not None:
        copy.arrays["reference_forces"] = forces
    results = {
        name: value[s]
        for name in ("energy", "forces", "stress", "energies")
        if (value := getattr(prediction, name)) is not None
    }
    copy.calc = SinglePointCalculator(copy, **results)
    if prediction.energy_uncertainty is not None:
        copy.info["energy_uncertainty"] = float(prediction.energy_uncertainty[s])
    if prediction.outside is not None:
        copy.info["outside"] = float(prediction.outside[s])
    if prediction.stress_uncertainty is not None:
        copy.info["stress_uncertainty"] = np.asarray(prediction.stress_uncertainty[s])
    for name in ("energies_uncertainty", "forces_uncertainty", "outside_atoms"):
        if (values := getattr(prediction, name)) is not None:
            copy.arrays[name] = values[s]
    return copy


def _print(
    rows: list[dict[str, Any]], errors: dict[str, Any], interval: dict[str, Any], file: Path | None
) -> None:
    from nugget.cli._fit import error_rows
    from nugget.display import counted

    references = any(row["reference_energy"] is not None for row in rows)
    domain = any("outside" in row for row in rows)
    columns = ["structure", "formula", "E / eV", "σ / eV", "σ / meV/atom"]
    if domain:
        columns.append("outside")
    if interval:
        columns.append(f"± {interval['share']:.0%} / eV")
    lines = []
    for row in rows[:_SHOWN]:
        sigma = row["energy_uncertainty"]
        line = [row["structure"], row["formula"], f"{row['energy']:.4f}", f"{sigma:.4f}"]
        line.append(f"{1e3 * sigma / row['atoms']:.1f}")
        if domain:
            line.append(f"{row['outside']:.2f}")
        if interval:
            line.append(f"{row['energy_interval']:.4f}")
        if references:
            label = row["reference_energy"]
            line.append("–" if label is None else f"{row['energy'] - label:+.4f}")
        lines.append(line)
    more = f" (the first {_SHOWN} of {len(rows)})" if len(rows) > _SHOWN else ""
    table(f"Predictions{more}", columns + (["error / eV"] if references else []), lines)
    if references:
        table("Against the labels in DATA", ("", "MAE", "RMSE", "unit"), error_rows(errors))
        share = [errors["within_one_sigma"], errors["within_two_sigma"]]
        within: list[tuple[str, object]] = [
            ("1 σ", f"{share[0]:.0%} (68% if normal)"),
            ("2 σ", f"{share[1]:.0%} (95%)"),
        ]
        if interval:
            inside = f"{errors['within_interval']:.0%} ({interval['share']:.0%} or more)"
            within.append((f"{interval['factor']:.3g} σ", inside))
        facts("Labels within the error bar", within)
    if domain and (outside := sum(row["outside"] > _OUTSIDE for row in rows)):
        typer.echo(
            f"{counted(outside, 'structure')} of {len(rows)} lie outside the training domain "
            f"(outside > {_OUTSIDE:g}; 0 is inside, 1 is far outside)."
        )
    if interval:
        typer.echo(f"Intervals are ±{interval['factor']:.3g} σ, from {interval['from']}.")
    echo_written([file] if file else [])
