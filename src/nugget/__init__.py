"""Gaussian-process interatomic potentials with calibrated uncertainties.

Public names are imported on first use, so that `import nugget` and `nugget --help` stay quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

__version__ = "0.2.0"


def lazy_names(package: str, homes: Mapping[str, str]) -> tuple[list[str], Callable[[str], Any]]:
    """`__all__` and `__getattr__` of a module whose public names are imported on first use.

    `homes` maps modules to the names that they hold, separated by blanks.
    """
    home = {name: module for module, names in homes.items() for name in names.split()}

    def find(name: str) -> Any:
        if name in home:
            return getattr(import_module(home[name]), name)
        raise AttributeError(f"module {package!r} has no attribute {name!r}")

    return sorted(home), find


_HOMES = {
    "nugget.descriptors.soap": "SOAP",
    "nugget.gp.kernels": "RBF",
    "nugget.gp.inducing": "CUR PivotedCholesky Random",
    "nugget.gp.uncertainty": "LabelNoise Posterior ProjectedProcess",
    "nugget.gp.sklearn": "SparseGPRegressor",
    "nugget.potential": "Potential Prediction",
    "nugget.potential.model_calculator": "load_calculator",
    "nugget.onthefly.learning_calculator": "LearningCalculator",
    "nugget.errors": "NuggetError",
    "nugget.numerics.threads": "set_threads",
}

__all__, __getattr__ = lazy_names(__name__, _HOMES)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
