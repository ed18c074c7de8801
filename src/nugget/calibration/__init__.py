"""Are the error bars honest, and how to make them so.

`metrics` and `summary` measure, `recalibrate` finds noise levels on validation data, `online`
follows a search; none of them knows a potential or an atom. `potential` applies them to one.
"""

from nugget.calibration.components import Components, calibrate_components, components
from nugget.calibration.conformal import conformal_factor, interval_factor
from nugget.calibration.left_out import calibrate_left_out
from nugget.calibration.metrics import (
    LEVELS,
    Bins,
    calibration_curve,
    calibration_error,
    coverage,
    crps,
    dispersion,
    ence,
    miscalibration_area,
    nll,
    per_atom,
    sharpness,
    sigma_bins,
    spearman,
)
from nugget.calibration.online import OnlineScale
from nugget.calibration.potential import Residuals, calibrate, residuals
from nugget.calibration.recalibrate import (
    Calibration,
    CalibrationWarning,
    fit_levels,
    fit_scale,
)
from nugget.calibration.summary import METRICS, Interval, Metrics, bootstrap, summary

__all__ = [
    "LEVELS",
    "METRICS",
    "Bins",
    "Calibration",
    "CalibrationWarning",
    "Components",
    "Interval",
    "Metrics",
    "OnlineScale",
    "Residuals",
    "bootstrap",
    "calibrate",
    "calibrate_components",
    "calibrate_left_out",
    "calibration_curve",
    "calibration_error",
    "components",
    "conformal_factor",
    "coverage",
    "crps",
    "dispersion",
    "ence",
    "fit_levels",
    "fit_scale",
    "interval_factor",
    "miscalibration_area",
    "nll",
    "per_atom",
    "residuals",
    "sharpness",
    "sigma_bins",
    "spearman",
    "summary",
]
