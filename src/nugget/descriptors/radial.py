"""Radial functions of SOAP: the overlap of Gaussian-type orbitals with a smoothly cut density."""

from __future__ import annotations

import numpy as np
from scipy.linalg import inv, sqrtm
from scipy.special import gamma

from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats


def basis(cutoff: float, n_max: int, l_max: int) -> tuple[Floats, Floats]:
    """Exponents α_nl and Löwdin coefficients β_l = S_l^{−1/2}.

    Shapes (l_max+1, n_max) and (l_max+1, n_max, n_max). Each primitive decays to 10⁻³ at r_n.
    """
    r_n = np.linspace(1.0, cutoff, n_max)
    alpha = np.empty((l_max + 1, n_max))
    beta = np.empty((l_max + 1, n_max, n_max))
    for degree in range(l_max + 1):
        alpha[degree] = -np.log(1e-3 / r_n**degree) / r_n**2
        power = -degree - 1.5
        overlap = 0.5 * gamma(-power) * np.add.outer(alpha[degree], alpha[degree]) ** power
        # S is nearly singular for large n_max. DScribe computes sqrtm(inv(S)) in this order, and
        # agreement with it includes its round-off.
        root = sqrtm(inv(overlap))
        if np.iscomplexobj(root) or not np.isfinite(root).all():
            raise NuggetError(
                f"n_max={n_max} radial functions within {cutoff} Å are linearly dependent: "
                "lower n_max or raise the cutoff."
            )
        beta[degree] = root
    return alpha, beta


def expansion(
    r: Floats, cutoff: float, sigma: float, alpha: Floats, beta: Floats
) -> tuple[Floats, Floats, Floats]:
    """h_nl(r) and its first two derivatives, each (len(r), l_max+1, n_max)."""
    a = 0.5 / sigma**2
    degrees = np.arange(len(alpha))[:, None]
    total = a + alpha  # (l, n')
    prefactor = (np.pi / total) ** 1.5 * (a / total) ** degrees
    decay = a * alpha / total
    r3 = r[:, None, None]
    gauss = prefactor * np.exp(-decay * r3**2)
    # Primitives and their derivatives by r, then the β of each l.
    slope = -2 * decay * r3
    primitive = np.einsum("pln,lkn->plk", gauss, beta)
    first = np.einsum("pln,lkn->plk", gauss * slope, beta)
    second = np.einsum("pln,lkn->plk", gauss * (slope**2 - 2 * decay), beta)
    w, dw, ddw = (v[:, None, None] for v in weight(r, cutoff))
    return (
        w * primitive,
        dw * primitive + w * first,
        ddw * primitive + 2 * dw * first + w * second,
    )


def weight(r: Floats, cutoff: float) -> tuple[Floats, Floats, Floats]:
    """w(r) = [1 + 2(r/r_c)³ − 3(r/r_c)²]², which falls from 1 to 0, and two derivatives."""
    x = r / cutoff
    u = 1 + 2 * x**3 - 3 * x**2
    du = 6 * (x**2 - x) / cutoff
    ddu = 6 * (2 * x - 1) / cutoff**2
    return u**2, 2 * u * du, 2 * (du**2 + u * ddu)


def table(
    cutoff: float, sigma: float, n_max: int, l_max: int, intervals: int
) -> tuple[Floats, Floats]:
    """Polynomials in u ∈ [0, 1] that interpolate h, h′ and h″ at equidistant knots (Hermite).

    Returns coefficients (intervals, 6, (l_max+1)·n), lowest power first, where n is n_max rounded
    up to a multiple of four (zeros fill it), and h_n0(0) of the bare centre. The interpolant is
    what the potential uses, so forces are its exact derivative.
    """
    alpha, beta = basis(cutoff, n_max, l_max)
    step = cutoff / intervals
    r = np.linspace(0.0, cutoff, intervals + 1)
    h, dh, ddh = expansion(r, cutoff, sigma, alpha, beta)
    centre = np.ascontiguousarray(h[0, 0])
    room = ((0, 0), (0, 0), (0, -n_max % 4))
    h, dh, ddh = (np.pad(v, room) for v in (h, dh, ddh))
    f, g, s = (v.reshape(intervals + 1, -1) for v in (h, dh * step, ddh * step**2))
    rise, g0, g1, s0, s1 = f[1:] - f[:-1], g[:-1], g[1:], s[:-1], s[1:]
    powers = [
        f[:-1],
        g0,
        0.5 * s0,
        10 * rise - 6 * g0 - 4 * g1 - 1.5 * s0 + 0.5 * s1,
        -15 * rise + 8 * g0 + 7 * g1 + 1.5 * s0 - s1,
        6 * rise - 3 * g0 - 3 * g1 - 0.5 * s0 + 0.5 * s1,
    ]
    return np.ascontiguousarray(np.stack(powers, axis=1)), centre
