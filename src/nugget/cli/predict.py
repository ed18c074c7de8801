"""`nugget predict`: energies, forces and their uncertainty."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli import _options as opt
from nugget.cli._common import emit, facts, progress, table
from nugget.cli._output import Force, refuse_existing

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.potential.prediction import Prediction

_SHOWN = 20


def predict(
    model: opt.ModelFile,
    data: opt.DataFile,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", help="Where to write structures: .extxyz, .db, .traj."),
    ] = None,
    index: opt.Index = ":",
    forces: Annotated[bool, typer.Option(help="Predict forces.")] = True,
    stress: Annotated[bool, typer.Option("--stress", help="Predict stress and its σ.")] = False,
    per_atom: Annotated[
        bool, typer.Option("--per-atom", help="Energies of single atoms and their σ.")
    ] = False,
    force_uncertainty: Annotated[
        bool, typer.Option("--force-uncertainty", help="σ of every force component.")
    ] = False,
    interval: Annotated[
        float | None,
        typer.Option(help="Intervals that hold such a share of labels, as 0.9.", metavar="SHARE"),
    ] = None,
    threads: opt.Threads = 0,
    trust: opt.Trust = False,
    force: Force = False,
    json: opt.Json = False,
) -> None:
    """Predict energies, forces and uncertainties of structures.

    [bold]Examples[/bold]

        nugget predict au.model test.extxyz -o predicted.extxyz
        nugget predict au.model relaxed.traj -i -1 --force-uncertainty -o last.db
        nugget predict au.model candidates.db --interval 0.9 --json > found.json

    In OUT, energy and forces are the predictions; info["energy_uncertainty"] is
    σ in eV for the whole structure, info["stress_uncertainty"] that of the
    stress (eV/Å³, in Voigt's order). Labels that DATA held are kept as
    reference_energy and reference_forces, and the errors against them are
    printed.
    """
    from nugget.cli._labels import errors_of, known
    from nugget.modelfile.file import load
    from nugget.structures.io import read_images, write_images

    if output is not None:
        refuse_existing(output, force, inputs=(data, model))
    potential = load(model, trust_code=trust)
    factor = None
    if interval is not None:
        from nugget.calibration.conformal import interval_factor

        factor = interval_factor(potential.calibration, "energy", interval)
    images = read_images(data, index)
    with progress("Predicting", not json) as step:
        found = potential.predict(
            images,
            forces,
            energies=per_atom,
            stress=stress,
            energies_uncertainty=per_atom,
            forces_uncertainty=force_uncertainty,
            stress_uncertainty=stress,
            progress=step,
            threads=threads,
        )
    errors = errors_of(images, found)
    if output is not None:
        labelled = [_labelled(atoms, found, s) for s, atoms in enumerate(images)]
        if factor is not None and found.energy_uncertainty is not None:
            for atoms, sigma in zip(labelled, found.energy_uncertainty, strict=True):
                atoms.info["energy_interval"] = float(factor * sigma)
        write_images(output, labelled)
    assert found.energy_uncertainty is not None
    rows = [
        {
            "structure": s,
            "formula": atoms.get_chemical_formula(),
            "atoms": len(atoms),
            "energy": float(found.energy[s]),
            "energy_uncertainty": float(found.energy_uncertainty[s]),
            "reference_energy": known(atoms, "energy"),
        }
        for s, atoms in enumerate(images)
    ]
    for name in ("stress", "stress_uncertainty"):
        for row, value in zip(rows, getattr(found, name) if stress else (), strict=stress):
            row[name] = [float(number) for number in value]
    summary: dict[str, Any] = {}
    if factor is not None:
        from nugget.calibration.conformal import promise

        for row in rows:
            row["energy_interval"] = factor * row["energy_uncertainty"]
        summary = {"share": interval, "factor": factor, "from": promise(potential.calibration)}
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


def _labelled(atoms: Atoms, found: Prediction, s: int) -> Atoms:
    """A copy that carries the prediction, with former labels under another name."""
    import numpy as np
    from ase.calculators.singlepoint import SinglePointCalculator

    from nugget.cli._labels import known

    copy = atoms.copy()
    if (energy := known(atoms, "energy")) is not None:
        copy.info["reference_energy"] = float(energy)
    if (forces := known(atoms, "forces")) is not None:
        copy.arrays["reference_forces"] = forces
    results = {
        name: value[s]
        for name in ("energy", "forces", "stress", "energies")
        if (value := getattr(found, name)) is not None
    }
    copy.calc = SinglePointCalculator(copy, **results)
    if found.energy_uncertainty is not None:
        copy.info["energy_uncertainty"] = float(found.energy_uncertainty[s])
    if found.stress_uncertainty is not None:
        copy.info["stress_uncertainty"] = np.asarray(found.stress_uncertainty[s])
    for name in ("energies_uncertainty", "forces_uncertainty"):
        if (values := getattr(found, name)) is not None:
            copy.arrays[name] = values[s]
    return copy


def _print(
    rows: list[dict[str, Any]],
    errors: dict[str, Any],
    interval: dict[str, Any],
    output: Path | None,
) -> None:
    from nugget.cli._labels import error_rows

    references = any(row["reference_energy"] is not None for row in rows)
    columns = ["structure", "formula", "E / eV", "σ / eV", "σ / meV/atom"]
    if interval:
        columns.append(f"± {interval['share']:.0%} / eV")
    lines = []
    for row in rows[:_SHOWN]:
        sigma = row["energy_uncertainty"]
        line = [
            row["structure"],
            row["formula"],
            f"{row['energy']:.4f}",
            f"{sigma:.4f}",
            f"{1e3 * sigma / row['atoms']:.1f}",
        ]
        if interval:
            line.append(f"{row['energy_interval']:.4f}")
        if references:
            known = row["reference_energy"]
            line.append("–" if known is None else f"{row['energy'] - known:+.4f}")
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
            expected = f"{interval['share']:.0%} or more"
            within.append(
                (f"{interval['factor']:.3g} σ", f"{errors['within_interval']:.0%} ({expected})")
            )
        facts("Labels within the error bar", within)
    if interval:
        typer.echo(f"Intervals are ±{interval['factor']:.3g} σ, from {interval['from']}.")
    if output is not None:
        typer.echo(f"Written: {output}")
