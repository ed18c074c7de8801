"""Validation of a potential: residuals, calibration and errors by group on labelled structures.

There is one energy label per structure, and its error and σ are those per atom, E/N and σ/N.
Whether a label lies within its error bar is the same per structure and per atom, so calibration
curve, CE and coverage do not depend on this choice. MAE, CRPS, NLL and the bins of ENCE do, and
large structures would dominate them in total energies.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from ase import Atoms
from numpy.typing import NDArray

from nugget.calibration.leave_one_out import (
    FEWEST,
    Level,
    balance,
    fit_level,
    mean_function_error,
    stored_scores,
)
from nugget.calibration.metrics import Method, Metrics, spearman, summary
from nugget.calibration.recalibrate import (
    FEW,
    LEVEL_BOUNDS,
    SCALE_BOUNDS,
    Calibration,
    CalibrationWarning,
    Objective,
    Terms,
    fit_levels,
    fit_scale,
)
from nugget.display import Progress
from nugget.errors import NuggetError
from nugget.gp.cross_validation import LeftOut
from nugget.gp.uncertainty.base import AdjustableLevels, HasFloors, HasLevels
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.potential.evaluate import NO_GRADIENT, value_and_grad
from nugget.potential.potential import Potential
from nugget.potential.prediction import Prediction
from nugget.structures.batch import as_batch
from nugget.structures.labels import read_labels

Bounds = Mapping[str, tuple[float, float]]


# A factor on a posterior is dimensionless and has bounds of its own.
_FACTORS = {"energy": (1e-2, 1e3)}


# σ_p is searched within this factor of the labels' distance from the mean function ...
_PRIOR_RANGE = 3.0


# ... unless even the largest such σ_p adds less than this share of the validation error.
_NOTICEABLE = 0.03


# A calibration must not reduce the relative spread of σ below this share of the spread before, nor
# the rank correlation of new and old σ below this value, unless σ were alike before.
_FLAT, _SAME_ORDER, _ALIKE = 0.2, 0.7, 0.02


# Structures whose kernel rows are held in memory at a time.
_CHUNK = 256


@dataclass(frozen=True, eq=False)
class Residuals:
    """Labelled and predicted energies per atom with their σ, eV/atom."""

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
    progress: Progress | None = None,
) -> Residuals:
    """Predictions against stored energies, per atom; a structure without energy is an error."""
    labels, sizes = _labels(images)
    prediction = potential.predict(images, forces=False, progress=progress)
    std = with_group_factors(potential, images, prediction).energy_uncertainty
    assert std is not None
    return Residuals(labels / sizes, prediction.energy / sizes, std / sizes, sizes)


def calibrate(
    potential: Potential,
    images: Sequence[Atoms],
    objective: Objective = "calibration_error",
    *,
    method: Literal["levels", "scale"] = "levels",
    bounds: Bounds | None = None,
    rng: np.random.Generator | None = None,
    resamples: int = 40,
    confidence: float = 0.9,
) -> Calibration:
    """Calibrate the uncertainty of a potential on validation structures; no refit.

    `method="levels"` fits σ_l and σ_p of a label-noise ensemble, and σ_lf if it was trained on
    forces, or the factor and floor of a posterior (of energies). For the projected process it is
    equivalent to `method="scale"`, one factor on σ, which is √θ₀ at fixed √θ₀/σ_n, so that
    predictions do not change. An earlier calibration is replaced, not multiplied. `bounds` limits
    the search by level name ("label", "prior", "force" or "scale").

    Validation structures that resemble the training set hardly depend on σ_p (1/10000 of it remains
    there), so their labels would allow 10⁻⁵ as well as 10 eV/atom. Far from all data σ_p dominates
    and should equal the typical error of the mean function. It is therefore searched only near the
    training labels' root mean square distance from the mean function, and set to that distance
    where the data do not determine it. Bounds for "prior" replace this rule.

    The potential is changed in place, and the result becomes `potential.calibration`, which its
    model file stores. The `resamples` of bootstrap intervals are drawn with `rng` or the
    potential's seed; `resamples=0` skips them. A `CalibrationWarning` reports few structures or a
    level on a bound. Levels that would make all error bars nearly equal, or change their order, are
    refused with a warning, and one factor is fitted instead.
    """
    if method not in ("levels", "scale"):
        raise NuggetError(f"method is {method!r}; choose 'levels' or 'scale'.")
    if resamples < 0:
        raise NuggetError(f"resamples is {resamples}; give 0 for no intervals, or more.")
    generator = np.random.default_rng(potential.seed) if rng is None else rng
    draw = generator if resamples else None
    search = _Search(potential, images, objective, dict(bounds or {}), draw, resamples, confidence)
    result = None
    if isinstance(potential.fitted.uncertainty, HasLevels) and method == "levels":
        result = search.levels_in_order()
    if result is None:
        result = search.scale()
    after = residuals(potential, images)
    scores = stored_scores(np.abs(after.y_true - after.y_pred) / after.y_std, potential.seed)
    potential.calibration = {
        **result.to_dict(),
        "method": Method("levels" if result.levels else "scale").value,
        "normalisation": "per atom",
        "scores": {"energy": scores},
    }
    return result


@dataclass(frozen=True)
class _Search:
    """The levels, or one factor on σ, that fit validation structures best."""

    potential: Potential
    images: Sequence[Atoms]
    objective: Objective
    bounds: dict[str, tuple[float, float]]
    rng: np.random.Generator | None
    resamples: int
    confidence: float

    def levels_in_order(self) -> Calibration | None:
        """Set the levels; None, and no change, if they would spoil the ranking by σ."""
        potential, old = self.potential, self.potential.fitted.uncertainty
        before = residuals(potential.without_domain(), self.images).y_std
        fitted = old.with_scale(1.0)
        assert isinstance(fitted, HasLevels)
        result = self._levels(fitted, dict(self.bounds))
        potential.set_uncertainty(fitted.with_levels(**result.levels))
        after = residuals(potential.without_domain(), self.images).y_std
        ranked = isinstance(old.settings, HasFloors)  # levels of an ensemble rank anew
        if len(before) < FEW or self.bounds or _keeps_order(before, after, ranked):
            return result
        potential.set_uncertainty(old)
        warnings.warn(
            f"the levels that fit these {len(before)} structures best would make their error bars "
            "nearly equal or change their order; one factor on σ is fitted instead.",
            CalibrationWarning,
            stacklevel=4,
        )
        return None

    def scale(self) -> Calibration:
        """Set one factor on σ, which keeps the order."""
        if unknown := set(self.bounds) - {"scale"}:
            raise NuggetError(f"bounds are given for {sorted(unknown)}; there is only 'scale'.")
        potential, fitted = self.potential, self.potential.fitted.uncertainty
        before = residuals(potential.without_domain(), self.images)
        result = fit_scale(
            before.y_true, before.y_pred, before.y_std / fitted.scale, objective=self.objective,
            bounds=self.bounds.get("scale", SCALE_BOUNDS), rng=self.rng,
            resamples=self.resamples, confidence=self.confidence,
        )  # fmt: skip
        potential.set_uncertainty(fitted.with_scale(result.scale))
        return result

    def _levels(self, fitted: HasLevels, bounds: dict[str, tuple[float, float]]) -> Calibration:
        potential, images, objective = self.potential, self.images, self.objective
        names = fitted.level_names
        at = names.index("prior")
        labels, sizes = _labels(images)
        energy, gram = _energy_and_gram(potential, fitted, images)
        for name in names:
            if name in _FACTORS:
                bounds.setdefault(name, _FACTORS[name])
        y_true, y_pred = labels / sizes, energy / sizes
        gram /= (sizes**2.0)[:, None, None]  # σ/N
        fixed: dict[str, float] = {}
        if "prior" not in bounds:
            rms = _distance_from_mean_function(potential)
            error = float(np.sqrt(np.mean((y_true - y_pred) ** 2)))
            bounds["prior"] = (rms / _PRIOR_RANGE, rms * _PRIOR_RANGE)
            if np.sqrt(gram[:, at, at].mean()) * rms * _PRIOR_RANGE < _NOTICEABLE * error:
                fixed["prior"] = rms
                del bounds["prior"]
        # Without force labels the block of σ_lf is empty.
        free = [k for k in range(len(names)) if names[k] not in fixed and np.any(gram[:, k, k] > 0)]
        result = fit_levels(
            y_true, y_pred, gram[:, free][:, :, free], tuple(names[k] for k in free),
            objective=objective, bounds=bounds, rng=self.rng,
            resamples=self.resamples, confidence=self.confidence,
        )  # fmt: skip
        levels = {**result.levels, **fixed}
        s = np.array([levels.get(name, 0.0) for name in names])
        sigma = np.sqrt(np.einsum("a,nab,b->n", s, gram, s))
        terms = Terms.of(y_true - y_pred, sigma[None], objective)
        return replace(result, levels=levels, value=float(terms.score(np.ones(len(sigma)))[0][0]))


def _keeps_order(before: Floats, after: Floats, ranked: bool = True) -> bool:
    """Whether σ of some structures differ as much as before, if `ranked` in the same order."""
    spread = np.std(after) / np.mean(after), np.std(before) / np.mean(before)
    if spread[1] < _ALIKE:
        return True
    in_order = not ranked or spearman(before, np.zeros_like(before), after) >= _SAME_ORDER
    return bool(spread[0] >= _FLAT * spread[1] and in_order)


def _distance_from_mean_function(potential: Potential) -> float:
    """σ_p of the training energies, within limits."""
    low, high = LEVEL_BOUNDS
    error = mean_function_error(potential.fitted.regression)
    return float(np.clip(error, _PRIOR_RANGE * low, high / _PRIOR_RANGE))


def _labels(images: Sequence[Atoms]) -> tuple[Floats, Ints]:
    if not len(images):
        raise NuggetError("There are no structures to compare with; give at least one.")
    energies = [label.energy for label in read_labels(images, False, False)]
    return np.array(energies), np.array([len(atoms) for atoms in images], dtype=np.int64)


def _energy_and_gram(
    potential: Potential, fitted: HasLevels, images: Sequence[Atoms]
) -> tuple[Floats, Floats]:
    """Energies (B,) and matrices G (B, 3, 3) with σ² = sᵀGs, in one pass over the structures."""
    energies, grams = [], []
    for start in range(0, len(images), _CHUNK):
        batch = as_batch(images[start : start + _CHUNK])
        values = value_and_grad(potential.fitted, batch, NO_GRADIENT, std=False)
        assert values.rows is not None
        energies.append(values.energy)
        grams.append(fitted.unit_gram(values.rows.k_sum, batch.sizes.astype(np.float64)))
    return np.concatenate(energies), np.concatenate(grams)


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
    """Force or stress components of the structures that carry them; None if none does."""
    stress = kind == "stress"
    labels = [_component_labels(atoms, stress) for atoms in images]
    chosen = [s for s, label in enumerate(labels) if label is not None]
    if not chosen:
        return None
    prediction = potential.predict(
        [images[s] for s in chosen],
        forces=not stress, uncertainty=False, stress=stress,
        forces_uncertainty=not stress, stress_uncertainty=stress, progress=progress,
    )  # fmt: skip
    predicted: Any = prediction.stress if stress else prediction.forces
    std: Any = prediction.stress_uncertainty if stress else prediction.forces_uncertainty
    y_true = [np.asarray(labels[s], float).ravel() for s in chosen]
    return Components(
        kind,
        np.concatenate(y_true),
        np.concatenate([np.ravel(p) for p in predicted]),
        np.concatenate([np.ravel(s) for s in std]),
        np.repeat(chosen, [len(label) for label in y_true]),
    )


def _component_labels(atoms: Atoms, stress: bool) -> Floats | None:
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

    The scores for intervals become those of the validation structures. Returns None if no
    structure carries such labels.
    """
    fitted = potential.fitted.uncertainty
    settings = fitted.settings
    if not (
        isinstance(fitted, AdjustableLevels)
        and isinstance(settings, HasFloors)
        and kind in settings.floor_kinds
    ):
        raise NuggetError(
            f"{type(fitted.settings).__name__} has no level of its own for the {kind}; fit with "
            "the uncertainty Posterior."
        )
    bare, unit = potential.without_domain(), {kind: 1.0, f"{kind}_floor": 0.0}
    if isinstance(fitted, HasLevels):
        unit["prior"] = 0.0
    bare.set_uncertainty(fitted.with_scale(1.0).with_levels(**unit))
    bare.calibration = None
    validation = components(bare, images, kind, progress)
    if validation is None:
        return None
    residual, one = validation.y_true - validation.y_pred, np.ones(len(validation.y_true))
    seen = LeftOut(residual, validation.y_std**2)
    level = fit_level(seen, seen, one)
    old = Level(getattr(settings, kind), getattr(settings, f"{kind}_floor"))
    before, after = (each.std(seen.variance, one) for each in (old, level))
    if not _keeps_order(before, after):  # one factor, as for energies
        level = old.times(balance(np.abs(residual) / before))
    levels = {kind: level.factor, f"{kind}_floor": level.floor}
    potential.set_uncertainty(fitted.with_levels(**levels))
    scores = stored_scores(np.abs(residual) / level.std(seen.variance, one), potential.seed)
    record = potential.calibration or {}
    potential.calibration = {
        **record,
        "levels": {**record.get("levels", {}), **levels},
        "scores": {**record.get("scores", {}), kind: scores},
    }
    return levels


