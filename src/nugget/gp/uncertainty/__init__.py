"""Uncertainties of a sparse regression: label-noise committees and the projected process."""

from nugget.gp.uncertainty.base import FittedUncertainty, LinearUncertainty, Uncertainty
from nugget.gp.uncertainty.label_noise import Committee, LabelNoise
from nugget.gp.uncertainty.projected import Projected, ProjectedProcess

__all__ = [
    "Committee",
    "FittedUncertainty",
    "LabelNoise",
    "LinearUncertainty",
    "Projected",
    "ProjectedProcess",
    "Uncertainty",
]
