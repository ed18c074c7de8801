"""A regression whose label rows are made, used and dropped, piece by piece: bounded memory.

Two triangles grow side by side, on two cores if there are, and are merged in the end. Which piece
goes where depends on the pieces alone, so the number of threads does not change the result. Rows of
energies and stress are kept (there are few), those of forces are not: the regression predicts and
has exact uncertainties, and makes its rows again when it is to learn on.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from nugget._compiled.arrays import Floats
from nugget._compiled.threads import each
from nugget.errors import NuggetError
from nugget.gp.labels import FORCE, Labels
from nugget.gp.linalg import cholesky, merged_qr, update_qr
from nugget.gp.regression import SparseRegression, whiten

_LANES = 2


def fit_streamed(
    k_mm: Floats, pieces: Sequence[Callable[[], Labels]], threads: int | None = None
) -> SparseRegression:
    """The regression of all label rows; each of `pieces` makes its rows when it is called."""
    upper, jitter = cholesky(np.asarray(k_mm, float))
    m = len(upper)
    bare: list[Labels] = [None] * len(pieces)  # type: ignore[list-item]
    kept: list[Floats] = [np.empty((0, m))] * len(pieces)

    def grow(lane: int) -> tuple[Floats, Floats]:
        r, z = np.eye(m) if lane == 0 else np.zeros((m, m)), np.zeros((m, 1))
        for k in range(lane, len(pieces), _LANES):
            labels = pieces[k]()
            rows = whiten(labels, upper)
            r, z = update_qr(r, z, rows, (labels.y / labels.noise)[:, None])
            kept[k] = rows[labels.kind != FORCE]
            empty = np.empty((len(labels), 0))
            bare[k] = Labels(empty, labels.y, labels.noise, labels.count, labels.kind)
        return r, z

    (r, z), (lower, rest) = each(grow, range(_LANES), threads)
    r, z = merged_qr(r, z, lower, rest)
    every = Labels.concatenate(bare)
    if len(every) < m:
        raise NuggetError(f"{len(every)} labels are too few to stream for {m} inducing points.")
    return SparseRegression(
        upper=upper,
        y=every.y,
        noise=every.noise,
        count=every.count,
        kind=every.kind,
        amplitude=float(np.max(np.diagonal(k_mm), initial=0.0)),
        jitter=jitter,
        _store=None,
        _qr=(r, z[:, 0]),
        _kept=np.concatenate(kept),
    )
