"""Mean functions from other models: an ASE calculator, or a fitted potential (Δ-learning)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from threading import Lock
from typing import Any, ClassVar

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator

from nugget.engines.engine import get_engine
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats
from nugget.potential.evaluate import MEAN, value_and_grad
from nugget.potential.fitted import FittedState
from nugget.potential.mean_functions.base import FixedMeanFunction, MeanValues
from nugget.potential.model_file import load_model
from nugget.registry import registered
from nugget.storage.files import file_hash
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs

# Structures whose values are cached, enough for those that a search evaluates repeatedly.
_CACHED = 4000

_Values = tuple[float, Floats, Floats]  # energy, gradient (N, 3), derivative by strain (3, 3)


@registered("prior")
@dataclass(frozen=True)
class CalculatorMean(FixedMeanFunction):
    """The energy of any ASE calculator; the Gaussian process learns the difference to it.

    `engine` is a name that `nugget engines` lists or `module:factory`; unlike an object, a name can
    be written into a model file. The calculator is created once and reset before each structure, so
    that no value depends on earlier calculations. A structure on which it fails has the energy NaN.
    """

    name: ClassVar[str] = "calculator"
    runs_engine: ClassVar[bool] = True
    engine: str
    options: tuple[tuple[str, Any], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "options", tuple((str(k), v) for k, v in self.options))

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        energies = np.empty(len(batch.positions))
        gradient = np.empty_like(batch.positions)
        strain = np.zeros((len(batch), 3, 3))
        for s in range(len(batch)):
            rows = slice(batch.offsets[s], batch.offsets[s + 1])
            atoms = Atoms(
                batch.numbers[rows], batch.positions[rows], cell=batch.cells[s], pbc=batch.pbc[s]
            )
            energy, gradient[rows], strain[s] = self._cached(atoms)
            energies[rows] = energy / len(atoms)
        return MeanValues(energies, gradient, strain)

    @property
    def failure(self) -> str:
        """The engine and its last error; empty if it never failed."""
        error = self._cached.failure
        return f"{self.engine}: {error}" if error else ""

    @cached_property
    def _cached(self) -> _CachedCalculator:
        engine = get_engine(self.engine)
        return _CachedCalculator(engine.calculator(**{**engine.forgetful, **dict(self.options)}))


class _CachedCalculator:
    """A calculator with a cache of the values of the last structures.

    Surfaces are evaluated by several threads, and ASE's calculators keep state: one at a time.
    """

    def __init__(self, calculator: Calculator) -> None:
        self.calculator, self._lock = calculator, Lock()
        self.values: dict[bytes, _Values] = {}
        self.failure = ""

    def __call__(self, atoms: Atoms) -> _Values:
        parts = (atoms.numbers, atoms.positions, atoms.cell.array, atoms.pbc)
        key = b"".join(part.tobytes() for part in parts)
        with self._lock:
            if key not in self.values:
                if len(self.values) >= _CACHED:
                    self.values.pop(next(iter(self.values)))
                self.values[key] = self._calculate(atoms)
            return self.values[key]

    def _calculate(self, atoms: Atoms) -> _Values:
        if hasattr(self.calculator, "reset"):  # not every ASE calculator has it
            self.calculator.reset()
        atoms.calc = self.calculator
        strain = np.zeros((3, 3))
        try:
            energy, forces = float(atoms.get_potential_energy()), atoms.get_forces()
            if atoms.pbc.all():
                strain = atoms.get_stress(voigt=False) * atoms.get_volume()
        except Exception as error:  # calculators raise exceptions of any type
            self.failure = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            energy, forces = np.nan, np.zeros((len(atoms), 3))
        return energy, -forces, strain


@registered("prior")
@dataclass(frozen=True)
class ModelMean(FixedMeanFunction):
    """The mean prediction of another model, for example one of GFN1-xTB below one of DFT.

    `file` is a model that `nugget fit` wrote; it is verified when it is read. A model that runs
    code is refused unless the user's list of trusted names contains that code. `sha256` is the hash
    of the file; another file of this name is refused. Models of version 0.2 have no hash.
    """

    name: ClassVar[str] = "model"
    file: str
    sha256: str = ""

    def __post_init__(self) -> None:
        if not self.sha256 and Path(self.file).is_file():
            object.__setattr__(self, "sha256", file_hash(Path(self.file)))

    @classmethod
    def trusted(cls, file: str | Path) -> ModelMean:
        """The same for a file whose code the user trusts."""
        mean_function = cls(str(file))
        vars(mean_function)["state"] = mean_function._load(trust_code=True)
        return mean_function

    @cached_property
    def state(self) -> FittedState:
        return self._load()

    def _load(self, trust_code: bool = False) -> FittedState:
        if self.sha256 and Path(self.file).is_file() and file_hash(Path(self.file)) != self.sha256:
            raise NuggetError(
                f"The mean function {self.file} is another file than the one that the model was "
                "fitted with; bring that file back, or fit the model again."
            )
        return load_model(self.file, trust_code).state

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> MeanValues:
        # `pairs` were listed for the other model and may be too short for this one.
        parts = [
            value_and_grad(self.state, part, MEAN, std=False, strict=False, keep_rows=True)
            for part in self.state.parts(batch)
        ]
        return MeanValues(
            np.concatenate([one.local_energies() for one in parts]),
            np.concatenate([one.gradients[0] for one in parts]),
            np.concatenate([one.strains[0] for one in parts]),
        )


# Names of version 0.2, kept for one release.
CalculatorPrior = CalculatorMean
ModelPrior = ModelMean
