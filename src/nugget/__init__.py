"""Gaussian-process interatomic potentials that know what they do not know.

Public names are imported on first use, so that `import nugget` and `nugget --help` stay quick.
"""

from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_HOME = {
    "SOAP": "nugget.descriptors.soap",
    "RBF": "nugget.gp.kernels",
    "CUR": "nugget.gp.inducing",
    "PivotedCholesky": "nugget.gp.inducing",
    "Random": "nugget.gp.inducing",
    "LabelNoise": "nugget.gp.committee",
    "ProjectedProcess": "nugget.gp.projected",
    "SparseGPRegressor": "nugget.gp.sklearn",
    "Potential": "nugget.potential",
    "Prediction": "nugget.prediction",
    "NuggetError": "nugget.errors",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'nugget' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
