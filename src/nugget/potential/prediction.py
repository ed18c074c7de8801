"""Predictions: what can be asked of a fitted potential."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nugget._compiled.arrays import Floats
from nugget._compiled.threads import each
from nugget.errors import NuggetError
from nugget.potential.evaluate import MEAN_AND_STD, value_and_grad
from nugget.potential.shown import prediction_contents
from nugget.structures.batch import Batch
from nugget.structures.labels import VOIGT
from nugget.structures.shown import Contents, Shown

if TYPE_CHECKING:
    from nugget.potential.potential import Potential


@dataclass(frozen=True, eq=False, repr=False)
class Prediction(Shown):
    """What was asked for; the rest is None. eV and Å, whole structures unless said."""

    energy: Floats  # (B,)
    energies: list[Floats] | None = None  # per atom, (N,) each
    forces: list[Floats] | None = None  # (N, 3) each
    stress: Floats | None = None  # (B, 6), eV/Å³, Voigt
    energy_uncertainty: Floats | None = None  # (B,) standard deviations
    uncertainty_gradient: list[Floats] | None = None  # (N, 3) each
    energies_uncertainty: list[Floats] | None = None  # per atom, (N,) each
    forces_uncertainty: list[Floats] | None = None  # per component, (N, 3) each
    stress_uncertainty: Floats | None = None  # (B, 6)

    def contents(self) -> Contents:
        return prediction_contents(self)


class Outputs(NamedTuple):
    """Which outputs are wanted."""

    forces: bool = False
    uncertainty: bool = False
    uncertainty_gradient: bool = False
    energies: bool = False
    stress: bool = False
    energies_uncertainty: bool = False
    forces_uncertainty: bool = False
    stress_uncertainty: bool = False


def predict(potential: Potential, batch: Batch, want: Outputs) -> Prediction:
    """Exactly what is wanted, for one batch: one forward pass, at most one backward."""
    mean = want.forces or want.stress
    coefficients = MEAN_AND_STD[0 if mean else 1 : 2 if want.uncertainty_gradient else 1]
    found = value_and_grad(
        potential,
        batch,
        coefficients,
        std=want.uncertainty or want.uncertainty_gradient,
        keep_rows=want.energies
        or want.energies_uncertainty
        or want.forces_uncertainty
        or want.stress_uncertainty,
    )
    out: dict[str, Any] = {"energy": found.energy, "energy_uncertainty": found.std}
    if want.uncertainty_gradient:
        out["uncertainty_gradient"] = batch.split(found.gradients[-1])
    if want.forces:
        out["forces"] = batch.split(-found.gradients[0])
    if want.stress:
        out["stress"] = voigt_stress(found.strains[0], batch)
    if want.energies:
        out["energies"] = batch.split(found.local_energies())
    if want.energies_uncertainty:
        out["energies_uncertainty"] = batch.split(found.local_std())
    if want.forces_uncertainty:
        out["forces_uncertainty"] = batch.split(found.forces_std())
    if want.stress_uncertainty:
        out["stress_uncertainty"] = found.stress_std()
    prediction = object.__new__(Prediction)  # a frozen dataclass takes 2 µs to fill its fields
    prediction.__dict__.update(out)
    return prediction


def predict_parts(
    potential: Potential,
    parts: list[Batch],
    want: Outputs,
    progress: Callable[[int, int], None] | None = None,
    threads: int | None = None,
) -> Prediction:
    """What is wanted for all parts of a batch, several at a time."""
    if len(parts) == 1 and progress is None:
        return predict(potential, parts[0], want)
    done: list[int] = []

    def one(part: Batch) -> Prediction:
        found = predict(potential, part, want)
        done.append(len(part))
        if progress is not None:
            progress(sum(done), total)
        return found

    total = sum(len(part) for part in parts)
    found = each(one, parts, threads)
    return found[0] if len(found) == 1 else concatenate(found)


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
    """Refuse a stress where there is no volume."""
    for s in range(len(batch)):
        if abs(np.linalg.det(batch.cells[s])) < 1e-9:
            raise NuggetError(f"Structure {s} has no cell volume, so it has no stress: set a cell.")


def voigt_stress(strain: Floats, batch: Batch) -> Floats:
    """Stress (B, 6) in Voigt's order from derivatives by strain (B, 3, 3)."""
    volume = np.abs(np.linalg.det(batch.cells))
    return np.stack([0.5 * (strain[:, a, b] + strain[:, b, a]) / volume for a, b in VOIGT], axis=1)
