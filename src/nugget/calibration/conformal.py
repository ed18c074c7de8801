"""Intervals with a guarantee that needs no Gaussian: conformal prediction.

The scores |error|/σ of structures that the model has not seen are ranked. If a new structure comes
from the same source, its score is as likely to take any of the n + 1 ranks, so an interval of q·σ
with q the ⌈(n+1)·level⌉-th smallest score holds its label with a probability of at least `level`,
whatever the distribution of errors, for any n (Vovk 2005). This is exact for scores of a
validation set that was not fitted (`nugget calibrate`). Scores of structures that were left out one
by one (the jackknife) come close to it in practice; what is proven for their relative, the
jackknife+, is 1 − 2(1 − level) (Barber 2021).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from nugget.errors import NuggetError


def conformal_factor(scores: ArrayLike, level: float) -> float:
    """The q for which ±q·σ holds a share `level` of new labels; inf when there are too few scores.

    With n scores the highest level that can be promised is n/(n + 1).
    """
    if not 0.0 < level < 1.0:
        raise NuggetError(f"The level of an interval is {level}; give a share between 0 and 1.")
    ranked = np.sort(np.asarray(scores, float))
    rank = math.ceil((len(ranked) + 1) * level - 1e-9)
    return float(ranked[rank - 1]) if rank <= len(ranked) else math.inf


def interval_factor(calibration: Mapping[str, Any] | None, kind: str, level: float) -> float:
    """`conformal_factor` from the scores that a model keeps; `kind` is energy, force or stress."""
    scores: Sequence[float] = ((calibration or {}).get("scores") or {}).get(kind, ())
    if not scores:
        raise NuggetError(
            f"This model keeps no scores for intervals of the {kind}; fit it anew with the "
            "uncertainty Posterior, or calibrate it on a validation set."
        )
    q = conformal_factor(scores, level)
    if math.isinf(q):
        raise NuggetError(
            f"{len(scores)} scores cannot promise an interval of {level:.0%}; the most is "
            f"{len(scores) / (len(scores) + 1):.0%}. Ask for less, or calibrate on more structures."
        )
    return q


def promise(calibration: Mapping[str, Any] | None) -> str:
    """Where the scores come from, in a few words."""
    held_out = str((calibration or {}).get("method", "")).startswith("left out")
    return "structures left out one by one" if held_out else "a validation set"
