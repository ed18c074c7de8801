"""Predictions: what can be asked of a fitted potential, and how the answers are made."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from nugget.descriptors.soap import Environments
from nugget.errors import NuggetError
from nugget.gp.kernels.rbf import KernelRows
from nugget.gp.uncertainty.label_noise import Committee
from nugget.potential.training import prior_force_variance
from nugget.structures.batch import Batch
from nugget.structures.labels import VOIGT, gradient_rows

if TYPE_CHECKING:
    from nugget.potential.potential import Potential

Floats = NDArray[np.float64]

_BOTH = np.array([[1.0, 0.0], [0.0, 1.0]])  # the mean, and σ


@dataclass(frozen=True, eq=False)
class Prediction:
    """What was asked for; the rest is None. eV and Å, whole structures unless said."""

    energy: Floats  # (B,)
    energies: list[Floats] | None = None  # per atom, (N,) each
    forces: list[Floats] | None = None  # (N, 3) each
    stress: Floats | None = None  # (B, 6), eV/Å³, Voigt
    energy_uncertainty: Floats | None = None  # (B,) standard deviations
    uncertainty_gradient: list[Floats] | None = None  # (N, 3) each
    energies_uncertainty: list[Floats] | None = None  # per atom, (N,) each
    forces_uncertainty: list[Floats] | None = None  # per component, (N, 3) each


class Want(NamedTuple):
    """Which outputs are asked for."""

    forces: bool
    uncertainty: bool
    uncertainty_gradient: bool
    energies: bool
    stress: bool
    energies_uncertainty: bool
    forces_uncertainty: bool


def answer(potential: Potential, batch: Batch, want: Want) -> Prediction:
    """Exactly what is wanted, for one batch: one road forward, at most one back."""
    fit = potential.fitted
    alpha = fit.regression.alpha
    env, prior = potential.describe(batch)
    out: dict[str, Any] = {}
    # Roads back to the positions, by what they start from: the mean first, then σ.
    mixes = _BOTH[0 if want.forces or want.stress else 1 : 2 if want.uncertainty_gradient else 1]
    local = want.energies or want.energies_uncertainty or want.forces_uncertainty
    rows = potential.rows(env) if local or not len(mixes) else None
    if rows is None or len(mixes):
        sigma = want.uncertainty or want.uncertainty_gradient
        energy, deviation, gradients = potential.roads(env, alpha, mixes, sigma=sigma, rows=rows)
        positions, strain = env.pullback_strain(gradients)
        if want.uncertainty_gradient:
            out["uncertainty_gradient"] = batch.split(positions[-1])
        if want.forces:
            total = positions[0] if prior.gradient is None else positions[0] + prior.gradient
            out["forces"] = batch.split(-total)
        if want.stress:
            virial = strain[0] if prior.strain is None else strain[0] + prior.strain
            out["stress"] = _voigt(virial, batch)
    else:
        energy = rows.kappa @ alpha
        deviation = potential.sigma(env, rows) if want.uncertainty else None
    out["energy"] = energy + np.add.reduceat(prior.energies, batch.offsets[:-1])
    if deviation is not None:
        out["energy_uncertainty"] = deviation
    if rows is not None and want.energies:
        out["energies"] = batch.split(rows.k @ alpha + prior.energies)
    if rows is not None and want.energies_uncertainty:
        out["energies_uncertainty"] = batch.split(fit.uncertainty.local(rows.k))
    if rows is not None and want.forces_uncertainty:
        out["forces_uncertainty"] = _forces_uncertainty(potential, env, rows)
    return Prediction(**out)


def _forces_uncertainty(potential: Potential, env: Environments, rows: KernelRows) -> list[Floats]:
    fitted = potential.fitted.uncertainty
    slopes = gradient_rows(env, rows)[0].reshape(-1, rows.n_inducing)
    if isinstance(fitted, Committee):
        flat = fitted.rows_sigma(slopes)
    else:
        flat = fitted.rows_sigma(slopes, prior_force_variance(env, potential.kernel).ravel())
    return env.batch.split(flat.reshape(-1, 3))


def joined(parts: list[Prediction]) -> Prediction:
    """The answers for several batches as one."""
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


def _voigt(virial: Floats, batch: Batch) -> Floats:
    volume = np.abs(np.linalg.det(batch.cells))
    return np.stack([0.5 * (virial[:, a, b] + virial[:, b, a]) / volume for a, b in VOIGT], axis=1)
