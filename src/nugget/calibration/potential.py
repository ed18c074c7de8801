"""Calibrate and judge a fitted potential on labelled structures.

Normalisation: one label per structure, and both error and σ are those of the energy *per atom*,
E/N and σ/N. Whether a label lies within its error bar is the same per structure and per atom, so
calibration curve, CE and coverage do not depend on this choice; MAE, CRPS, NLL and the bins of ENCE
do, and large structures would dominate them in total energies.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Floats, Ints
from nugget.calibration.left_out import kept_scores
from nugget.calibration.objectives import Objective, Terms
from nugget.calibration.recalibrate import (
    LEVEL_BOUNDS,
    SCALE_BOUNDS,
    Calibration,
    fit_levels,
    fit_scale,
)
from nugget.calibration.summary import Metrics, summary
from nugget.errors import NuggetError
from nugget.gp.labels import ENERGY
from nugget.potential.evaluate import NO_GRADIENT, value_and_grad
from nugget.structures.batch import as_batch
from nugget.structures.labels import read_labels

if TYPE_CHECKING:
    from nugget.potential.potential import Potential

Method = Literal["levels", "scale"]
Bounds = Mapping[str, tuple[float, float]]

# Factors on a posterior are no energies, and are looked for elsewhere.
_FACTORS = {"energy": (1e-2, 1e3)}
# σ_p is looked for within this factor of the labels' distance from the prior ...
_PRIOR_RANGE = 3.0
# ... unless even the largest of these adds less than this share of the validation error.
_FELT = 0.03
# Structures whose kernel rows are in memory at a time.
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class Residuals:
    """Energies per atom of labelled structures, as predicted and as they are, eV/atom."""

    y_true: Floats
    y_pred: Floats
    y_std: Floats
    sizes: Ints

    def summary(self, rng: np.random.Generator | None = None, resamples: int = 200) -> Metrics:
        """All metrics, with bootstrap intervals if `rng` is given."""
        return summary(self.y_true, self.y_pred, self.y_std, rng, resamples)


def residuals(
    potential: Potential,
    images: Sequence[Atoms],
    progress: Callable[[int, int], None] | None = None,
) -> Residuals:
    """Predictions against stored energies, per atom; a structure without energy is an error."""
    labels, sizes = _labels(images)
    found = potential.predict(images, forces=False, progress=progress)
    assert found.energy_uncertainty is not None
    return Residuals(labels / sizes, found.energy / sizes, found.energy_uncertainty / sizes, sizes)


def calibrate(
    potential: Potential,
    images: Sequence[Atoms],
    objective: Objective = "calibration_error",
    *,
    method: Method = "levels",
    bounds: Bounds | None = None,
    rng: np.random.Generator | None = None,
    resamples: int = 40,
    confidence: float = 0.9,
) -> Calibration:
    """Make the uncertainties of `potential` honest on validation structures; no refit.

    `method="levels"` finds σ_l and σ_p of a label-noise committee, and σ_lf if it was trained on
    forces; for a posterior, its factor and its floor (of energies). For the projected process it is
    the same as `method="scale"`: one factor on σ, that is √θ₀ at fixed √θ₀/σ_n, so that predictions
    stay as they are. An earlier calibration is replaced, not multiplied. `bounds` limits the
    search, by name ("label", "prior", "force" or "scale").

    σ_p needs care. Validation structures that resemble the training set hardly feel it (1/10000 of
    it is left there), so that their labels would allow 10⁻⁵ as well as 10 eV/atom; but far from all
    data it is all that counts, and should be what the prior is usually wrong by. It is therefore
    looked for near the training labels' root mean square distance from the prior only, and set to
    that distance where the data cannot tell. Bounds for "prior" replace this rule.

    The potential is changed in place, and the result is kept in `potential.calibration`, which
    goes into its model file. Bootstrap intervals (of so many `resamples`) are made with `rng`, or
    with the potential's seed; `resamples=0` leaves them out. A `CalibrationWarning` tells of few
    structures or of a level that ended on a bound.
    """
    if method not in ("levels", "scale"):
        raise NuggetError(f"method is {method!r}; choose 'levels' or 'scale'.")
    if resamples < 0:
        raise NuggetError(f"resamples is {resamples}; give 0 for no intervals, or more.")
    generator = np.random.default_rng(potential.seed) if rng is None else rng
    draw = generator if resamples else None
    fitted: Any = potential.fitted.uncertainty.with_scale(1.0)
    limits = dict(bounds or {})
    if fitted.level_names and method == "levels":
        result = _levels(potential, images, objective, limits, draw, resamples, confidence)
        potential.set_uncertainty(fitted.with_levels(**result.levels))
    else:
        if unknown := set(limits) - {"scale"}:
            raise NuggetError(f"bounds are given for {sorted(unknown)}; there is only 'scale'.")
        found = residuals(potential, images)
        unscaled = found.y_std / potential.fitted.uncertainty.scale
        result = fit_scale(
            found.y_true, found.y_pred, unscaled, objective=objective,
            bounds=limits.get("scale", SCALE_BOUNDS), rng=draw, resamples=resamples,
            confidence=confidence,
        )  # fmt: skip
        potential.set_uncertainty(fitted.with_scale(result.scale))
    after = residuals(potential, images)
    scores = kept_scores(np.abs(after.y_true - after.y_pred) / after.y_std, potential.seed)
    potential.calibration = {
        **result.to_dict(),
        "method": method,
        "normalisation": "per atom",
        "scores": {"energy": scores},
    }
    return result


def _levels(
    potential: Potential,
    images: Sequence[Atoms],
    objective: Objective,
    bounds: dict[str, tuple[float, float]],
    rng: np.random.Generator | None,
    resamples: int,
    confidence: float,
) -> Calibration:
    names = potential.fitted.uncertainty.level_names
    at = names.index("prior")
    labels, sizes = _labels(images)
    energy, gram = _energy_and_gram(potential, images)
    for name in names:
        if name in _FACTORS:
            bounds.setdefault(name, _FACTORS[name])
    y_true, y_pred = labels / sizes, energy / sizes
    gram /= (sizes**2.0)[:, None, None]  # σ/N
    known: dict[str, float] = {}
    if "prior" not in bounds:
        rms = _distance_from_prior(potential)
        error = float(np.sqrt(np.mean((y_true - y_pred) ** 2)))
        bounds["prior"] = (rms / _PRIOR_RANGE, rms * _PRIOR_RANGE)
        if np.sqrt(gram[:, at, at].mean()) * rms * _PRIOR_RANGE < _FELT * error:
            known["prior"] = rms
            del bounds["prior"]
    # Without force labels the block of σ_lf is empty.
    kept = [k for k in range(3) if names[k] not in known and np.any(gram[:, k, k] > 0)]
    result = fit_levels(
        y_true, y_pred, gram[:, kept][:, :, kept], names=tuple(names[k] for k in kept),
        objective=objective, bounds=bounds, rng=rng, resamples=resamples, confidence=confidence,
    )  # fmt: skip
    levels = {**result.levels, **known}
    s = np.array([levels.get(name, 0.0) for name in names])
    sigma = np.sqrt(np.einsum("a,nab,b->n", s, gram, s))
    terms = Terms.of(y_true - y_pred, sigma[None], objective)
    return replace(result, levels=levels, value=float(terms.score(np.ones(len(sigma)))[0][0]))


def _distance_from_prior(potential: Potential) -> float:
    """Root mean square of (E − prior)/N over the training energies, within sensible limits."""
    fit = potential.fitted.regression
    energies = fit.kind == ENERGY
    rms = np.sqrt(np.mean((fit.y[energies] / fit.count[energies]) ** 2))
    low, high = LEVEL_BOUNDS
    return float(np.clip(rms, _PRIOR_RANGE * low, high / _PRIOR_RANGE))


def _labels(images: Sequence[Atoms]) -> tuple[Floats, Ints]:
    if not len(images):
        raise NuggetError("There are no structures to compare with; give at least one.")
    energies = [known.energy for known in read_labels(images, False, False)]
    return np.array(energies), np.array([len(atoms) for atoms in images], dtype=np.int64)


def _energy_and_gram(potential: Potential, images: Sequence[Atoms]) -> tuple[Floats, Floats]:
    """Energies (B,) and matrices G (B, 3, 3) with σ² = sᵀGs, in one pass over the structures."""
    fitted: Any = potential.fitted.uncertainty
    energies, grams = [], []
    for start in range(0, len(images), _CHUNK):
        batch = as_batch(images[start : start + _CHUNK])
        found = value_and_grad(potential, batch, NO_GRADIENT, std=False)
        assert found.rows is not None
        energies.append(found.energy)
        grams.append(fitted.unit_gram(found.rows.k_sum, batch.sizes.astype(np.float64)))
    return np.concatenate(energies), np.concatenate(grams)
