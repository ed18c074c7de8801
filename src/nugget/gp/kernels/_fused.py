"""Forward, uncertainty and backward in one pass over a batch of any species (Numba)."""

import numpy as np

from nugget._compiled.arrays import Floats, Ints
from nugget._compiled.jit import njit, part_end
from nugget.gp._std_loops import std_and_weights
from nugget.gp.kernels import _reference
from nugget.gp.kernels._tiles import by_group, kernel_tiles, rows_vjp, scale_rows, sum_rows

# Elements of k that are made together. Where W is larger than that (more columns than _MANY), more
# structures share each reading of W.
_AT_A_TIME, _WITH_LARGE_W, _MANY = 2**15, 2**17, 40


@njit(reference=_reference.value_and_grad)
def value_and_grad(
    x: Floats,
    group: Ints,
    offsets: Ints,
    sizes: Ints,
    alpha: Floats,
    coefficients: Floats,
    wt: Floats,
    rho: Floats,
    prior_variance: Floats,
    labels: Ints,
    centre: Floats,
    scale: float,
    amplitude: float,
    forward: Floats,
    half: Floats,
    panels: Ints,
    counts: Ints,
    place: Ints,
    backward: Floats,
) -> tuple[Floats, Floats, Floats]:
    """Means, stds and gradients (R, n, f): kernel rows, `std_and_weights`, and the way back.

    One structure after the other (some, if they are small): k is still in the cache in the backward
    pass, and never has more rows than that. The last ten arguments are a `Pack`.
    """
    n = len(offsets) - 1
    mean, std = np.empty(n), np.empty(n)
    gradients = np.empty((len(coefficients), x.shape[0], x.shape[1]))
    elements = _AT_A_TIME if len(wt) <= _MANY else _WITH_LARGE_W
    rows = elements * max(len(labels), 1) // (len(half) + 1)
    s = np.int64(0)  # a literal would make Numba compile the calls below twice
    while s < n:
        end = part_end(offsets, s, rows)
        order, starts = by_group(group, offsets[s], offsets[end], labels)
        xs, exponents, base = scale_rows(x, order, starts, centre, scale, amplitude)
        k = kernel_tiles(exponents, base, starts, forward, half, panels)
        k_sum, owner = sum_rows(k, order, starts, offsets, s, end, panels, counts, place)
        some_mean, some_std, weights = std_and_weights(
            k_sum, sizes[s:end], alpha, coefficients, wt, rho, prior_variance[s:end]
        )
        for t in range(s, end):
            mean[t], std[t] = some_mean[t - s], some_std[t - s]
        rows_vjp(
            k, xs, weights, owner, order, starts, panels, counts, place, backward, scale, gradients
        )
        s = end
    return mean, std, gradients
