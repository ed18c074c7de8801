"""The conformance check of inducing rules."""

from __future__ import annotations

import numpy as np

from nugget.gp.inducing import InducingRule
from nugget.gp.kernels import RBF
from nugget.gp.points import Points
from nugget.testing import _compare as ref


def check_inducing(rule: InducingRule, n_features: int = 4, seed: int = 0) -> None:
    """Raise ConformanceError unless the rule keeps its contract (`nugget.gp.inducing`)."""
    ref.plain_settings(rule, "inducing rule")
    rng = np.random.default_rng(seed)
    n = 60
    points = Points(
        rng.normal(size=(n, n_features)), np.arange(0, n + 1, 10), rng.integers(0, 2, size=n)
    )
    kernel, before = RBF(1.0), points.x.copy()
    chosen = rule.select(points, kernel, np.random.default_rng(seed))
    again = rule.select(points, kernel, np.random.default_rng(seed))
    ref.same(chosen, again, "The same random numbers choose the same points.")
    ref.same(points.x, before, "A rule does not change the points that it chooses from.")
    ref.require(chosen.ndim == 1 and chosen.size > 0, "A rule chooses at least one row.")
    ref.require(len(set(chosen.tolist())) == chosen.size, "No row is chosen twice.")
    ref.require(bool(((chosen >= 0) & (chosen < n)).all()), "Chosen rows exist.")
    existing = (points.x[chosen], points.group[chosen])
    more = rule.select(points, kernel, np.random.default_rng(seed), existing)
    ref.require(
        not set(more.tolist()) & set(chosen.tolist()), "Existing points are not chosen again."
    )
