"""A whole evaluation in one compiled call: pairs, features, kernel, uncertainty, and the way back.

For a single small structure every call from Python costs time, and two threads wait for each other
between calls. SOAP with the squared-exponential kernel and an uncertainty without a prior variance
goes this way; what is unusual (large structures, atoms on top of each other, unknown elements) goes
the way of all other potentials, step by step, with the same bits.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from nugget._compiled.arrays import Bools, Floats, Ints
from nugget._compiled.jit import njit
from nugget.descriptors._loops import backward, forward
from nugget.descriptors.soap import SOAP
from nugget.gp.kernels._fused import value_and_grad
from nugget.gp.kernels.rbf import RBFInducing
from nugget.gp.kernels.rows import no_columns
from nugget.potential.priors.species import SpeciesEnergies
from nugget.structures._loops import structure_sums
from nugget.structures._pair_loops import small_pairs
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs

if TYPE_CHECKING:
    from nugget.potential.potential import Fit, Potential

Values = tuple[Floats, Floats, Floats, Floats]  # energies, stds, gradients, derivatives by strain

_NO_INDEX, _NO_SHIFT = np.zeros(0, dtype=np.int64), np.zeros((0, 3))
_NO_PAIRS = (_NO_INDEX, _NO_INDEX, _NO_SHIFT, _NO_INDEX)


class Constants(NamedTuple):
    """What does not change from call to call, in the order of the arguments of `evaluate`."""

    with_std: tuple[Any, ...]
    without_std: tuple[Any, ...]
    species_only: bool  # the prior is one energy per element: it is in the constants too


@njit
def evaluate(
    positions: Floats, numbers: Ints, offsets: Ints, sizes: Ints, cells: Floats, pbc: Bools,
    i: Ints, j: Ints, shift: Floats, pair_offsets: Ints, alpha: Floats, coefficients: Floats,
    wt: Floats, rho: Floats, prior: Floats,
    known: Ints, groups: Ints, radial: Floats, centre: Floats, norm: Floats, cutoff: float,
    degrees: tuple[int, ...], radials: tuple[int, ...], n_channels: int, factor: Floats,
    blocks: Ints,
    labels: Ints, middle: Floats, scale: float, amplitude: float, ahead: Floats, half: Floats,
    panels: Ints, counts: Ints, place: Ints, back: Floats,
) -> tuple[bool, Floats, Floats, Floats, Floats]:  # fmt: skip
    """Energies, stds, gradients and derivatives by strain; the first says whether all was usual.

    Pairs are found here if there are no `pair_offsets`. `prior` has the energy of each element;
    then come SOAP's tables, and the `Pack` of the inducing points.
    """
    small, none = np.bool_(True), np.empty((0, 0, 0))
    if len(pair_offsets) == 0:
        i, j, shift, pair_offsets, small = small_pairs(positions, offsets, cells, pbc, cutoff)
    channels, unknown, c, close, values = forward(
        positions, numbers, known, i, j, shift, radial, centre, norm, cutoff, degrees, radials,
        n_channels, factor, blocks,
    )  # fmt: skip
    before = structure_sums(prior[numbers], offsets)
    if unknown >= 0 or close >= 0 or not small or np.isnan(before.sum()):
        return False, before, before, none, np.empty((0, 0, 0, 0))
    mean, std, by_features = value_and_grad(
        values, groups[numbers], offsets, sizes, alpha, coefficients, wt, rho, np.empty(0), labels,
        middle, scale, amplitude, ahead, half, panels, counts, place, back,
    )  # fmt: skip
    gradients, strains = backward(
        by_features, c, factor, positions, channels, offsets, pair_offsets, i, j, shift, radial,
        norm, cutoff, degrees, radials, blocks,
    )  # fmt: skip
    for s in range(len(mean)):
        mean[s] += before[s]
    return True, mean, std, gradients, strains


def constants(potential: Potential) -> Constants | None:
    """The constants of a fitted potential; None where there is no such way. Kept by the fit."""
    fit, descriptor = potential.fitted, potential.descriptor
    kept: tuple[object, Constants | None] | None = fit.__dict__.get("_whole")
    if kept is None or kept[0] is not descriptor:
        kept = descriptor, _constants(fit, descriptor)
        fit.__dict__["_whole"] = kept
    return kept[1]


def _constants(fit: Fit, descriptor: object) -> Constants | None:
    fitted, inducing = fit.uncertainty, fit.inducing
    if type(descriptor) is not SOAP or not isinstance(inducing, RBFInducing) or not len(inducing):
        return None
    if fitted.columns is None or fitted.uses_prior_variance:
        return None
    if inducing.z.shape[1] != descriptor.n_features:
        return None  # `Inducing` says what is wrong
    t, prior, only = descriptor._tables, np.zeros(119), isinstance(fit.prior, SpeciesEnergies)
    if isinstance(fit.prior, SpeciesEnergies):
        prior = fit.prior.table
    rest = (
        prior, t.index, t.index if t.groups is None else t.groups, t.radial, t.centre, t.norm,
        float(descriptor.cutoff), t.degrees, t.radials, t.n_channels, t.factor, t.blocks,
        *inducing.pack,
    )  # fmt: skip
    return Constants((*fitted.columns, *rest), (*no_columns(len(inducing)), *rest), only)


def whole_value_and_grad(
    constants: Constants, batch: Batch, alpha: Floats, coefficients: Floats, std: bool,
    pairs: Pairs | None,
) -> Values | None:  # fmt: skip
    """Energies, stds, gradients and derivatives by strain; None if anything was unusual."""
    usual, *found = evaluate(
        batch.positions, batch.numbers, batch.offsets, batch.sizes, batch.cells, batch.pbc,
        *(_NO_PAIRS if pairs is None else (pairs.i, pairs.j, pairs.shift, pairs.offsets)),
        alpha, coefficients, *(constants.with_std if std else constants.without_std),
    )  # fmt: skip
    return tuple(found) if usual else None
