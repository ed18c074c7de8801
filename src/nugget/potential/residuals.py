"""Leave-one-out residuals of each training structure, and labels that contradict the energies.

Both come from the label rows of the fit; nothing is fitted again. A structure's score z is its
leave-one-out residual over its predicted standard deviation, scaled so that half of all structures
have |z| < 0.67 as for a Gaussian. The scale is thus not affected by a few wrong labels.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from ase.symbols import Symbols
from scipy.linalg import cho_factor, cho_solve
from scipy.stats import spearmanr

from nugget.calibration.leave_one_out import check_number
from nugget.errors import NuggetError
from nugget.gp.cross_validation import blocks_of, left_out, structure_of
from nugget.gp.labels import ENERGY, FORCE, STRESS
from nugget.gp.regression import SparseRegression
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.potential.fitted import FittedState
from nugget.potential.label_checks import Finding, LabelFinding, least_absolute
from nugget.potential.training import Noise
from nugget.storage.files import replacing

# Median of |z| of a Gaussian.
_MEDIAN = 0.6745

#: Scores above this are those of probably wrong labels.
SUSPICIOUS = 6.0


@dataclass(frozen=True)
class StructureResidual:
    """Leave-one-out errors (label minus prediction) of one training structure."""

    index: int
    formula: str
    group: str
    atoms: int
    energy: float  # eV/atom
    energy_z: float
    force: float | None  # rms of components, eV/Å
    force_z: float | None

    @property
    def z(self) -> float:
        """The larger of both scores."""
        return max(abs(self.energy_z), self.force_z or 0.0)


def structure_residuals(
    state: FittedState, groups: Sequence[str] | None = None
) -> list[StructureResidual]:
    """Residuals of all training structures, each predicted without its own labels.

    `groups` are names of the structures' groups, for display.
    """
    regression, training = state.regression, state.training
    batch = training.batch
    check_number(len(batch))
    if not regression.has_rows:
        raise NuggetError(
            "Leave-one-out residuals need the label rows of the fit: call leave_one_out() after "
            "fit, without stream."
        )
    blocks = blocks_of(structure_of(regression))
    out = left_out(regression, blocks)
    variance = out.variance + regression.noise**2
    sizes = batch.sizes
    energy = np.array([out.residual[rows[0]] for rows in blocks]) / sizes
    energy_z = energy / np.sqrt([variance[rows[0]] for rows in blocks]) * sizes
    energy_z /= max(float(np.median(np.abs(energy_z))) / _MEDIAN, 1e-300)
    force, force_z = _force_scores(regression, blocks, out.residual, variance)
    of_structures = np.split(batch.numbers, batch.offsets[1:-1])
    formulas = [Symbols(numbers).get_chemical_formula() for numbers in of_structures]
    return [
        StructureResidual(
            s, formulas[s], "" if groups is None else groups[s],
            int(sizes[s]), float(energy[s]), float(energy_z[s]),
            None if np.isnan(force[s]) else float(force[s]),
            None if np.isnan(force[s]) else float(force_z[s]),
        )
        for s in range(len(batch))
    ]  # fmt: skip


def _force_scores(
    regression: SparseRegression, blocks: list[Ints], residual: Floats, variance: Floats
) -> tuple[Floats, Floats]:
    """Rms of force residuals of each structure, and the rms of their scores; NaN without forces.

    The scores are scaled so that the median structure has 0.67.
    """
    rms, score = np.full((2, len(blocks)), np.nan)
    for s, rows in enumerate(blocks):
        mine = rows[regression.kind[rows] == FORCE]
        if len(mine):
            rms[s] = np.sqrt(np.mean(residual[mine] ** 2))
            score[s] = np.sqrt(np.mean(residual[mine] ** 2 / variance[mine]))
    if not np.isnan(score).all():
        score /= max(float(np.nanmedian(score)) / _MEDIAN, 1e-300)
    return rms, score


def largest(residuals: Sequence[StructureResidual], number: int = 5) -> list[StructureResidual]:
    """The structures with the largest scores, largest first."""
    return sorted(residuals, key=lambda one: -one.z)[:number]


def write_residuals(path: str | Path, residuals: Sequence[StructureResidual]) -> None:
    """Write residuals as JSON or CSV, by the suffix of the file."""
    path = Path(path)
    rows = [asdict(one) for one in residuals]
    if path.suffix not in (".json", ".csv"):
        raise NuggetError(f"Residuals are written as .csv or .json, not as {path.name!r}.")
    with replacing(path) as partial, open(partial, "w", newline="") as file:
        if path.suffix == ".json":
            json.dump(rows, file, indent=1)
        else:
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)


# --------------------------------------------------------------------------- contradictions

# Rank correlation from which a comparison counts, and factors that are accepted. Forces in eV/Bohr
# have the factor 0.53, and energies-only fits to 8 to 100 structures of lithium and gold gave
# factors of 0.87 to 1.14.
_CORRELATION, _LOWEST, _HIGHEST = 0.6, 0.65, 1.55

# Units of forces in eV/Å.
_FORCE_UNITS = {"Hartree/Bohr": 51.4221, "Rydberg/Bohr": 25.711, "eV/Bohr": 1.88973}
_FORCE_UNITS |= {"kcal/mol/Å": 0.0433641, "kJ/mol/Å": 0.0103643}


@dataclass(frozen=True)
class Agreement:
    """Labels of one kind against those that other labels imply: labels ≈ factor × implied."""

    factor: float
    correlation: float

    @property
    def contradicts(self) -> bool:
        return self.correlation >= _CORRELATION and not _LOWEST <= self.factor <= _HIGHEST


def check_agreement(state: FittedState) -> Iterator[LabelFinding]:
    """Findings about forces and stresses whose sign or unit contradicts the energies."""
    forces = force_agreement(state)
    if forces is not None and forces.contradicts:
        yield LabelFinding(
            Finding.FORCE_SCALE, tuple(np.flatnonzero(state.training.has_forces).tolist()),
            f"The forces contradict the energies: they are {forces.factor:.3g} times what a fit to "
            f"the energies implies (rank correlation {forces.correlation:.2f}). "
            f"{_force_remedy(forces.factor)}",
            refuses=True,
        )  # fmt: skip
    stress = stress_agreement(state)
    if stress is not None and stress.contradicts:
        sign = "opposite sign" if stress.factor < 0 else "another unit, or a virial"
        yield LabelFinding(
            Finding.STRESS_SCALE, tuple(np.flatnonzero(state.training.has_stress).tolist()),
            f"The stress contradicts the other labels: it is {stress.factor:.3g} times what they "
            f"imply (rank correlation {stress.correlation:.2f}). It has {sign}; a stress in eV/Å³ "
            "is positive under tension (--virial-key reads virials).",
            refuses=True,
        )  # fmt: skip


def _force_remedy(factor: float) -> str:
    size = abs(factor)
    ratios = {unit: abs(np.log(size * value)) for unit, value in _FORCE_UNITS.items()}
    unit = min(ratios, key=lambda name: ratios[name])
    words = []
    if factor < 0:
        words.append("They have the opposite sign (gradients?): multiply them by −1.")
    if not _LOWEST <= size <= _HIGHEST:
        near = f", probably {unit}" if ratios[unit] < 0.4 else ""
        words.append(f"They have another unit than eV/Å{near}: convert them.")
    return " ".join(words)


def force_agreement(state: FittedState) -> Agreement | None:
    """Forces against energies, in whichever direction the prediction is better.

    Energies alone imply forces, and forces alone imply energies up to a constant of each element.
    The second direction is used if the mean function has no forces, which would imply energies by
    themselves.
    """
    regression, training = state.regression, state.training
    energies, forces = regression.kind == ENERGY, regression.kind == FORCE
    if not regression.has_rows or not forces.any() or energies.sum() < 5:
        return None
    own = ~np.isnan(training.forces).any(axis=1)
    label = training.forces[own].ravel()
    mean = label - regression.y[forces]
    implied = _implied(regression, energies, forces) + mean
    trials = [_compare(implied, label, np.zeros((len(label), 0)))]
    if not np.abs(mean).max() > 1e-6 * np.abs(label).max():
        batch = training.batch
        elements = np.unique(batch.numbers)
        shares = np.zeros((len(batch), len(elements)))
        np.add.at(shares, (batch.owner, np.searchsorted(elements, batch.numbers)), 1.0)
        shares /= batch.sizes[:, None]
        implied = _implied(regression, forces, energies) / batch.sizes
        back = _compare(implied, regression.y[energies] / batch.sizes, shares)
        if back is not None:
            trials.append(Agreement(1.0 / back.factor, back.correlation))
    found = [one for one in trials if one is not None]
    return max(found, key=lambda one: one.correlation) if found else None


def stress_agreement(state: FittedState) -> Agreement | None:
    """Stress against what energies and forces imply."""
    regression, training = state.regression, state.training
    rows = regression.kind == STRESS
    if not regression.has_rows or not rows.any() or (regression.kind == ENERGY).sum() < 5:
        return None
    label = training.stress[training.has_stress].ravel()
    implied = _implied(regression, ~rows, rows) + label - regression.y[rows]
    return _compare(implied, label, np.zeros((len(label), 0)))


def _implied(regression: SparseRegression, given: Bools, wanted: Bools) -> Floats:
    """Labels of the rows `wanted` from a fit to the rows `given` with default noise levels.

    Fitted noise levels would be those of a fit to contradicting labels.
    """
    default = np.where(
        regression.kind == ENERGY, Noise.energy * np.sqrt(regression.count), Noise.force
    )
    rows = regression.whitened[given] * (regression.noise / default)[given, None]
    normal = rows.T @ rows
    normal.flat[:: len(normal) + 1] += 1.0
    beta = cho_solve(cho_factor(normal), rows.T @ (regression.y / default)[given])
    implied: Floats = regression.noise[wanted] * (regression.whitened[wanted] @ beta)
    return implied


def _compare(implied: Floats, label: Floats, constants: Floats) -> Agreement | None:
    """The factor of label ≈ factor × implied + constants, by least absolute deviations."""
    if min(np.ptp(implied), np.ptp(label)) <= 1e-12:
        return None
    factor = float(least_absolute(np.column_stack([implied, constants]), label)[0])
    if constants.shape[1]:
        c = np.linalg.lstsq(constants, np.column_stack([implied, label]), rcond=1e-10)[0]
        implied, label = (np.column_stack([implied, label]) - constants @ c).T
    correlation = float(spearmanr(implied, label)[0])
    if factor == 0.0 or not np.isfinite(correlation):
        return None
    return Agreement(factor, abs(correlation))
