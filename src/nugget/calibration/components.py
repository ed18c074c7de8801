"""Force and stress components of labelled structures: errors, error bars, and their calibration."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.calibration.left_out import fit_level, kept_scores
from nugget.calibration.summary import Metrics, summary
from nugget.errors import NuggetError
from nugget.gp.left_out import LeftOut
from nugget.structures.labels import read_labels

if TYPE_CHECKING:
    from nugget.potential.potential import Potential

Progress = Callable[[int, int], None]


@dataclass(frozen=True, eq=False)
class Components:
    """Labels, predictions and standard deviations of single components; `owner` is the structure.

    Forces come atom by atom (x, y, z), stresses in Voigt's order.
    """

    kind: str  # "force" or "stress"
    y_true: Floats
    y_pred: Floats
    y_std: Floats
    owner: Ints

    def summary(self, rng: np.random.Generator | None = None, resamples: int = 200) -> Metrics:
        """All metrics over components, with bootstrap intervals if `rng` is given."""
        return summary(self.y_true, self.y_pred, self.y_std, rng, resamples)

    def of(self, structures: Sequence[int]) -> Components:
        """The components of these structures alone."""
        kept = np.isin(self.owner, np.asarray(structures))
        return replace(
            self,
            y_true=self.y_true[kept],
            y_pred=self.y_pred[kept],
            y_std=self.y_std[kept],
            owner=self.owner[kept],
        )


def components(
    potential: Potential, images: Sequence[Atoms], kind: str, progress: Progress | None = None
) -> Components | None:
    """Force or stress components of those structures that carry them; None where none does."""
    stress = kind == "stress"
    known = [_known(atoms, stress) for atoms in images]
    chosen = [s for s, label in enumerate(known) if label is not None]
    if not chosen:
        return None
    found = potential.predict(
        [images[s] for s in chosen],
        forces=not stress, uncertainty=False, stress=stress,
        forces_uncertainty=not stress, stress_uncertainty=stress, progress=progress,
    )  # fmt: skip
    predicted: Any = found.stress if stress else found.forces
    std: Any = found.stress_uncertainty if stress else found.forces_uncertainty
    labels = [np.asarray(known[s], float).ravel() for s in chosen]
    return Components(
        kind,
        np.concatenate(labels),
        np.concatenate([np.ravel(p) for p in predicted]),
        np.concatenate([np.ravel(s) for s in std]),
        np.repeat(chosen, [len(label) for label in labels]),
    )


def _known(atoms: Atoms, stress: bool) -> Floats | None:
    label = read_labels([atoms], None, False)[0]
    if not stress:
        return label.forces
    value = None if atoms.calc is None else atoms.calc.results.get("stress")
    if value is None or abs(np.linalg.det(atoms.cell.array)) < 1e-9:
        return None
    return np.asarray(value, float)


def calibrate_components(
    potential: Potential, images: Sequence[Atoms], kind: str, progress: Progress | None = None
) -> dict[str, float] | None:
    """Factor and floor of forces or stresses from validation structures; no refit.

    The scores for intervals become those of the validation structures. None where no structure
    carries such labels.
    """
    fitted: Any = potential.fitted.uncertainty
    if f"{kind}_floor" not in vars(fitted.settings):
        raise NuggetError(
            f"{type(fitted.settings).__name__} has no level of its own for the {kind}; fit with "
            "the uncertainty Posterior."
        )
    bare = {kind: 1.0, f"{kind}_floor": 0.0, "prior": 0.0}
    potential.set_uncertainty(fitted.with_scale(1.0).with_levels(**bare))
    found = components(potential, images, kind, progress)
    potential.set_uncertainty(fitted)
    if found is None:
        return None
    residual, one = found.y_true - found.y_pred, np.ones(len(found.y_true))
    seen = LeftOut(residual, found.y_std**2)
    level = fit_level(seen, seen, one)
    levels = {kind: level.factor, f"{kind}_floor": level.floor}
    potential.set_uncertainty(fitted.with_levels(**levels))
    scores = kept_scores(np.abs(residual) / level.std(seen.variance, one), potential.seed)
    old = potential.calibration or {}
    potential.calibration = {
        **old,
        "levels": {**old.get("levels", {}), **levels},
        "scores": {**old.get("scores", {}), kind: scores},
    }
    return levels
