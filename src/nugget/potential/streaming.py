"""Large fits in bounded memory: descriptors and label rows of some structures at a time."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count, pairwise
from typing import TYPE_CHECKING

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError
from nugget.gp.labels import Labels
from nugget.gp.points import Points
from nugget.gp.streaming import fit_streamed
from nugget.gp.uncertainty import LabelNoise, Posterior
from nugget.potential.design import label_rows
from nugget.potential.evaluate import environment_points
from nugget.potential.training import Training

if TYPE_CHECKING:
    from nugget.potential.potential import Fit, Potential

_ROWS = 2048  # labels of a piece
_PER_POINT = 10  # environments that are looked at for each inducing point


def fit_in_pieces(
    potential: Potential,
    training: Training,
    progress: Callable[[int, int], None] | None,
    threads: int | None,
) -> Fit:
    """`Potential.fit` without ever holding all features or all label rows.

    Inducing points are chosen among a sample of the environments: every so many structures.
    """
    from nugget.potential.potential import Fit

    _refuse(potential)
    phase = getattr(progress, "phase", lambda name: None)
    prior = potential.prior.fit(training.batch, training.energy)
    phase("inducing points")
    points = _sample(potential, training)
    chosen = potential.inducing.select(points, potential.kernel, potential.rng)
    inducing = potential.kernel.inducing(points.x[chosen], points.group[chosen])
    phase("kernel rows and linear algebra")
    done = count(1)

    def tell(_: int, __: int) -> None:
        if progress is not None:
            progress(next(done), len(training.batch))

    def piece(start: int, stop: int) -> Callable[[], Labels]:
        def make() -> Labels:
            some = training.part(start, stop)
            env = potential.descriptor.compute(some.batch)
            noise = (potential.noise, potential.force_noise)
            return label_rows(some, env, inducing, prior, *noise, tell)

        return make

    ends = _ends(training)
    pieces = [piece(a, b) for a, b in pairwise(ends)]
    regression = fit_streamed(inducing.gram, pieces, threads)
    phase("uncertainty")
    fitted = potential.uncertainty.fit(regression, potential.rng, _no_rows, potential.noise)
    return Fit(prior, inducing, regression, fitted, training)


def _refuse(potential: Potential) -> None:
    kind = potential.uncertainty
    if isinstance(kind, Posterior) or (isinstance(kind, LabelNoise) and kind.members is None):
        return
    raise NuggetError(
        f"A streamed fit drops its label rows, which {type(kind).__name__} needs: use Posterior() "
        "or LabelNoise(members=None), or fit without stream."
    )


def _no_rows() -> Floats:
    raise NuggetError("A streamed fit has no rows of single environments; fit without stream.")


def _sample(potential: Potential, training: Training) -> Points:
    """Features of every so many structures, enough for the choice of inducing points."""
    rule = potential.inducing
    most = getattr(rule, "n_points", None) or getattr(rule, "max_points", None) or 2000
    step = max(len(training.batch.positions) // (_PER_POINT * int(most)), 1)
    batch = training.batch.select(np.arange(0, len(training.batch), step))
    return environment_points(potential.descriptor.compute(batch))


def _ends(training: Training) -> list[int]:
    """Where pieces of equal size begin and end, with _ROWS labels or less."""
    rows: Ints = np.cumsum(
        1 + 3 * training.batch.sizes * training.has_forces + 6 * training.has_stress
    )
    pieces = 2 * -(-int(rows[-1]) // (2 * _ROWS))  # an even number, for two cores
    size, ends, start = -(-int(rows[-1]) // pieces), [0], 0
    while ends[-1] < len(rows):
        end = max(int(np.searchsorted(rows, start + size, side="right")), ends[-1] + 1)
        ends.append(end)
        start = int(rows[end - 1])
    return ends
