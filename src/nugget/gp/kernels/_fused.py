"""Forward, uncertainty and backward in one pass over a batch (Numba, one thread)."""

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import njit, part_end
from nugget.gp._std_loops import std_and_weights
from nugget.gp.kernels import _reference
from nugget.gp.kernels._loops import kernel_rows
from nugget.gp.kernels._tiles import kernel_rows_vjp

# Elements of k that are made together, and columns of W from which a GEMM over all structures
# gains more than the cache does.
_AT_A_TIME, _WIDE = 2**15, 40


@njit(reference=_reference.value_and_grad)
def value_and_grad(
    x: Floats,
    centre: Floats,
    scale: float,
    zt: Floats,
    hz: Floats,
    amplitude: float,
    offsets: Ints,
    sizes: Ints,
    alpha: Floats,
    coefficients: Floats,
    wt: Floats,
    rho: Floats,
    prior_variance: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Means, stds and gradients (R, n, f): `kernel_rows`, `std_and_weights`, `kernel_rows_vjp`.

    One structure after the other (some, if they are small): k is still in the cache in the backward
    pass, and never has more rows than that.
    """
    n = len(offsets) - 1
    mean, std = np.empty(n), np.empty(n)
    gradients = np.empty((len(coefficients), x.shape[0], x.shape[1]))
    rows = x.shape[0] if len(wt) > _WIDE else _AT_A_TIME // zt.shape[1]
    s = np.int64(0)  # a literal would make Numba compile the calls below twice
    while s < n:
        end = part_end(offsets, s, rows)
        a, b = offsets[s], offsets[end]
        within = offsets[s : end + 1] - a
        xs, k, k_sum = kernel_rows(x[a:b], centre, scale, zt, hz, amplitude, within)
        some_mean, some_std, weights = std_and_weights(
            k_sum, sizes[s:end], alpha, coefficients, wt, rho, prior_variance[s:end]
        )
        for t in range(s, end):
            mean[t], std[t] = some_mean[t - s], some_std[t - s]
        kernel_rows_vjp(k, weights, within, zt, xs, scale, gradients, a)
        s = end
    return mean, std, gradients
