"""Calibration metrics of Gaussian predictions, as functions of (y_true, y_pred, y_std).

The functions are free of units and accept energies of whole structures or energies per atom, as
long as all three arrays agree. `per_atom` makes the division explicit. `conformal_factor` gives
prediction intervals that do not assume Gaussian errors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from enum import StrEnum
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr, ndtri
from scipy.stats import rankdata

from nugget.errors import NuggetError

Array = NDArray[np.float64]
Kind = Literal["quantile", "interval"]
Metric = Callable[[Array, Array, Array], float]

#: The confidence levels p_j of every curve, in steps of one per cent. The calibration error is a
#: *sum* over levels, so its size depends on their number: with these 101 (the two ends never
#: contribute) a curve that is off by 0.1 everywhere has CE of about 1.
LEVELS: Array = np.linspace(0.0, 1.0, 101)
LEVELS.flags.writeable = False


def checked(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> tuple[Array, Array, Array]:
    """The three inputs as flat float arrays of one length, finite, with y_std > 0; or an error."""
    arrays = []
    for name, values in (("y_true", y_true), ("y_pred", y_pred), ("y_std", y_std)):
        array = np.asarray(values, dtype=np.float64)
        if array.ndim != 1 or len(array) == 0:
            raise NuggetError(
                f"{name} has shape {array.shape}; give a flat array with at least one value."
            )
        if not np.isfinite(array).all():
            first = int(np.flatnonzero(~np.isfinite(array))[0])
            raise NuggetError(
                f"{name}[{first}] is {array[first]}; leave out structures without a finite value."
            )
        arrays.append(array)
    true, pred, std = arrays
    if not len(true) == len(pred) == len(std):
        raise NuggetError(
            f"y_true, y_pred and y_std have {len(true)}, {len(pred)} and {len(std)} values; "
            "give one of each per structure."
        )
    if (std <= 0).any():
        first = int(np.flatnonzero(std <= 0)[0])
        raise NuggetError(
            f"y_std[{first}] is {std[first]}; standard deviations must be positive "
            "(leave out training structures of a noise-free model)."
        )
    return true, pred, std


def per_atom(y: ArrayLike, sizes: ArrayLike) -> Array:
    """y / N: energies (or standard deviations) of whole structures per atom."""
    values = np.asarray(y, dtype=np.float64)
    n_atoms = np.asarray(sizes, dtype=np.float64)
    if values.shape != n_atoms.shape:
        raise NuggetError(
            f"{values.shape} values but {n_atoms.shape} sizes; give one size per structure."
        )
    if (n_atoms < 1).any():
        first = int(np.flatnonzero(n_atoms < 1)[0])
        raise NuggetError(f"sizes[{first}] is {n_atoms[first]}; a structure has at least one atom.")
    return np.asarray(values / n_atoms)


def _levels(levels: ArrayLike | None) -> Array:
    p = LEVELS if levels is None else np.asarray(levels, dtype=np.float64)
    if p.ndim != 1 or len(p) == 0 or not ((p >= 0) & (p <= 1)).all() or (np.diff(p) <= 0).any():
        raise NuggetError("levels must be an increasing list of numbers between 0 and 1.")
    return p


def calibration_curve(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    levels: ArrayLike | None = None,
    kind: Kind = "quantile",
) -> tuple[Array, Array]:
    """Expected levels p_j and observed shares p̂_j; on the diagonal when perfectly calibrated.

    `kind="quantile"` (Kuleshov 2018, the paper): p̂_j = share of labels with F_i(y_i) ≤ p_j, which
    also sees a bias of the mean. `kind="interval"`: share of labels inside the central interval of
    probability p_j, which does not.
    """
    true, pred, std = checked(y_true, y_pred, y_std)
    p = _levels(levels)
    z = (true - pred) / std
    # F_i(y_i) = Φ(z_i) ≤ p_j is tested as z_i ≤ Φ⁻¹(p_j): exact in the tails, where Φ rounds to 1.
    if kind == "quantile":
        bound = ndtri(p)
    elif kind == "interval":
        z, bound = np.abs(z), ndtri(0.5 + p / 2)
    else:
        raise NuggetError(f"kind is {kind!r}; choose 'quantile' or 'interval'.")
    return p.copy(), np.searchsorted(np.sort(z), bound, side="right") / len(z)


def calibration_error(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    levels: ArrayLike | None = None,
    kind: Kind = "quantile",
) -> float:
    """CE = Σ_j (p_j − p̂_j)² (Kuleshov 2018), over `LEVELS` unless given."""
    p, observed = calibration_curve(y_true, y_pred, y_std, levels, kind)
    return float(np.sum((p - observed) ** 2))


def miscalibration_area(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    levels: ArrayLike | None = None,
    kind: Kind = "quantile",
) -> float:
    """Area between the calibration curve (straight lines between levels) and the diagonal."""
    p, observed = calibration_curve(y_true, y_pred, y_std, levels, kind)
    left, right = (observed - p)[:-1], (observed - p)[1:]
    total = np.abs(left) + np.abs(right)
    # Where the curve crosses the diagonal the piece is two triangles: (l² + r²) / 2(|l| + |r|).
    crossed = left * right < 0
    height = np.where(crossed, (left**2 + right**2) / np.where(crossed, total, 1.0), total)
    return float(np.sum(np.diff(p) * height) / 2)


def sharpness(y_std: ArrayLike) -> float:
    """Root mean square of σ; it does not depend on the errors."""
    _, _, std = checked(y_std, y_std, y_std)
    return float(np.sqrt(np.mean(std**2)))


def dispersion(y_std: ArrayLike) -> float:
    """Coefficient of variation of σ (Tran 2020): 0 when every structure gets the same error bar."""
    _, _, std = checked(y_std, y_std, y_std)
    if len(std) < 2:
        return 0.0
    return float(np.std(std, ddof=1) / np.mean(std))


def nll(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> float:
    """Mean negative log-likelihood: ½ ln 2πσ² + z²/2."""
    true, pred, std = checked(y_true, y_pred, y_std)
    return float(np.mean(nll_terms(true - pred, std)))


def nll_terms(error: Array, std: Array) -> Array:
    """The negative log-likelihood of each error."""
    z = error / std
    return np.asarray(0.5 * np.log(2 * np.pi) + np.log(std) + 0.5 * z**2)


def crps(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> float:
    """Mean continuous ranked probability score of a Gaussian; in units of y, smaller is better."""
    true, pred, std = checked(y_true, y_pred, y_std)
    return float(np.mean(crps_terms(true - pred, std)))


def crps_terms(error: Array, std: Array) -> Array:
    """The score of each error."""
    z = error / std
    density = np.exp(-0.5 * z**2) / np.sqrt(2 * np.pi)
    return np.asarray(std * (z * (2 * ndtr(z) - 1) + 2 * density - 1 / np.sqrt(np.pi)))


def coverage(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, k: float = 1.0) -> float:
    """Share of labels within k σ of the prediction (Gaussian: 0.683 at 1, 0.954 at 2)."""
    true, pred, std = checked(y_true, y_pred, y_std)
    return float(np.mean(np.abs(true - pred) <= k * std))


def spearman(y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike) -> float:
    """Rank correlation of σ and |error|; NaN when one of them is the same everywhere.

    Perfectly calibrated Gaussians do not reach 1: the error is a draw from σ, not σ itself.
    """
    true, pred, std = checked(y_true, y_pred, y_std)
    a, b = rankdata(std), rankdata(np.abs(true - pred))
    a, b = a - a.mean(), b - b.mean()
    norm = np.sqrt(np.sum(a**2) * np.sum(b**2))
    return float(np.sum(a * b) / norm) if norm > 0 else float("nan")


@dataclass(frozen=True)
class Bins:
    """Structures sorted by σ and cut into bins of equal count; one entry per bin."""

    count: NDArray[np.int64]
    sigma_min: Array
    sigma_max: Array
    rmv: Array  # root mean variance: what the model expects
    rmse: Array  # root mean square error: what it does
    bias: Array  # mean of y_pred − y_true

    @property
    def ence(self) -> float:
        """Mean over bins of |RMV − RMSE| / RMV (Levi 2022)."""
        return float(np.mean(np.abs(self.rmv - self.rmse) / self.rmv))


def default_bins(n: int) -> int:
    """Ten bins, or fewer so that each holds at least five structures."""
    return int(np.clip(n // 5, 1, 10))


def sigma_bins(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, n_bins: int | None = None
) -> Bins:
    """The table behind `ence`: expected against observed error, from small σ to large."""
    true, pred, std = checked(y_true, y_pred, y_std)
    number = default_bins(len(std)) if n_bins is None else n_bins
    if not 1 <= number <= len(std):
        raise NuggetError(f"n_bins is {number}; {len(std)} structures allow 1 to {len(std)} bins.")
    groups = np.array_split(np.argsort(std, kind="stable"), number)
    error = pred - true
    return Bins(
        count=np.array([len(g) for g in groups], dtype=np.int64),
        sigma_min=np.array([std[g[0]] for g in groups]),
        sigma_max=np.array([std[g[-1]] for g in groups]),
        rmv=np.array([np.sqrt(np.mean(std[g] ** 2)) for g in groups]),
        rmse=np.array([np.sqrt(np.mean(error[g] ** 2)) for g in groups]),
        bias=np.array([np.mean(error[g]) for g in groups]),
    )


def ence(
    y_true: ArrayLike, y_pred: ArrayLike, y_std: ArrayLike, n_bins: int | None = None
) -> float:
    """Expected normalised calibration error: bin by σ, mean of |RMV − RMSE| / RMV.

    Detects deviations that cancel in a global curve (σ too small for some structures, too large
    for others). Even perfect σ give
    about √(n_bins / πn) > 0, from the scatter of each bin's RMSE.
    """
    return sigma_bins(y_true, y_pred, y_std, n_bins).ence


# --- All metrics at once, with bootstrap intervals ---


@dataclass(frozen=True)
class Interval:
    """A value and its bootstrap percentile interval."""

    value: float
    low: float
    high: float


def percentiles(samples: ArrayLike, confidence: float) -> tuple[float, float]:
    """The central interval with a share `confidence` of the samples; NaNs are ignored."""
    if not 0 < confidence < 1:
        raise NuggetError(f"confidence is {confidence}; give a share between 0 and 1.")
    values = np.asarray(samples, dtype=np.float64)
    values = values[~np.isnan(values)]
    if len(values) == 0:
        return float("nan"), float("nan")
    tail = (1 - confidence) / 2
    low, high = np.quantile(values, [tail, 1 - tail])
    return float(low), float(high)


def bootstrap(
    metric: Metric,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    rng: np.random.Generator,
    resamples: int = 1000,
    confidence: float = 0.95,
) -> Interval:
    """Percentile interval of any metric(y_true, y_pred, y_std) by resampling structures."""
    true, pred, std = checked(y_true, y_pred, y_std)
    draws = rng.integers(len(true), size=(_positive(resamples), len(true)))
    samples = [metric(true[i], pred[i], std[i]) for i in draws]
    return Interval(metric(true, pred, std), *percentiles(samples, confidence))


def _positive(resamples: int) -> int:
    if resamples < 1:
        raise NuggetError(f"resamples is {resamples}; at least one is needed for an interval.")
    return resamples


@dataclass(frozen=True)
class Metrics:
    """All metrics of one set of predictions; `intervals` may be empty."""

    n: int
    mae: float
    rmse: float
    bias: float
    calibration_error: float
    miscalibration_area: float
    ence: float
    nll: float
    crps: float
    sharpness: float
    dispersion: float
    spearman: float
    coverage_1: float
    coverage_2: float
    intervals: dict[str, tuple[float, float]] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers and lists, for JSON or a table."""
        return asdict(self)


