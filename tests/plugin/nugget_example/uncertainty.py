"""How much of a structure's kernel sum the training set does not span."""

from dataclasses import dataclass, replace

import numpy as np

from nugget.errors import NuggetError


@dataclass(frozen=True)
class Distance:
    """std = level · √(|k_sum − its projection on the training rows|² + (share·N)²).

    A formula of its own, not a committee: the fit has no columns and writes std and weights itself.
    """

    level: float = 0.1
    share: float = 0.05

    def fit(self, regression, rng, environments, noise):
        # An orthonormal basis of what the training structures' whitened rows span.
        rows = regression.whitened
        _, s, vt = np.linalg.svd(rows, full_matrices=False)
        return Fitted(self, regression.upper, vt[s > 1e-3 * s[0]])

    def from_state(self, state):
        return Fitted(self, state["upper"], state["basis"], float(state["scale"]))


@dataclass(frozen=True)
class Fitted:
    settings: Distance
    upper: np.ndarray
    basis: np.ndarray
    scale: float = 1.0

    uses_prior_variance = False
    has_members = False
    level_names = ()
    columns = None

    def with_scale(self, scale):
        return replace(self, scale=float(scale))

    def calibrated_as(self, old):
        return self.with_scale(old.scale)

    def _outside(self, rows):
        """What of rows·U⁻¹ is not spanned (p, m), and the map back to rows."""
        w = np.linalg.solve(self.upper.T, rows.T).T
        return w - (w @ self.basis.T) @ self.basis

    def std(self, rows, sizes, prior_variance=None):
        out = self._outside(rows)
        floor = self.settings.share * np.asarray(sizes, float)
        level = self.scale * self.settings.level
        return level * np.sqrt(np.einsum("ij,ij->i", out, out) + floor**2)

    def std_and_weights(self, k_sum, sizes, alpha, coefficients, prior_variance=None):
        std = self.std(k_sum, sizes)
        level = self.scale * self.settings.level
        safe = np.where(std > 0, std, 1.0)[:, None]
        b = level**2 * np.linalg.solve(self.upper, self._outside(k_sum).T).T / safe
        weights = np.array([on_mean * alpha + on_std * b for on_mean, on_std in coefficients])
        return k_sum @ alpha, std, weights

    def prior_variance_slope(self, std):
        return np.zeros_like(std)

    def members(self, alpha, rng, n=None):
        raise NuggetError("Distance has no members; use LabelNoise.")

    def state(self):
        return {"upper": self.upper, "basis": self.basis, "scale": np.array(self.scale)}