def calibrate_groups(potential: Potential, images: Sequence[Atoms], key: str) -> dict[str, float]:
    """The rms of error/σ of energies of each group of structures, by a key of `atoms.info`.

    It becomes a factor on σ of the group.
    `with_group_factors` applies them to predictions of structures that carry the same key. Groups
    of fewer than five structures keep the factor 1.
    """
    potential.calibration = {**(potential.calibration or {}), "by": None}
    energies = residuals(potential, images)
    squares = ((energies.y_true - energies.y_pred) / energies.y_std) ** 2
    groups = {name: own for name, own in grouped_by(images, key).items() if len(own) >= FEWEST}
    factors = {name: float(np.sqrt(squares[own].mean())) for name, own in groups.items()}
    if not factors:
        raise NuggetError(f"No group by {key!r} has {FEWEST} structures; give larger groups.")
    potential.calibration["by"] = {"key": key, "factors": factors}
    return factors


def with_group_factors(
    potential: Potential, images: Sequence[Atoms], prediction: Prediction
) -> Prediction:
    """The prediction with the factors of `calibrate_groups` on σ of energies."""
    record = (potential.calibration or {}).get("by")
    if not record or prediction.energy_uncertainty is None:
        return prediction
    factors = np.ones(len(images))
    for name, own in grouped_by(images, record["key"]).items():
        factors[own] = record["factors"].get(name, 1.0)
    return replace(prediction, energy_uncertainty=factors * prediction.energy_uncertainty)


