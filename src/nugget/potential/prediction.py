"""Predictions of a fitted potential: energies, forces, stresses and their uncertainties."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from nugget.display import Contents, Shown, counted, spread
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.numerics.threads import each
from nugget.potential.evaluate import MEAN_AND_STD, value_and_grad
from nugget.potential.fitted import FittedState
from nugget.structures.batch import Batch
from nugget.structures.labels import voigt
from nugget.structures.picture import CHART, Line, chart


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Shown):
    """The requested values in eV and Å; all others are None."""

    energy: Floats  # (B,)
    energies: list[Floats] | None = None  # per atom, (N,) each
    forces: list[Floats] | None = None  # (N, 3) each
    stress: Floats | None = None  # (B, 6), eV/Å³, Voigt
    energy_uncertainty: Floats | None = None  # (B,) standard deviations
    uncertainty_gradient: list[Floats] | None = None  # (N, 3) each
    energies_uncertainty: list[Floats] | None = None  # per atom, (N,) each
    forces_uncertainty: list[Floats] | None = None  # per component, (N, 3) each
    stress_uncertainty: Floats | None = None  # (B, 6)
    outside: Floats | None = None  # (B,) 0 (inside the training domain) to 1; largest of the atoms
    outside_atoms: list[Floats] | None = None  # per atom, (N,) each

    def contents(self) -> Contents:
        return prediction_contents(self)


class Outputs(NamedTuple):  # a frozen dataclass takes 2 µs to fill
    """Which outputs are requested, besides the energy."""

    forces: bool = False
    uncertainty: bool = False
    uncertainty_gradient: bool = False
    energies: bool = False
    stress: bool = False
    energies_uncertainty: bool = False
    forces_uncertainty: bool = False
    stress_uncertainty: bool = False

    @property
    def any_uncertainty(self) -> bool:
        return (
            self.uncertainty
            or self.uncertainty_gradient
            or self.energies_uncertainty
            or self.forces_uncertainty
            or self.stress_uncertainty
        )

    @property
    def local(self) -> bool:
        """Whether outputs need the kernel rows of single atoms."""
        return (
            self.energies
            or self.energies_uncertainty
            or self.forces_uncertainty
            or self.stress_uncertainty
        )


def predict(state: FittedState, batch: Batch, want: Outputs) -> Prediction:
    """The requested outputs for one batch, in one forward pass and at most one backward pass."""
    mean = want.forces or want.stress
    coefficients = MEAN_AND_STD[0 if mean else 1 : 2 if want.uncertainty_gradient else 1]
    values = value_and_grad(
        state,
        batch,
        coefficients,
        std=want.any_uncertainty,
        keep_rows=want.local,
    )
    out: dict[str, Any] = {"energy": values.energy}
    if want.uncertainty or want.uncertainty_gradient:
        out["energy_uncertainty"] = values.std
    if (domain := values.domain) is not None:
        out |= {"outside": domain.outside, "outside_atoms": batch.split(domain.outside_atoms)}
    if want.uncertainty_gradient:
        out["uncertainty_gradient"] = batch.split(values.gradients[-1])
    if want.forces:
        out["forces"] = batch.split(-values.gradients[0])
    if want.stress:
        out["stress"] = voigt_stress(values.strains[0], batch)
    if want.energies:
        out["energies"] = batch.split(values.local_energies())
    if want.energies_uncertainty:
        out["energies_uncertainty"] = batch.split(values.local_std())
    if want.forces_uncertainty:
        out["forces_uncertainty"] = batch.split(values.forces_std())
    if want.stress_uncertainty:
        out["stress_uncertainty"] = values.stress_std()
    prediction = object.__new__(Prediction)  # the constructor of a frozen dataclass takes 2 µs
    prediction.__dict__.update(out)
    return prediction


def predict_parts(
    state: FittedState,
    parts: list[Batch],
    want: Outputs,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> Prediction:
    """The requested outputs for all parts of a batch, in parallel."""
    if len(parts) == 1 and progress is None:
        return predict(state, parts[0], want)
    done: list[int] = []

    def one(part: Batch) -> Prediction:
        prediction = predict(state, part, want)
        done.append(len(part))
        if progress is not None:
            progress(sum(done), total)
        return prediction

    total = sum(len(part) for part in parts)
    predictions = each(one, parts, threads)
    return predictions[0] if len(predictions) == 1 else concatenate(predictions)


def concatenate(parts: list[Prediction]) -> Prediction:
    """The predictions for several batches as one."""
    joined: dict[str, Any] = {}
    for item in fields(Prediction):
        values = [getattr(part, item.name) for part in parts]
        if isinstance(values[0], list):
            joined[item.name] = [array for value in values for array in value]
        elif values[0] is not None:
            joined[item.name] = np.concatenate(values)
    return Prediction(**joined)


def need_volume(batch: Batch) -> None:
    """Raise an error for structures without a volume, which have no stress."""
    for s in range(len(batch)):
        if abs(np.linalg.det(batch.cells[s])) < 1e-9:
            raise NuggetError(f"Structure {s} has no cell volume, so it has no stress: set a cell.")


def voigt_stress(strain: Floats, batch: Batch) -> Floats:
    """Stress (B, 6) in Voigt's order from derivatives by strain (B, 3, 3)."""
    volume = np.abs(np.linalg.det(batch.cells))
    return voigt(strain, axis=1) / volume[:, None]


def prediction_contents(prediction: Prediction) -> Contents:
    """Number of structures, range of energies, other outputs, and a table of all energies."""
    number = len(prediction.energy)
    words = [counted(number, "structure")]
    std = prediction.energy_uncertainty
    if number:
        words.append(f"energy {spread(prediction.energy)} eV")
        if std is not None:
            words.append(f"σ {spread(std)} eV")
    others = [
        item.name.replace("_", " ")
        for item in fields(prediction)
        if item.name not in ("energy", "energy_uncertainty", "outside", "outside_atoms")
        and getattr(prediction, item.name) is not None
    ]
    columns = ["structure", "energy, eV"] + ([] if std is None else ["σ, eV"])
    if prediction.outside is not None:
        columns.append("outside")
    if prediction.forces is not None:
        columns.append("largest force, eV/Å")
    rows = []
    for s in range(number):
        row = [str(s), f"{prediction.energy[s]:.4f}"]
        if std is not None:
            row.append(f"{std[s]:.4f}")
        if prediction.outside is not None:
            row.append(f"{prediction.outside[s]:.2f}")
        if prediction.forces is not None:
            largest = (prediction.forces[s] ** 2).sum(axis=1).max(initial=0.0) ** 0.5
            row.append(f"{largest:.3f}")
        rows.append(row)
    pictures = partial(_prediction_pictures, prediction)
    return Contents("Prediction", [*words, *others], {}, columns, rows, pictures)


def _prediction_pictures(prediction: Prediction) -> list[str]:
    """Energies and σ of all structures."""
    if len(prediction.energy) < 2:
        return []
    std = prediction.energy_uncertainty
    numbers = [float(k) for k in range(len(prediction.energy))]
    dots = Line(numbers, list(prediction.energy), None if std is None else list(std), dots=True)
    label = "energy, eV" if std is None else "energy ± σ, eV"
    return [chart([dots], "structure", label, CHART)]
