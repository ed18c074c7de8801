"""The potential: features, prior and sparse Gaussian process together, for lists of Atoms."""

from nugget import lazy_names

_HOME = {
    "Potential": "nugget.potential.potential",
    "Fit": "nugget.potential.potential",
    "Prediction": "nugget.potential.prediction",
}

__all__ = sorted(_HOME)
__getattr__ = lazy_names(__name__, _HOME)
