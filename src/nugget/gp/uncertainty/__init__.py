"""Uncertainties of a sparse regression: posterior, label-noise ensemble, projected process."""

from __future__ import annotations

from nugget.gp.uncertainty.base import FittedUncertainty, LinearUncertainty, Uncertainty
from nugget.gp.uncertainty.label_noise import Committee, LabelNoise
from nugget.gp.uncertainty.posterior import Posterior, WeightPosterior
from nugget.gp.uncertainty.projected import Projected, ProjectedProcess

__all__ = [
    "Committee",
    "FittedUncertainty",
    "LabelNoise",
    "LinearUncertainty",
    "Posterior",
    "Projected",
    "ProjectedProcess",
    "Uncertainty",
    "WeightPosterior",
]
