"""Triangular factors that grow by rows and columns."""

import numpy as np
from scipy.linalg import lapack

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.gp.linalg import LADDER, solve


def border(s: Floats, b: Floats, new: Floats) -> Floats | None:
    """S with the rows and columns of further labels, or None where only a new QR is accurate."""
    p, k = len(b), len(new)
    side = solve(s, b @ new.T, transposed=True)
    corner, info = lapack.dpotrf(np.eye(k) + new @ new.T - side.T @ side, lower=0, clean=1)
    # The corner is at least I; round-off of what is subtracted must stay far below that.
    if info or np.finfo(float).eps * float(np.sum(side * side)) > 1e-8:
        return None
    out = np.zeros((p + k, p + k), order="F")
    out[:p, :p], out[:p, p:], out[p:, p:] = s, side, corner
    return out


def grow_cholesky(
    upper: Floats, k_new: Floats, jitter: float, amplitude: float
) -> tuple[Floats, float]:
    """U with further columns; the new diagonal gets the old jitter, or more where it needs more."""
    m, k = upper.shape[0], k_new.shape[1]
    u12 = solve(upper, k_new[:m], transposed=True)
    rest = k_new[m:] - u12.T @ u12
    for relative in LADDER:
        trial_jitter = max(jitter, relative * amplitude)
        trial = np.array(0.5 * (rest + rest.T), order="F")
        trial.flat[:: k + 1] += trial_jitter
        u22, info = lapack.dpotrf(trial, lower=0, clean=1)
        floor = max(1e-13 * amplitude, 0.5 * trial_jitter)
        if info == 0 and np.min(np.diagonal(u22)) ** 2 >= floor:
            out = np.empty((m + k, m + k), order="F")
            out[:m, :m], out[:m, m:], out[m:, m:] = upper, u12, u22
            out[m:, :m] = 0.0
            return out, trial_jitter
    raise NuggetError("The new inducing points make the kernel matrix indefinite; refit instead.")
