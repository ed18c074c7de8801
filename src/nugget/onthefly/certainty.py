"""How uncertain are the forces? Cheaply where they are certain, exactly where they are not.

The standard deviations of all force components need one backward pass per inducing point. A few
surfaces drawn from the posterior need as many passes as there are surfaces, and tell its part of
σ to 1/√(2K) (18 % for 16). Where that estimate, with a margin, is below what is allowed, it is
enough. Nor is it needed at every step: see `Vigil`.

The posterior of a sparse model knows only what its inducing points can express: far from all of
them it is certain of nothing happening. So what they leave open of an atom's prior variance,
r = θ₀ − k_m K_mm⁻¹ k_mᵀ, counts as an energy that may change within 1 Å: σ² grows by r/Å².
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from nugget._compiled.arrays import Bools, Floats
from nugget.gp.linalg import solve
from nugget.gp.uncertainty.posterior import WeightPosterior
from nugget.potential.evaluate import Evaluation
from nugget.structures.batch import Batch

PROBES = 16
# Within what distance may an energy change of which nothing is known, Å.
_WITHIN = 1.0
# σ of a force grows by less than this for every Å that an atom moves, eV/Å² (measured: 0.4), and it
# is looked at anew after so many Å in any case.
_GROWTH, _FURTHEST = 1.0, 0.1
# On the estimate of the posterior's part: two standard deviations of that estimate.
_MARGIN = 1.35


class Vigil:
    """When must σ of the forces be looked at again? Not before an atom has moved far enough.

    A step of dynamics moves atoms by some hundredths of an Å. Where σ is far below what is allowed,
    so small a step cannot lift it above that.
    """

    def __init__(self) -> None:
        self._seen: Batch | None = None
        self._learned, self._reach = 0, 0.0

    def forget(self) -> None:
        """Look at the next structure, whatever it is."""
        self._seen = None

    def looked(self, batch: Batch, learned: int, std: float, limit: float) -> None:
        """σ of a model that has learned so many structures was `std` here; `limit` is allowed."""
        self._learned = learned
        self._seen = replace(batch, positions=batch.positions.copy())
        self._reach = min((limit - std) / _GROWTH, _FURTHEST)

    def rests(self, batch: Batch, learned: int) -> bool:
        """Whether atoms, cell and model are still what they were, or nearly."""
        old = self._seen
        if (
            old is None
            or learned != self._learned
            or not np.array_equal(old.numbers, batch.numbers)
        ):
            return False
        if not np.array_equal(old.pbc, batch.pbc):
            return False
        moved = batch.positions - old.positions
        furthest = np.sqrt(np.einsum("ij,ij->i", moved, moved).max())
        return float(max(furthest, np.abs(batch.cells - old.cells).max())) < self._reach


def force_std(found: Evaluation, limit: float, free: Bools | None = None) -> Floats:
    """σ of each force component (N, 3): exact if one of the free ones may exceed the limit."""
    fitted, unknown = found.potential.fitted.uncertainty, _unknown(found)
    if isinstance(fitted, WeightPosterior):
        drawn, rest = _estimated(found, fitted)
        rest = rest + unknown
        if largest(np.sqrt(_MARGIN**2 * drawn + rest), free) <= limit:
            return np.asarray(np.sqrt(drawn + rest))
    return exact_force_std(found)


def exact_force_std(found: Evaluation) -> Floats:
    """σ of each force component (N, 3)."""
    return np.asarray(np.sqrt(found.forces_std() ** 2 + _unknown(found)))


def _unknown(found: Evaluation) -> Floats:
    """What inducing points cannot express, as the square of a force, (N, 1)."""
    return np.asarray(found.potential.kernel.amplitude / _WITHIN**2 * novelty(found)[:, None])


def novelty(found: Evaluation) -> Floats:
    """Share of each atom's prior variance that the inducing points leave open, (N,)."""
    potential, rows = found.potential, found.rows
    assert rows is not None
    known = solve(potential.fitted.regression.upper, np.asarray(rows.k).T, transposed=True)
    share = 1.0 - np.einsum("mi,mi->i", known, known) / potential.kernel.amplitude
    return np.asarray(np.clip(share, 0.0, 1.0))


def largest(std: Floats, free: Bools | None = None) -> float:
    """The largest σ of a component that may move."""
    return float(np.max(std if free is None else std[free], initial=0.0))


def _estimated(found: Evaluation, fitted: WeightPosterior) -> tuple[Floats, Floats]:
    """σ² in two parts: factor²·g², averaged over surfaces that are drawn; floor² + prior²·g_s²."""
    s, rows = fitted.settings, found.rows
    assert rows is not None
    draws = np.random.default_rng(PROBES).standard_normal((fitted.w.shape[1], PROBES))
    weights = np.vstack([(fitted.w @ draws).T, fitted.shift])  # (K + 1, m)
    cotangents = rows.vjp(np.repeat(weights[:, None], len(found.batch), axis=1))
    slopes = found.env.pullback(cotangents) ** 2  # (K + 1, N, 3)
    square = fitted.scale**2
    drawn: Floats = square * s.force**2 * slopes[:-1].mean(axis=0)
    return drawn, square * (s.force_floor**2 + s.prior**2 * slopes[-1])
