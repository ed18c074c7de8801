"""MatterSim: a graph network for materials under temperature and pressure."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.engines.batched import torch_device
from nugget.engines.engine import Engine
from nugget.engines.options import code, matching, plain

# The gap around clusters, Å; the cutoff of the model is 5 Å.
_VACUUM = 6.0


def mattersim(
    model: str = "MatterSim-v1.0.0-1M.pth", device: str = "cpu", threads: int = 1
) -> Calculator:
    """A model by its name or file, in the precision of its weights."""
    torch_device(device, threads)
    factory: Any = import_module("mattersim.forcefield").MatterSimCalculator
    return factory(load_path=model, device=device)


ENGINES = (
    Engine(
        "mattersim",
        "foundation model MatterSim; downloads its weights on first use",
        mattersim,
        "mattersim",
        "pip install mattersim",
        settings="model (MatterSim-v1.0.0-1M.pth, MatterSim-v1.0.0-5M.pth or a file), device, "
        "threads",
        # The file of a model is a pickle of PyTorch, which runs code.
        options={
            **code("model", harmless=matching(r"MatterSim-v1\.0\.0-[15]M\.pth")),
            **plain("device", str),
            **plain("threads", int),
        },
        vacuum=_VACUUM,
        cheap=True,
    ),
)
