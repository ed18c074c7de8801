"""All metrics at once, with bootstrap intervals."""

from dataclasses import asdict, dataclass, field, fields
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nugget.calibration import metrics as m
from nugget.errors import NuggetError


@dataclass(frozen=True)
class Interval:
    """A value and its bootstrap percentile interval."""

    value: float
    low: float
    high: float


def percentiles(samples: ArrayLike, confidence: float) -> tuple[float, float]:
    """The central interval that holds a share `confidence` of the samples; NaNs are left out."""
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
    metric: m.Metric,
    y_true: ArrayLike,
    y_pred: ArrayLike,
    y_std: ArrayLike,
    rng: np.random.Generator,
    resamples: int = 1000,
    confidence: float = 0.95,
) -> Interval:
    """Percentile interval of any metric(y_true, y_pred, y_std), drawing structures anew."""
    true, pred, std = m.checked(y_true, y_pred, y_std)
    draws = rng.integers(len(true), size=(_positive(resamples), len(true)))
    samples = [metric(true[i], pred[i], std[i]) for i in draws]
    return Interval(metric(true, pred, std), *percentiles(samples, confidence))


def _positive(resamples: int) -> int:
    if resamples < 1:
        raise NuggetError(f"resamples is {resamples}; at least one is needed for an interval.")
    return resamples


@dataclass(frozen=True)
class Metrics:
    """Every metric of one set of predictions; `intervals` is empty unless asked for."""

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
METRICS: dict[str, m.Metric] = {
    "mae": lambda y, p, s: float(np.mean(np.abs(p - y))),
    "rmse": lambda y, p, s: float(np.sqrt(np.mean((p - y) ** 2))),
    "bias": lambda y, p, s: float(np.mean(p - y)),
    "calibration_error": m.calibration_error,
    "miscalibration_area": m.miscalibration_area,
    "ence": m.ence,
    "nll": m.nll,
    "crps": m.crps,
    "sharpness": lambda y, p, s: m.sharpness(s),
    "dispersion": lambda y, p, s: m.dispersion(s),
    "spearman": m.spearman,
    "coverage_1": lambda y, p, s: m.coverage(y, p, s, 1.0),
    "coverage_2": lambda y, p, s: m.coverage(y, p, s, 2.0),
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
    true, pred, std = m.checked(y_true, y_pred, y_std)
    values = {name: metric(true, pred, std) for name, metric in METRICS.items()}
    intervals: dict[str, tuple[float, float]] = {}
    if rng is not None:
        draws = rng.integers(len(true), size=(_positive(resamples), len(true)))
        for name, metric in METRICS.items():
            samples = [metric(true[i], pred[i], std[i]) for i in draws]
            intervals[name] = percentiles(samples, confidence)
    return Metrics(n=len(true), intervals=intervals, **values)
