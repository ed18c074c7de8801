"""The potential: features, prior and sparse Gaussian process together, for lists of Atoms."""

from nugget import lazy_names

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "nugget.potential.potential": "Potential Fit",
        "nugget.potential.prediction": "Prediction",
    },
)
