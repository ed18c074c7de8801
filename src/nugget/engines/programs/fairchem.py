"""fairchem: the UMA models of Meta, for molecules, catalysts and materials."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from ase.calculators.calculator import Calculator

from nugget.engines.batched import torch_device
from nugget.engines.engine import Engine
from nugget.engines.options import code, matching, plain

_VACUUM = 7.0  # Å around clusters; the cutoff of the models is 6 Å


def fairchem(
    model: str = "uma-s-1p1",
    task: str = "omat",
    device: str = "cpu",
    threads: int = 1,
    weights: str | None = None,
) -> Calculator:
    """A pretrained model by its name, for a task: omat, omol, oc20, odac or omc.

    `weights` is a file that replaces the download, which needs an account.
    """
    torch_device(device, threads)
    core: Any = import_module("fairchem.core")
    if weights is None:
        unit = core.pretrained_mlip.get_predict_unit(model, device=device)
    else:
        unit = import_module("fairchem.core.units.mlip_unit").load_predict_unit(
            weights, device=device
        )
    return core.FAIRChemCalculator(unit, task_name=task)


ENGINES = (
    Engine(
        "fairchem",
        "foundation models UMA; downloads its weights, which needs an account",
        fairchem,
        "fairchem.core",
        "pip install fairchem-core",
        settings="model (uma-s-1p1, uma-m-1p1), task (omat, omol, oc20, odac, omc), weights (a "
        "file), device, threads",
        # The file of a model is a pickle of PyTorch, which runs code.
        options={
            **code("weights"),
            **plain("model", str, harmless=matching(r"[\w.-]+")),
            **plain("task device", str),
            **plain("threads", int),
        },
        vacuum=_VACUUM,
        cheap=True,
    ),
)
