"""Models that evaluate many structures in one call, such as foundation models on PyTorch.

An engine that offers such a model is used in two ways: as a calculator, one structure at a time,
and as a mean function, all structures of a step at once. Both use the same numbers.

Some models on graphs need a cell. `in_cells` places a structure that is not periodic along some
axis in a cell with a gap that is wider than the cutoff, so that no edge crosses it and the energy
does not depend on the size of the cell.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from ase import Atoms
from ase.calculators.calculator import CalculationFailed, Calculator, all_changes
from ase.data import chemical_symbols
from ase.geometry import complete_cell

from nugget.engines.options import matching, plain
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.structures.batch import Batch, as_batch
from nugget.structures.neighbours import find_pairs

# Å added to the cutoff between a structure and its images.
_MARGIN = 1.0


class BatchValues(NamedTuple):
    """Values of a batch of structures."""

    energies: Floats  # (B,), eV
    forces: Floats  # (N, 3), eV/Å
    strain: Floats  # (B, 3, 3) derivative of the energy by strain, eV


@dataclass(frozen=True)
class Weights:
    """The identity of a model: Python package, its version, and the hash of the weights."""

    package: str
    version: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.package} {self.version} (weights {self.sha256[:12]})"


class BatchedModel(Protocol):
    """A model that evaluates many structures in one call."""

    @property
    def weights(self) -> Weights:
        """Package, version and hash."""

    @property
    def atoms_per_call(self) -> int:
        """Atoms of one call with which it is fastest; more are divided."""

    def evaluate(self, batch: Batch) -> BatchValues:
        """Values of all structures; an error for structures that the model cannot describe."""


def evaluate(model: BatchedModel, batch: Batch) -> BatchValues:
    """Values of all structures, with symmetric derivatives by strain."""
    energies, forces, strain = model.evaluate(batch)
    return BatchValues(energies, forces, 0.5 * (strain + strain.transpose(0, 2, 1)))


def in_cells(batch: Batch, cutoff: float) -> Batch:
    """The structures with complete cells, with a gap wider than the cutoff where not periodic."""
    if batch.pbc.all():
        return batch
    cells, gap = batch.cells.copy(), cutoff + _MARGIN
    for s in np.flatnonzero(~batch.pbc.all(axis=1)):
        x = batch.positions[batch.offsets[s] : batch.offsets[s + 1]]
        periodic_axes = batch.pbc[s]
        cell = np.where(periodic_axes[:, None], cells[s], 0.0)
        cell = np.array(complete_cell(cell))  # unit vectors along the other axes, orthogonal
        for axis in np.flatnonzero(~periodic_axes):
            unit = cell[axis] / np.linalg.norm(cell[axis])
            cell[axis] = unit * (np.ptp(x @ unit) + gap)
        cells[s] = cell
    return Batch(
        batch.positions, batch.numbers, batch.offsets, cells, np.ones_like(batch.pbc), batch.first
    )


class BatchedCalculator(Calculator):
    """An ASE calculator of a batched model, for one structure at a time; it keeps no state."""

    implemented_properties = ["energy", "forces", "stress"]  # noqa: RUF012 (as in ASE)

    def __init__(self, model: BatchedModel) -> None:
        super().__init__()
        self.model = model

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        energies, forces, strain = evaluate(self.model, as_batch(self.atoms))
        if not (np.isfinite(energies).all() and np.isfinite(forces).all()):
            raise CalculationFailed(
                f"{self.model.weights.package} gives values that are not finite"
            )
        self.results = {"energy": float(energies[0]), "forces": forces}
        if self.atoms.cell.rank == 3 and self.atoms.pbc.all():
            stress = strain[0] / self.atoms.get_volume()
            self.results["stress"] = stress.flat[[0, 4, 8, 5, 2, 1]]


# --------------------------------------------------------------------------- PyTorch


#: Options of all engines on PyTorch.
TORCH_OPTIONS = {
    **plain("device", str),
    **plain("threads", int),
    **plain("precision", str, harmless=matching("single|double")),
}


def torch_dtype(precision: str) -> Any:
    """The type of numbers of that precision."""
    torch = import_module("torch")
    types = {"single": torch.float32, "double": torch.float64}
    if precision not in types:
        raise NuggetError(f"The option precision is {precision!r}; choose 'double' or 'single'.")
    return types[precision]


def torch_device(name: str, threads: int) -> Any:
    """The device of that name; `threads` cores compute on a CPU."""
    torch = import_module("torch")
    if threads < 1:
        raise NuggetError(f"The option threads is {threads}; it must be at least 1.")
    try:
        device = torch.device(name)
        torch.zeros(1, device=device)
    except (RuntimeError, AssertionError) as error:
        reason = " ".join(str(error).split())[:200]
        raise NuggetError(
            f"The device {name!r} cannot be used ({reason}): choose 'cpu', or install a PyTorch "
            "that supports it."
        ) from None
    torch.set_num_threads(threads)
    return device


def hash_of_state(state: Any, extra: Sequence[str] = ()) -> str:
    """The hash of the weights of a PyTorch model, independent of device and file format."""
    digest = hashlib.sha256()
    for name, tensor in sorted(state.items()):
        if not hasattr(tensor, "detach"):
            continue
        array = tensor.detach().cpu().contiguous().numpy()
        digest.update(f"{name} {array.dtype} {array.shape}".encode())
        digest.update(array.tobytes())
    for text in extra:
        digest.update(text.encode())
    return digest.hexdigest()


def readable(path: str) -> Path:
    """An existing file of weights."""
    file = Path(path).expanduser()
    if not file.is_file():
        raise NuggetError(f"There is no file of weights {path}; give its path.")
    return file


class TorchModel:
    """Base class of a batched model on PyTorch; a subclass loads the network and evaluates it."""

    package: ClassVar[str]

    def __init__(self, device: str, threads: int, precision: str) -> None:
        self.torch = import_module("torch")
        self.device, self.dtype = torch_device(device, threads), torch_dtype(precision)

    def adopt(self, network: Any, model: str = "") -> Any:
        """The network on the device, for predictions only; `model` becomes part of its hash."""
        self._hash = hash_of_state(network.state_dict(), [model] if model else [])
        network = network.to(self.device, self.dtype).eval()
        for parameter in network.parameters():
            parameter.requires_grad_(False)
        return network

    @cached_property
    def weights(self) -> Weights:
        return Weights(self.package, version(self.package), self._hash)

    @property
    def atoms_per_call(self) -> int:
        """Atoms of one call.

        On a CPU larger batches leave the cache: 15 structures of 20 atoms took 1.8 s one by one,
        1.9 s in calls of 100 atoms and 2.6 s in one call (SevenNet-0, double precision). Small
        structures are faster together, since a call has an overhead of some 10 ms.
        """
        return 100 if self.device.type == "cpu" else 5000

    def require_elements(self, batch: Batch, known: set[int]) -> None:
        """Raise NuggetError if the network does not know an element."""
        unknown = sorted(set(np.unique(batch.numbers).tolist()) - known)
        if unknown:
            symbols = ", ".join(chemical_symbols[z] for z in unknown)
            raise NuggetError(f"The model of {self.package} does not know the element {symbols}.")


def calculator_of(model: Callable[..., BatchedModel]) -> Callable[..., Calculator]:
    """The factory of calculators of a batched model."""
    return lambda **options: BatchedCalculator(model(**options))


class Edges(NamedTuple):
    """Directed edges of a batch, in both directions."""

    source: Ints  # (E,) atom rows
    target: Ints  # (E,)
    vector: Floats  # (E, 3) from source to target, Å


def directed_edges(batch: Batch, cutoff: float) -> Edges:
    """All edges that are shorter than the cutoff."""
    pairs = find_pairs(batch, cutoff)
    vector = batch.positions[pairs.j] + pairs.shift - batch.positions[pairs.i]
    near = np.einsum("pc,pc->p", vector, vector) < cutoff * cutoff
    i, j, vector = pairs.i[near], pairs.j[near], vector[near]
    return Edges(np.concatenate([i, j]), np.concatenate([j, i]), np.concatenate([vector, -vector]))
