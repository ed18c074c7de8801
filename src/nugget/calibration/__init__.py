"""Calibration of uncertainties: metrics, noise levels on validation data, leave-one-out, searches.

These modules know neither potentials nor atoms. `nugget.potential.validation` applies them to a
potential; its functions, such as `calibrate`, can be imported from here as well.
"""

from __future__ import annotations

from nugget import lazy_names

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "nugget.calibration.metrics": "LEVELS METRICS Bins Interval Metrics bootstrap "
        "calibration_curve calibration_error conformal_factor coverage crps dispersion ence "
        "interval_factor miscalibration_area nll per_atom sharpness sigma_bins spearman summary",
        "nugget.calibration.online": "OnlineScale",
        "nugget.calibration.recalibrate": "Calibration CalibrationWarning fit_levels fit_scale",
        "nugget.potential.validation": "Components Residuals calibrate calibrate_components "
        "calibrate_groups with_group_factors "
        "components residuals",
    },
)
