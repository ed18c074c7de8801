"""A κ schedule: the search explores while the model is young, then follows the mean."""

from dataclasses import dataclass
from typing import ClassVar

from nugget.search.acquisition import AcquisitionContext, LowerConfidenceBound


@dataclass(frozen=True)
class GreedyAfter(LowerConfidenceBound):
    """The lower confidence bound with a κ that falls linearly to zero.

    It reaches zero when the share `after` of the budget is used.
    """

    after: float = 0.8

    name: ClassVar[str] = "greedy-after"

    def kappa_at(self, context: AcquisitionContext) -> float:
        used = context.evaluations / context.budget
        return self.kappa * max(0.0, 1.0 - used / self.after)
