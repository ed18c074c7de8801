"""Online calibration: a factor on σ from the past predictions of a search and their outcomes."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import exp, isfinite, log, sqrt

import numpy as np
from scipy.special import ndtr

from nugget.errors import NuggetError

# Clipping point of Huber's scale, large enough to use most of the data and small enough for a
# third of the window to be outliers (a breakdown point of β/c² = 0.35).
_CLIP = 1.5

# β = E min(Z², c²) for a standard normal Z, so that a calibrated stream has scale 1.
_BETA = (
    2 * ndtr(_CLIP)
    - 1
    - 2 * _CLIP * exp(-(_CLIP**2) / 2) / sqrt(2 * np.pi)
    + _CLIP**2 * 2 * ndtr(-_CLIP)
)


def huber_scale(z: tuple[float, ...]) -> float:
    """The s with mean min(z²/s², c²) = β: like the root mean square, but outliers count only c².

    Zero when more than a share 1 − β/c² of the z are zero.
    """
    squares = np.sort(np.square(np.asarray(z, dtype=np.float64)))
    n = len(squares)
    if n == 0:
        raise NuggetError("the scale of no data is undefined; give at least one value.")
    inner = np.concatenate([[0.0], np.cumsum(squares)])
    # With the k smallest unclipped, s² = Σ_{i<k} z² / (nβ − (n−k)c²); the right k is the one that
    # clips exactly the others.
    for k in range(n, 0, -1):
        room = n * _BETA - (n - k) * _CLIP**2
        if room <= 0:
            break
        s2 = inner[k] / room
        if squares[k - 1] <= _CLIP**2 * s2:
            return float(np.sqrt(s2))
    return 0.0


@dataclass(frozen=True)
class OnlineScale:
    """Factor on σ from the last `window` predictions with an outcome.

    The state is the tuple of z = (outcome − prediction)/σ with the unscaled σ of the model. It is
    immutable; `update` returns the next state.

    scale = s^w start^(1−w) with s Huber's robust scale of the z and w = n/(n + prior_weight): with
    few points the factor stays near `start`, which counts as `prior_weight` points in log s.
    Without `robust`, s is the root mean square, so that outliers count in full.
    """

    window: int = 50
    prior_weight: float = 10.0
    bounds: tuple[float, float] = (0.05, 20.0)
    z: tuple[float, ...] = ()
    start: float = 1.0
    robust: bool = True

    def __post_init__(self) -> None:
        if self.window < 1:
            raise NuggetError(f"window is {self.window}; at least one outcome must be kept.")
        if not self.prior_weight >= 0:
            raise NuggetError(f"prior_weight is {self.prior_weight}; it must not be negative.")
        low, high = self.bounds
        if not 0 < low <= 1 <= high:
            raise NuggetError(f"bounds are {self.bounds}; they must be positive and enclose 1.")
        if not (isfinite(self.start) and self.start > 0):
            raise NuggetError(f"start is {self.start}; a factor must be positive.")

    def update(self, y_pred: float, y_std: float, y_true: float) -> OnlineScale:
        """The state after one more outcome."""
        if not (isfinite(y_pred) and isfinite(y_true) and isfinite(y_std) and y_std > 0):
            raise NuggetError(
                f"prediction {y_pred}, σ {y_std}, outcome {y_true}: all must be finite and σ "
                "positive; exclude failed evaluations."
            )
        z = (y_true - y_pred) / y_std
        return replace(self, z=(*self.z, float(z))[-self.window :])

    @property
    def n(self) -> int:
        """Number of outcomes."""
        return len(self.z)

    @property
    def scale(self) -> float:
        """The factor on σ."""
        if not self.z:
            return self.start
        low, high = self.bounds
        raw = huber_scale(self.z) if self.robust else float(np.sqrt(np.mean(np.square(self.z))))
        s = min(max(raw, low), high)
        weight = self.n / (self.n + self.prior_weight)
        return exp(weight * log(s) + (1.0 - weight) * log(self.start))
