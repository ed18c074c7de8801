"""A foundation model as mean function: structures of a step are evaluated together.

In a batch the last bits of a value depend on the other structures. Values that become labels are
therefore computed for each structure alone (`evaluate_singly`), so that a model is the same whether
its training set grew in one step or in many. Batches on a surface follow from the state of a run,
so that a run that is resumed or repeated computes the same batches with the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from threading import Lock
from typing import Any, ClassVar

import numpy as np

from nugget.engines.batched import BatchedModel, BatchValues, Weights, evaluate
from nugget.engines.engine import get_engine
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.potential.mean_functions.base import FixedMeanFunction, MeanFunction, MeanValues
from nugget.potential.mean_functions.from_models import CalculatorMean
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs

# Structures whose values alone are cached, enough for a training set.
_CACHED = 4000

Options = tuple[tuple[str, Any], ...]


@registered("prior")
@dataclass(frozen=True)
class FoundationMean(FixedMeanFunction):
    """The energy of a foundation model, times `weight`.

    `engine` is an engine with a batched model, such as `sevennet`; `options` go to that model.
    `package`, `version` and `sha256` identify the weights. They are set when the mean function is
    fitted; another model is refused afterwards. No code is read from model files: the package must
    be installed. A structure on which the model fails has the energy NaN.
    """

    name: ClassVar[str] = "foundation"
    engine: str
    options: Options = ()
    weight: float = 1.0
    package: str = ""
    version: str = ""
    sha256: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple((str(k), v) for k, v in self.options))

    def fit(self, batch: Batch, energies: Floats) -> FoundationMean:
        """The same mean function with the identity of its weights."""
        weights = self._handle.model.weights
        return replace(
            self, package=weights.package, version=weights.version, sha256=weights.sha256
        )

    def scaled(self, weight: float) -> FoundationMean:
        """The same mean function with another weight."""
        return replace(self, weight=float(weight))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        handle = self._handle
        if len(batch) == 1:
            return self._values(batch, handle.alone(batch))
        parts = [handle.together(part) for part in _parts(batch, handle.model.atoms_per_call)]
        return self._values(batch, _joined(parts))

    def evaluate_singly(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        """Values that do not depend on the other structures of the batch."""
        alone = [self._handle.alone(batch.part(s, s + 1)) for s in range(len(batch))]
        return self._values(batch, _joined(alone))

    @property
    def failure(self) -> str:
        """The engine and its last error; empty if it never failed."""
        error = self._handle.failure
        return f"{self.engine}: {error}" if error else ""

    def _values(self, batch: Batch, values: BatchValues) -> MeanValues:
        energies = np.repeat(values.energies / batch.sizes, batch.sizes)
        w = self.weight
        return MeanValues(w * energies, -w * values.forces, w * values.strain)

    @property
    def _handle(self) -> _Handle:
        handle = _loaded(self.engine, self.options)
        expected = Weights(self.package, self.version, self.sha256)
        if self.sha256 and expected != handle.model.weights:
            raise NuggetError(
                f"The model was fitted with {expected} as its mean function, but "
                f"{handle.model.weights} is installed; install that version, or fit anew."
            )
        return handle


@lru_cache(maxsize=4)
def _loaded(engine: str, options: Options) -> _Handle:
    return _Handle(get_engine(engine).batched_model(**dict(options)))


class _Handle:
    """A loaded model, with a cache of the values of single structures.

    Surfaces are evaluated by several threads; the model runs in one at a time.
    """

    def __init__(self, model: BatchedModel) -> None:
        self.model, self.failure = model, ""
        self._lock = Lock()
        self._single: dict[bytes, BatchValues] = {}

    def alone(self, structure: Batch) -> BatchValues:
        """The values of one structure."""
        b = structure
        key = b"".join(a.tobytes() for a in (b.numbers, b.positions, b.cells, b.pbc))
        with self._lock:
            if key not in self._single:
                if len(self._single) >= _CACHED:
                    self._single.pop(next(iter(self._single)))
                self._single[key] = self._try(structure)
            return self._single[key]

    def together(self, batch: Batch) -> BatchValues:
        """The values of many structures in one call; where that fails, one by one."""
        with self._lock:
            values = self._try(batch)
            if np.isfinite(values.energies).all() or len(batch) == 1:
                return values
            return _joined([self._try(batch.part(s, s + 1)) for s in range(len(batch))])

    def _try(self, batch: Batch) -> BatchValues:
        try:
            values = evaluate(self.model, batch)
        except Exception as error:  # packages raise exceptions of any type
            self.failure = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            values = None
        if values is not None and all(np.isfinite(array).all() for array in values):
            return values
        if values is not None:
            self.failure = "its values are not finite"
        return BatchValues(
            np.full(len(batch), np.nan),
            np.zeros_like(batch.positions),
            np.zeros((len(batch), 3, 3)),
        )


def _parts(batch: Batch, atoms: int) -> Iterator[Batch]:
    """Parts of a batch with at most so many atoms, or one structure."""
    start = 0
    while start < len(batch):
        end = int(batch.offsets[start]) + atoms
        stop = max(int(np.searchsorted(batch.offsets, end, side="right")) - 1, start + 1)
        yield batch.part(start, stop)
        start = stop


def _joined(parts: list[BatchValues]) -> BatchValues:
    if len(parts) == 1:
        return parts[0]
    return BatchValues(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))


def engine_mean(engine: str, options: Options = ()) -> MeanFunction:
    """The mean function of an engine: batched if the engine can, otherwise one by one."""
    if get_engine(engine).batched is not None:
        return FoundationMean(engine, options)
    return CalculatorMean(engine, options)
