"""SevenNet: equivariant graph networks, with weights inside the package `sevenn`."""

from __future__ import annotations

import warnings
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from ase.calculators.calculator import Calculator
from ase.data import chemical_symbols

from nugget.engines.batched import (
    TORCH_OPTIONS,
    BatchedCalculator,
    BatchValues,
    Weights,
    atoms_per_call,
    directed_edges,
    hash_of_state,
    identity,
    torch_device,
    torch_dtype,
)
from nugget.engines.engine import Engine
from nugget.engines.options import code, matching, plain
from nugget.errors import NuggetError
from nugget.structures.batch import Batch

# Models whose weights are part of the package; others are downloaded.
_INCLUDED = "7net-0|7net-0_22may2024|7net-l3i5|7net-mf-0"

# The module whose output is in single precision, whatever the weights are.
_ONE_HOT = "onehot_idx_to_onehot"


class SevenNet:
    """A model of SevenNet on batches; forces and strain come from the gradient by edges."""

    def __init__(
        self,
        model: str = "7net-0",
        modal: str | None = None,
        device: str = "cpu",
        threads: int = 1,
        precision: str = "double",
    ) -> None:
        self._torch, self._keys = import_module("torch"), import_module("sevenn._keys")
        self.device, self.dtype = torch_device(device, threads), torch_dtype(precision)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about accelerators that need a GPU
            checkpoint = import_module("sevenn.util").load_checkpoint(model)
            network = checkpoint.build_model()
        self._hash = hash_of_state(network.state_dict())
        self._network = network.to(self.device, self.dtype).eval()
        self._network.set_is_batch_data(True)
        for parameter in self._network.parameters():
            parameter.requires_grad_(False)
        dict(self._network.named_children())[_ONE_HOT].register_forward_hook(self._cast)
        self.cutoff = float(checkpoint.config[self._keys.CUTOFF])
        self._elements = set(network.type_map)
        self.modal = _checked_modal(modal, network.modal_map)

    @property
    def atoms_per_call(self) -> int:
        return atoms_per_call(self.device)

    @cached_property
    def weights(self) -> Weights:
        return identity("sevenn", self._hash)

    def _cast(self, module: Any, inputs: Any, output: dict[str, Any]) -> dict[str, Any]:
        for key, value in list(output.items()):
            if getattr(value, "dtype", None) is self._torch.float32:
                output[key] = value.to(self.dtype)
        return output

    def evaluate(self, batch: Batch) -> BatchValues:
        unknown = set(np.unique(batch.numbers).tolist()) - self._elements
        if unknown:
            symbols = ", ".join(chemical_symbols[z] for z in sorted(unknown))
            raise NuggetError(f"SevenNet's model does not know the element {symbols}.")
        keys, output = self._keys, self._network(self._graph(batch))
        energies, forces, stress = (
            output[key].detach().cpu().numpy().astype(float)
            for key in (keys.PRED_TOTAL_ENERGY, keys.PRED_FORCE, keys.PRED_STRESS)
        )
        # −∂E/∂ε for volumes of 1, in the order xx, yy, zz, xy, yz, zx.
        strain = -stress[:, [[0, 3, 5], [3, 1, 4], [5, 4, 2]]]
        return BatchValues(energies, forces, strain)

    def _graph(self, batch: Batch) -> dict[str, Any]:
        keys = self._keys
        edges = directed_edges(batch, self.cutoff)

        def integers(values: Any) -> Any:
            return self._torch.as_tensor(np.asarray(values), device=self.device)

        def numbers(values: Any) -> Any:
            return self._torch.as_tensor(values, dtype=self.dtype, device=self.device)

        graph = {
            keys.NODE_FEATURE: integers(batch.numbers),
            keys.ATOMIC_NUMBERS: integers(batch.numbers),
            keys.POS: numbers(batch.positions),
            keys.EDGE_IDX: integers([edges.source, edges.target]),
            keys.EDGE_VEC: numbers(edges.vector),
            keys.CELL_VOLUME: numbers(np.ones(len(batch))),
            keys.NUM_ATOMS: integers(batch.sizes),
            keys.BATCH: integers(batch.owner),
        }
        if self.modal is not None:
            graph[keys.DATA_MODALITY] = [self.modal] * len(batch)
        return graph


def _checked_modal(modal: str | None, available: Any) -> str | None:
    """The level of theory of a model that was trained on several."""
    names = sorted(available or ())
    if (modal or None) in (names or [None]):
        return modal
    if not names:
        raise NuggetError(
            "This model of SevenNet has one level of theory; remove the option modal."
        )
    raise NuggetError(
        f"This model of SevenNet was trained on several levels of theory; set the option modal to "
        f"{' or '.join(names)}."
    )


def sevennet(**options: Any) -> Calculator:
    """SevenNet as an ASE calculator."""
    return BatchedCalculator(SevenNet(**options))


ENGINES = (
    Engine(
        "sevennet",
        "foundation model SevenNet-0; its weights are part of the package",
        sevennet,
        "sevenn",
        "pip install sevenn",
        settings="model (7net-0, 7net-l3i5, 7net-mf-0 or a file), modal, device, threads, "
        "precision (double or single)",
        # The file of a model is a pickle of PyTorch, which runs code.
        options={
            **code("model", harmless=matching(_INCLUDED)),
            **plain("modal", str),
            **TORCH_OPTIONS,
        },
        cheap=True,
        batched=SevenNet,
    ),
)
