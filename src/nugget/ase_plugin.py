"""What ASE finds through entry points: a calculator and two file formats.

ASE loads this module whenever `ase.io` is imported, so it imports nothing but ASE.

- The calculator `nugget` is known to `ase run` and to `get_calculator_class`: older versions of
  ASE have no entry point for calculators, so it is registered when the formats are.
- `nugget-model` reads the training set of a model file: `ase gui au.model`.
- `nugget-chemiscope` writes structures for chemiscope: `ase convert a.traj a.chemiscope.json`.
- `__ase_plugins__` is what the plugin system of ASE 3.29 and later asks for.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ase import Atoms
from ase.calculators import calculator as _calculators
from ase.utils.plugins import ExternalIOFormat

NAME = "nugget"


class Nugget:
    """The calculator of a model file; `Nugget(model="au.model")` is a `NuggetCalculator`.

    Options are those of `nugget.load_calculator`.
    """

    nolabel = True

    def __new__(cls, model: str, **options: Any) -> Any:
        from nugget.potential.model_calculator import load_calculator

        return load_calculator(model, **options)


if NAME not in _calculators.external_calculators:
    _calculators.register_calculator_class(NAME, Nugget)

_HERE = __name__

model_format = ExternalIOFormat(
    desc="Training set of a nugget model", code="+S", module=_HERE, glob="*.model"
)

chemiscope_format = ExternalIOFormat(
    desc="Structures and properties for chemiscope", code="+S", module=_HERE,
    glob="*.chemiscope.json",
)  # fmt: skip


def read_nugget_model(filename: str, index: int | slice = -1) -> list[Atoms]:
    """Training structures of a model file, with their labels."""
    from nugget.potential.model_calculator import training_images

    images = training_images(filename)
    return images[index] if isinstance(index, slice) else [images[index]]


def write_nugget_chemiscope(filename: str, images: Sequence[Atoms] | Atoms) -> None:
    """A JSON file that chemiscope.org displays."""
    from nugget.structures.io import write_images

    write_images(filename, images)


def __getattr__(name: str) -> Any:
    if name != "__ase_plugins__":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from ase._4.plugins.plugin import CalculatorPlugin

    class Plugin(CalculatorPlugin):
        """A calculator of a distribution whose name differs from that of its package."""

        package = "nugget-gp"

    home = "nugget.potential.model_calculator.ModelCalculator"
    return {Plugin(NAME, citation="arXiv:2407.12525", implementation=home)}
