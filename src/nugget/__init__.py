"""Gaussian-process interatomic potentials that know what they do not know.

Public names are imported on first use, so that `import nugget` and `nugget --help` stay quick.
"""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__version__ = "0.1.0"


def lazy_names(package: str, home: Mapping[str, str]) -> Callable[[str], Any]:
    """A module's `__getattr__` that imports each public name from its home on first use."""

    def find(name: str) -> Any:
        if name in home:
            return getattr(import_module(home[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return find


_HOME = {
    "SOAP": "nugget.descriptors.soap",
    "RBF": "nugget.gp.kernels",
    "CUR": "nugget.gp.inducing",
    "PivotedCholesky": "nugget.gp.inducing",
    "Random": "nugget.gp.inducing",
    "LabelNoise": "nugget.gp.uncertainty.label_noise",
    "Posterior": "nugget.gp.uncertainty.posterior",
    "ProjectedProcess": "nugget.gp.uncertainty.projected",
    "SparseGPRegressor": "nugget.gp.sklearn",
    "Potential": "nugget.potential.potential",
    "Prediction": "nugget.potential.prediction",
    "NuggetError": "nugget.errors",
}

__all__ = sorted(_HOME)
__getattr__ = lazy_names(__name__, _HOME)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
