"""The softest mode of a surface at a point: along it a saddle would fall off first."""

from __future__ import annotations

import numpy as np

from nugget._compiled.arrays import Floats
from nugget.relax.local_surrogate import Surrogate

_STEP = 0.02  # Å


def softest_mode(model: Surrogate, x: Floats) -> Floats:
    """Unit vector of the lowest eigenvalue of the Hessian.

    Motions that leave all distances as they are (a cluster's translations and rotations) are left
    out.
    """
    d = len(x)
    hessian = np.empty((d, d))
    for k in range(d):
        step = np.zeros(d)
        step[k] = _STEP
        hessian[k] = (model(x + step)[1] - model(x - step)[1]) / (2 * _STEP)
    r, unit = model.features.distances(x)
    jacobian = model.features.jacobian(unit, np.ones(len(r))).toarray()
    stretch, motions = np.linalg.eigh(jacobian.T @ jacobian)
    rigid = motions[:, stretch < 1e-6]
    modes = np.linalg.eigh(0.5 * (hessian + hessian.T) + 1e4 * rigid @ rigid.T)[1]
    return np.asarray(modes[:, 0])
