"""Interatomic potentials: descriptor, mean function and sparse Gaussian process together."""

from __future__ import annotations

from nugget import lazy_names

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "nugget.potential.fitted": "FittedState",
        "nugget.potential.potential": "Potential",
        "nugget.potential.prediction": "Prediction",
        "nugget.potential.training": "Noise",
    },
)
