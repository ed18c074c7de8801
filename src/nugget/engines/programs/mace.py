"""MACE: equivariant potentials trained on density-functional theory."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.engines.engine import Engine
from nugget.engines.options import code, matching, plain


def mace(model: str = "medium", device: str = "cpu", **options: Any) -> Calculator:
    """A foundation model (`small`, `medium`, `large`, ...) or a model file, in double precision."""
    module = import_module("mace.calculators")
    return module.mace_mp(model=model, device=device, **{"default_dtype": "float64", **options})


ENGINES = (
    Engine(
        "mace",
        "foundation model of materials (MACE-MP); downloads its weights on first use",
        mace,
        "mace",
        "pip install mace-torch",
        settings="model (small, medium, large or a file), device, dispersion and others of "
        "mace.calculators.mace_mp",
        # The file of a model is a pickle of PyTorch, which runs code.
        options={
            **code("model", harmless=matching("small|medium|large")),
            **plain("device default_dtype damping dispersion_xc head", str),
            **plain("dispersion", bool),
            **plain("dispersion_cutoff", float),
        },
    ),
)