#: One line per metric of `Metrics`: name ↦ function of (y_true, y_pred, y_std).
METRICS: dict[str, Metric] = {
    "mae": lambda y, p, s: float(np.mean(np.abs(p - y))),
    "rmse": lambda y, p, s: float(np.sqrt(np.mean((p - y) ** 2))),
    "bias": lambda y, p, s: float(np.mean(p - y)),
    "calibration_error": calibration_error,
    "miscalibration_area": miscalibration_area,
    "ence": ence,
    "nll": nll,
    "crps": crps,
    "sharpness": lambda y, p, s: sharpness(s),
    "dispersion": lambda y, p, s: dispersion(s),
    "spearman": spearman,
    "coverage_1": lambda y, p, s: coverage(y, p, s, 1.0),
    "coverage_2": lambda y, p, s: coverage(y, p, s, 2.0),
}

assert set(METRICS) == {f.name for f in fields(Metrics)} - {"n", "intervals"}


def summary(
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    rng: np.random.Generator | None = None,
    resamples: int = 200,
    confidence: float = 0.95,
) -> Metrics:
    """All metrics; with a generator `rng` also their bootstrap intervals (same draws for all)."""
    true, pred, std = checked(y_true, y_pred, y_std)
    values = {name: metric(true, pred, std) for name, metric in METRICS.items()}
    intervals: dict[str, tuple[float, float]] = {}
    if rng is not None:
        draws = rng.integers(len(true), size=(_positive(resamples), len(true)))
        for name, metric in METRICS.items():
            samples = [metric(true[i], pred[i], std[i]) for i in draws]
            intervals[name] = percentiles(samples, confidence)
    return Metrics(n=len(true), intervals=intervals, **values)


