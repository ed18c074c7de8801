"""Orb: graph networks of Orbital Materials."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.engines.batched import torch_device
from nugget.engines.engine import Engine
from nugget.engines.options import code, matching, plain
from nugget.errors import NuggetError

_VACUUM = 7.0  # Å around clusters; the cutoff of the models is 6 Å


def orb(
    model: str = "orb-v3-conservative-inf-omat",
    device: str = "cpu",
    threads: int = 1,
    precision: str = "float32-highest",
    weights: str | None = None,
) -> Calculator:
    """A pretrained model by its name; `weights` is a file that replaces the download."""
    torch_device(device, threads)
    pretrained: Any = import_module("orb_models.forcefield.pretrained")
    factories = pretrained.ORB_PRETRAINED_MODELS
    if model not in factories:
        raise NuggetError(f"There is no model {model!r} of Orb; choose from {sorted(factories)}.")
    files = {} if weights is None else {"weights_path": weights}
    network = factories[model](device=device, precision=precision, **files)
    return import_module("orb_models.forcefield.calculator").ORBCalculator(network, device=device)


ENGINES = (
    Engine(
        "orb",
        "foundation model Orb; downloads its weights on first use",
        orb,
        "orb_models",
        "pip install orb-models",
        settings="model (orb-v3-conservative-inf-omat, …), weights (a file), device, threads, "
        "precision",
        # The file of a model is a pickle of PyTorch, which runs code.
        options={
            **code("weights"),
            **plain("model", str, harmless=matching(r"[\w-]+")),
            **plain("device precision", str),
            **plain("threads", int),
        },
        vacuum=_VACUUM,
        cheap=True,
    ),
)
