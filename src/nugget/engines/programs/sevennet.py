"""SevenNet: equivariant graph networks, with weights inside the package `sevenn`."""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import Any

import numpy as np

from nugget.engines.batched import (
    TORCH_OPTIONS,
    BatchValues,
    TorchModel,
    calculator_of,
    directed_edges,
)
from nugget.engines.engine import Engine
from nugget.engines.options import bare_name, code, matching, plain
from nugget.errors import NuggetError
from nugget.structures.batch import Batch

# Models whose weights are part of the package; others are downloaded.
_INCLUDED = "7net-0|7net-0_22may2024|7net-l3i5|7net-mf-0"

# The module whose output is in single precision, whatever the weights are.
_ONE_HOT = "onehot_idx_to_onehot"


class SevenNet(TorchModel):
    """A model of SevenNet on batches; forces and strain come from the gradient by edges."""

    package = "sevenn"

    def __init__(
        self,
        model: str = "7net-0",
        modal: str | None = None,
        device: str = "cpu",
        threads: int = 1,
        precision: str = "double",
    ) -> None:
        super().__init__(device, threads, precision)
        self._keys = import_module("sevenn._keys")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about accelerators that need a GPU
            checkpoint = import_module("sevenn.util").load_checkpoint(
                bare_name("sevennet", "model", model)
            )
            network = checkpoint.build_model()
        self._network = self.adopt(network)
        self._network.set_is_batch_data(True)
        dict(self._network.named_children())[_ONE_HOT].register_forward_hook(self._cast)
        self.cutoff = float(checkpoint.config[self._keys.CUTOFF])
        self._elements = set(network.type_map)
        self.modal = _checked_modal(modal, network.modal_map)

    def _cast(self, module: Any, inputs: Any, output: dict[str, Any]) -> dict[str, Any]:
        for key, value in list(output.items()):
            if getattr(value, "dtype", None) is self.torch.float32:
                output[key] = value.to(self.dtype)
        return output

    def evaluate(self, batch: Batch) -> BatchValues:
        self.require_elements(batch, self._elements)
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
            return self.torch.as_tensor(np.asarray(values), device=self.device)

        def numbers(values: Any) -> Any:
            return self.torch.as_tensor(values, dtype=self.dtype, device=self.device)

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


ENGINES = (
    Engine(
        "sevennet",
        "foundation model SevenNet-0; its weights are part of the package",
        calculator_of(SevenNet),
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
