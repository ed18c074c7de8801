"""Kernel rows, σ and gradients in one pass over a batch (Numba, one thread)."""

import numpy as np
from numpy.typing import NDArray

from nugget._compiled.jit import njit, part_end
from nugget.gp._std_loops import sigma_roads
from nugget.gp.kernels import _reference
from nugget.gp.kernels._loops import forward_rows
from nugget.gp.kernels._tiles import pullback_rows

# Elements of k that are made together, and columns of W from which a GEMM over all structures
# gains more than the cache does.
_AT_A_TIME, _WIDE = 2**15, 40


@njit(reference=_reference.value_and_grad)
def there_and_back(
    x: NDArray[np.float64],
    centre: NDArray[np.float64],
    scale: float,
    zt: NDArray[np.float64],
    hz: NDArray[np.float64],
    amplitude: float,
    offsets: NDArray[np.int64],
    sizes: NDArray[np.float64] | NDArray[np.int64],
    alpha: NDArray[np.float64],
    mixes: NDArray[np.float64],
    wt: NDArray[np.float64],
    rho: NDArray[np.float64],
    own: NDArray[np.float64],
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    """κα, σ and gradients (R, n, f): `forward_rows`, `sigma_roads` and `pullback_rows`.

    One structure after the other (some, if they are small): k is still in the cache on the way
    back, and never has more rows than that.
    """
    n = len(offsets) - 1
    mean, sigma = np.empty(n), np.empty(n)
    gradients = np.empty((len(mixes), x.shape[0], x.shape[1]))
    rows = x.shape[0] if len(wt) > _WIDE else _AT_A_TIME // zt.shape[1]
    s = np.int64(0)  # a literal would make Numba compile the calls below twice
    while s < n:
        end = part_end(offsets, s, rows)
        a, b = offsets[s], offsets[end]
        within = offsets[s : end + 1] - a
        xs, k, kappa = forward_rows(x[a:b], centre, scale, zt, hz, amplitude, within)
        some_mean, some_sigma, weights = sigma_roads(
            kappa, sizes[s:end], alpha, mixes, wt, rho, own[s:end]
        )
        for t in range(s, end):
            mean[t], sigma[t] = some_mean[t - s], some_sigma[t - s]
        pullback_rows(k, weights, within, zt, xs, scale, gradients, a)
        s = end
    return mean, sigma, gradients