# --- Conformal prediction intervals ---
#
# The scores |error|/σ of structures outside the training set are ranked. The score of a new
# structure from the same source takes any of the n + 1 ranks with equal probability. An interval
# of q·σ with q the ⌈(n+1)·level⌉-th smallest score therefore contains its label with a probability
# of at least `level`, for any distribution of errors and any n (Vovk 2005). This is exact for the
# scores of a validation set (`nugget calibrate`). Leave-one-out scores (the jackknife) come close
# to it in practice; the proven level of the related jackknife+ is 1 − 2(1 − level) (Barber 2021).


def conformal_factor(scores: ArrayLike, level: float) -> float:
    """The q for which ±q·σ contains a share `level` of new labels; inf for too few scores.

    With n scores the highest possible level is n/(n + 1).
    """
    if not 0.0 < level < 1.0:
        raise NuggetError(f"The level of an interval is {level}; give a share between 0 and 1.")
    ranked = np.sort(np.asarray(scores, float))
    rank = math.ceil((len(ranked) + 1) * level - 1e-9)
    return float(ranked[rank - 1]) if rank <= len(ranked) else math.inf


def interval_factor(calibration: Mapping[str, Any] | None, kind: str, level: float) -> float:
    """`conformal_factor` from the stored scores of a model; `kind` is energy, force or stress."""
    scores: Sequence[float] = ((calibration or {}).get("scores") or {}).get(kind, ())
    if not scores:
        raise NuggetError(
            f"This model has no scores for intervals of the {kind}; fit it again with the "
            "uncertainty Posterior, or calibrate it on a validation set."
        )
    q = conformal_factor(scores, level)
    if math.isinf(q):
        raise NuggetError(
            f"{len(scores)} scores do not suffice for an interval of {level:.0%}; the most is "
            f"{len(scores) / (len(scores) + 1):.0%}. Ask for less, or calibrate on more structures."
        )
    return q


class Method(StrEnum):
    """How a model was calibrated; stored in model files."""

    LEAVE_ONE_OUT = "leave-one-out"
    LEVELS = "levels"
    SCALE = "scale"


def score_source(calibration: Mapping[str, Any] | None) -> str:
    """Where the scores of a calibration come from, for messages."""
    leave_one_out = (calibration or {}).get("method") == Method.LEAVE_ONE_OUT
    return "leave-one-out residuals" if leave_one_out else "a validation set"