Groups = dict[str, list[int]]


_KINDS = ("cluster or molecule", "chain", "slab", "bulk")


def grouped_by(images: Sequence[Atoms], key: str) -> Groups:
    """Indices of structures by 'formula', 'size', 'kind' or a key of info, large groups first."""
    functions: dict[str, Callable[[Atoms], str]] = {
        "formula": lambda atoms: atoms.get_chemical_formula(),
        "size": lambda atoms: f"{len(atoms)} atoms",
        "kind": lambda atoms: _KINDS[int(atoms.pbc.sum())],
    }
    name_of = functions.get(key, lambda atoms: str(atoms.info.get(key, "–")))
    groups: Groups = {}
    for s, atoms in enumerate(images):
        groups.setdefault(name_of(atoms), []).append(s)
    return dict(sorted(groups.items(), key=lambda item: -len(item[1])))


def group_errors(
    energies: Residuals, parts: Mapping[str, Components], members: Sequence[int]
) -> dict[str, float]:
    """Errors and coverage of some structures."""
    own = np.asarray(members)
    out: dict[str, float] = {"structures": len(own)}
    energy = _errors((energies.y_true - energies.y_pred)[own], energies.y_std[own])
    out |= {("energy_mae" if name == "mae" else name): value for name, value in energy.items()}
    for kind, part in parts.items():
        some = part.of(list(members))
        if len(some.y_true):
            errors = _errors(some.y_true - some.y_pred, some.y_std)
            out |= {f"{kind}_{name}": value for name, value in errors.items()}
    return out


