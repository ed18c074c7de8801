"""ANI: ensembles of neural networks for organic molecules, with weights inside `torchani` 1."""

from __future__ import annotations

import contextlib
import warnings
from importlib import import_module
from io import StringIO

import numpy as np
from ase.data import chemical_symbols
from ase.units import Hartree

from nugget.engines.batched import (
    TORCH_OPTIONS,
    BatchValues,
    TorchModel,
    calculator_of,
)
from nugget.engines.engine import Engine
from nugget.engines.options import matching, plain
from nugget.errors import NuggetError
from nugget.structures.batch import Batch

# Models by name, and the class of torchani.
_MODELS = {"ani1x": "ANI1x", "ani1ccx": "ANI1ccx", "ani2x": "ANI2x"}


class ANI(TorchModel):
    """An ensemble of ANI on batches of molecules, padded to the largest."""

    package = "torchani"

    def __init__(
        self,
        model: str = "ani1x",
        device: str = "cpu",
        threads: int = 1,
        precision: str = "double",
    ) -> None:
        if model not in _MODELS:
            raise NuggetError(f"There is no model {model!r} of ANI; choose from {list(_MODELS)}.")
        super().__init__(device, threads, precision)
        with warnings.catch_warnings(), contextlib.redirect_stdout(StringIO()):
            warnings.simplefilter("ignore")
            package = import_module("torchani.models")
            network = getattr(package, _MODELS[model])(periodic_table_index=True)
        self._network = self.adopt(network, model)
        self._elements = {chemical_symbols.index(symbol) for symbol in network.species}

    def evaluate(self, batch: Batch) -> BatchValues:
        if batch.pbc.any():
            raise NuggetError("ANI describes molecules; remove the periodicity, or choose another.")
        self.require_elements(batch, self._elements)
        place = np.arange(len(batch.numbers)) - np.repeat(batch.offsets[:-1], batch.sizes)
        numbers = np.full((len(batch), int(batch.sizes.max())), -1, dtype=np.int64)
        positions = np.zeros((*numbers.shape, 3))
        numbers[batch.owner, place], positions[batch.owner, place] = batch.numbers, batch.positions
        x = self.torch.tensor(positions, dtype=self.dtype, device=self.device).requires_grad_(True)
        species = self.torch.as_tensor(numbers, device=self.device)
        energies = self._network((species, x)).energies
        gradient = self.torch.autograd.grad(energies.sum(), x)[0]
        slopes = Hartree * gradient.cpu().numpy().astype(float)[batch.owner, place]
        strain = np.zeros((len(batch), 3, 3))
        np.add.at(strain, batch.owner, slopes[:, :, None] * batch.positions[:, None, :])
        return BatchValues(Hartree * energies.detach().cpu().numpy().astype(float), -slopes, strain)


ENGINES = (
    Engine(
        "ani",
        "ANI-1x for organic molecules; its weights are part of torchani 1",
        calculator_of(ANI),
        "torchani",
        'pip install "torchani<2" "setuptools<81"',
        settings="model (ani1x, ani1ccx, ani2x), device, threads, precision (double or single)",
        options={
            **plain("model", str, harmless=matching("|".join(_MODELS))),
            **TORCH_OPTIONS,
        },
        cheap=True,
        batched=ANI,
    ),
)
