"""A fitted potential as a baseline: a model of a cheaper engine."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np

from nugget.potential.priors.base import FixedPrior, PriorValues
from nugget.registry import registered
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs

if TYPE_CHECKING:
    from nugget.potential.potential import Potential


@registered("prior")
@dataclass(frozen=True)
class ModelPrior(FixedPrior):
    """The mean of another model: the process learns the difference (GFN1 before DFT).

    `file` is a model that `nugget fit` wrote, verified when it is read. One that runs code is
    refused unless the user's list of trusted names has it.
    """

    name: ClassVar[str] = "model"
    file: str

    @classmethod
    def trusted(cls, file: str | Path) -> ModelPrior:
        """The same for a file whose code the user trusts."""
        from nugget.modelfile.file import load

        prior = cls(str(file))
        vars(prior)["potential"] = load(file, trust_code=True)
        return prior

    @cached_property
    def potential(self) -> Potential:
        from nugget.modelfile.file import load

        return load(self.file)

    def evaluate(self, batch: Batch, pairs: Pairs | None = None) -> PriorValues:
        from nugget.potential.evaluate import MEAN, value_and_grad

        # `pairs` reach as far as the other model needs, which may be too short for this one.
        found = [
            value_and_grad(self.potential, part, MEAN, std=False, strict=False, keep_rows=True)
            for part in self.potential.parts(batch)
        ]
        return PriorValues(
            np.concatenate([one.local_energies() for one in found]),
            np.concatenate([one.gradients[0] for one in found]),
            np.concatenate([one.strains[0] for one in found]),
        )
