"""The fitted state of a potential, which evaluation, surfaces, calculators and model files use.

`ModelParts` holds the settings of a model and `FittedState` the result of fitting it. Neither
changes: learning replaces the state. `Potential` combines both with methods for users.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from nugget.descriptors.base import Descriptor, Environments
from nugget.gp.inducing import InducingRule
from nugget.gp.kernels import Inducing, Kernel
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty import FittedUncertainty, Uncertainty
from nugget.potential.compiled import Compiled, compile_for
from nugget.potential.domain import TrainingDomain
from nugget.potential.mean_functions.base import MeanFunction
from nugget.potential.training import Noise, Training
from nugget.structures.batch import Batch

# Kernel elements of one part of a batch. This hides the overhead of Python and fits the cache.
_PART = 2**19


@dataclass(frozen=True, eq=False)
class ModelParts:
    """The parts of a model that is not fitted yet."""

    descriptor: Descriptor
    kernel: Kernel
    inducing: InducingRule
    uncertainty: Uncertainty
    mean_function: MeanFunction
    noise: Noise
    seed: int = 0
    domain: bool = False  # whether σ accounts for the distance from the training domain


@dataclass(frozen=True, eq=False)
class FittedState:
    """The result of fitting, sufficient to predict and to learn further structures."""

    descriptor: Descriptor
    kernel: Kernel
    mean_function: MeanFunction
    inducing: Inducing
    regression: SparseRegression
    uncertainty: FittedUncertainty
    training: Training
    lean: bool = False  # read from a file without training set and factors
    domain: TrainingDomain | None = None

    @property
    def fitted(self) -> FittedState:
        """The state itself, so that it can be used in place of a potential."""
        return self

    @cached_property
    def compiled(self) -> Compiled | None:
        """The constants of the compiled evaluation, for parts that have one."""
        return compile_for(self.descriptor, self.inducing, self.widened, self.mean_function)

    @cached_property
    def widened(self) -> FittedUncertainty:
        """The uncertainty of predictions, with a larger σ_p if there is a training domain."""
        domain = self.domain
        return self.uncertainty if domain is None else domain.widened(self.uncertainty)

    @cached_property
    def inside(self) -> FittedState:
        """The same state without training domain."""
        return self if self.domain is None else replace(self, domain=None)

    @property
    def atoms_per_part(self) -> int:
        """Number of atoms whose kernel rows fit into the cache together."""
        return max(_PART // max(len(self.inducing), 1), 1)

    def parts(self, batch: Batch) -> Iterator[Batch]:
        """Split a batch into parts whose kernel rows fit into the cache."""
        if len(batch) == 1:
            return iter((batch,))
        return (batch.part(*ends) for ends in batch.slices(self.atoms_per_part))


class Fitted(Protocol):
    """A potential, or anything else with a fitted state that may be replaced by learning."""

    @property
    def fitted(self) -> FittedState: ...


@dataclass(frozen=True, eq=False)
class StoredModel:
    """Everything that a model file holds."""

    parts: ModelParts
    state: FittedState
    rng: np.random.Generator
    calibration: dict[str, Any] | None = None
    choices: dict[str, Any] | None = None  # settings that were chosen by data
    origin: dict[str, Any] = field(default_factory=dict)  # facts about a lean file's training set


def environment_points(env: Environments) -> Points:
    """The features as points of the Gaussian process, grouped by central species."""
    return Points.trusted(env.values, env.batch.offsets, env.species)