def element_errors(images: Sequence[Atoms], forces: Components) -> dict[str, dict[str, float]]:
    """Errors and coverage of force components, by element."""
    symbols = component_elements(images, forces)
    return {
        str(symbol): {"atoms": int(own.sum()) // 3, **_element(forces, own)}
        for symbol in np.unique(symbols)
        for own in (symbols == symbol,)
    }


def component_elements(images: Sequence[Atoms], forces: Components) -> NDArray[np.str_]:
    """The element of each force component."""
    owners = forces.owner[np.flatnonzero(np.diff(forces.owner, prepend=-1))]
    return np.concatenate([np.repeat(images[s].get_chemical_symbols(), 3) for s in owners])


def force_error_per_atom(parts: Mapping[str, Components]) -> dict[str, float] | None:
    """Length of the force error of an atom: mean, root mean square and 95 % quantile."""
    if "force" not in parts:
        return None
    part = parts["force"]
    length = np.linalg.norm((part.y_pred - part.y_true).reshape(-1, 3), axis=1)
    return {
        "mean": float(length.mean()),
        "rms": float(np.sqrt(np.mean(length**2))),
        "quantile_95": float(np.quantile(length, 0.95)),
    }


def _element(forces: Components, own: Bools) -> dict[str, float]:
    error = (forces.y_pred - forces.y_true)[own]
    rmse = float(np.sqrt(np.mean(error**2)))
    return {**_errors(error, forces.y_std[own]), "rmse": rmse}


def _errors(error: Floats, std: Floats) -> dict[str, float]:
    size = np.abs(error)
    return {
        "mae": float(size.mean()),
        "rms_z": float(np.sqrt(np.mean((error / std) ** 2))),
        "within_1": float(np.mean(size <= std)),
        "within_2": float(np.mean(size <= 2 * std)),
    }
