"""What tests ask of fitted uncertainties, in one call each."""

import numpy as np

STD = np.array([[0.0, 1.0]])


def std_weights(fitted, k_sum, sizes, own=None):
    """σ (B,) and b (B, m) with ∇σ = b·∇k_sum (+ w·∇k_ss, w third, if there are prior variances)."""
    none = np.zeros(k_sum.shape[1])
    _, std, weights = fitted.std_and_weights(k_sum, sizes, none, STD, own)
    if own is None:
        return std, weights[0]
    return std, weights[0], fitted.prior_variance_slope(std)


def unit_variances(committee, k_sum, sizes):
    """(B, 3): the variances that σ_l, σ_lf and σ_p of 1 would cause, each alone."""
    return np.einsum("baa->ba", committee.unit_gram(k_sum, sizes))
