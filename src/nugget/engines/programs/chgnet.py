"""CHGNet: a graph network with charges, with weights inside the package `chgnet`."""

from __future__ import annotations

import re
import warnings
from contextlib import redirect_stdout
from importlib import import_module
from io import StringIO
from typing import Any

import numpy as np
from ase.units import GPa

from nugget.engines.batched import (
    TORCH_OPTIONS,
    BatchValues,
    TorchModel,
    calculator_of,
    in_cells,
    readable,
)
from nugget.engines.engine import Engine
from nugget.engines.options import code, matching
from nugget.errors import NuggetError
from nugget.structures.batch import Batch

_INCLUDED = ("0.3.0", "0.2.0", "r2scan")


class CHGNet(TorchModel):
    """A model of CHGNet on batches of graphs."""

    package = "chgnet"

    def __init__(
        self,
        model: str = "0.3.0",
        device: str = "cpu",
        threads: int = 1,
        precision: str = "double",
    ) -> None:
        super().__init__(device, threads, precision)
        package = import_module("chgnet.model.model").CHGNet
        with redirect_stdout(StringIO()):  # it prints the number of its parameters
            if model in _INCLUDED:
                network = package.load(model_name=model, use_device="cpu", verbose=False)
            else:
                network = package.from_file(str(readable(model)))
        self._network = self.adopt(network, model if model in _INCLUDED else "")
        if self._network.composition_model is not None:
            self._network.composition_model.float()  # its input is in single precision
        self._converter = self._network.graph_converter
        self.cutoff = float(self._converter.atom_graph_cutoff)
        self._structure = import_module("pymatgen.core").Structure

    def evaluate(self, batch: Batch) -> BatchValues:
        batch = in_cells(batch, self.cutoff)
        graphs = [self._graph(batch, s) for s in range(len(batch))]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PyTorch, about the package's own conversions
            values = self._network.predict_graph(graphs, task="efs", batch_size=len(graphs))
        values = [values] if isinstance(values, dict) else values
        per_atom = 1.0 if not self._network.is_intensive else batch.sizes
        energies = np.array([float(one["e"]) for one in values]) * per_atom
        volumes = np.abs(np.linalg.det(batch.cells))
        stress = np.array([one["s"] for one in values], dtype=float) * GPa
        return BatchValues(
            energies,
            np.concatenate([one["f"] for one in values]).astype(float),
            stress * volumes[:, None, None],
        )

    def _graph(self, batch: Batch, s: int) -> Any:
        """The graph of one structure, with positions in the precision of the model."""
        rows = slice(batch.offsets[s], batch.offsets[s + 1])
        structure = self._structure(
            batch.cells[s], batch.numbers[rows], batch.positions[rows], coords_are_cartesian=True
        )
        try:
            graph = self._converter(structure)
        except ValueError as error:
            if "isolated" not in str(error):
                raise
            raise NuggetError(
                f"CHGNet needs a neighbour of each atom within {self.cutoff:g} Å; structure "
                f"{batch.first + s} has an isolated atom."
            ) from None
        for name, value in (
            ("atom_frac_coord", structure.frac_coords),
            ("lattice", structure.lattice.matrix),
        ):
            tensor = self.torch.tensor(np.array(value), dtype=self.dtype)
            setattr(graph, name, tensor.requires_grad_(True))
        graph.neighbor_image = graph.neighbor_image.to(self.dtype)
        return graph


ENGINES = (
    Engine(
        "chgnet",
        "foundation model CHGNet; its weights are part of the package",
        calculator_of(CHGNet),
        "chgnet",
        "pip install chgnet",
        settings="model (0.3.0, 0.2.0, r2scan or a file), device, threads, precision (double or "
        "single)",
        # The file of a model is a pickle of PyTorch, which runs code.
        options={
            **code("model", harmless=matching("|".join(map(re.escape, _INCLUDED)))),
            **TORCH_OPTIONS,
        },
        cheap=True,
        batched=CHGNet,
    ),
)
