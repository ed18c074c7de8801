"""One compiled call for a whole evaluation: pairs, features, kernel, uncertainty and gradients.

For one small structure every call from Python costs time, and two threads wait for each other
between calls. SOAP with the squared-exponential kernel and an uncertainty without a prior variance
is therefore evaluated in a single call. Anything unusual (large structures, coincident atoms,
unknown elements) is evaluated step by step like all other potentials, with the same bits.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from nugget.descriptors.base import Descriptor
from nugget.descriptors.soap import SOAP
from nugget.descriptors.soap_loops import backward, forward
from nugget.gp.kernels import Inducing
from nugget.gp.kernels.base import no_columns
from nugget.gp.kernels.rbf import RBFInducing
from nugget.gp.kernels.rbf_loops import Pack, fused_value_and_grad
from nugget.gp.uncertainty import FittedUncertainty
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.numerics.jit import entry_point, njit
from nugget.potential.mean_functions.base import MeanFunction, SpeciesEnergies
from nugget.structures.batch import Batch
from nugget.structures.neighbour_loops import small_pairs, structure_sums
from nugget.structures.neighbours import Pairs

Values = tuple[Floats, Floats, Floats, Floats]  # energies, stds, gradients, derivatives by strain


class Structures(NamedTuple):
    """The arrays of a `Batch`."""

    positions: Floats
    numbers: Ints
    offsets: Ints
    sizes: Ints
    cells: Floats
    pbc: Bools


class PairList(NamedTuple):
    """The arrays of `Pairs`; with empty offsets the pairs are computed in the compiled call."""

    i: Ints
    j: Ints
    shift: Floats
    offsets: Ints


class SoapTables(NamedTuple):
    """The tables of a SOAP descriptor."""

    channel: Ints  # of each atomic number
    groups: Ints  # central species of each atomic number
    radial: Floats
    centre: Floats
    norm: Floats
    cutoff: float
    degrees: tuple[int, ...]
    radials: tuple[int, ...]
    n_channels: int
    factor: Floats
    blocks: Ints


class Weights(NamedTuple):
    """The linear functions of the kernel sums that are evaluated."""

    alpha: Floats  # (m,)
    coefficients: Floats  # (R, 2)
    wt: Floats  # Wᵀ (q, m) of the uncertainty
    rho: Floats  # (q,)
    variance: Floats  # (B,) added to that of the uncertainty, or empty


_NO_INDEX = np.zeros(0, dtype=np.int64)

_NOTHING = np.empty(0)

# For the types of the arrays of a batch.
_ONE_ATOM = Batch(
    np.zeros((1, 3)),
    np.ones(1, np.int64),
    np.array([0, 1]),
    np.zeros((1, 3, 3)),
    np.zeros((1, 3), bool),
)

_NO_PAIRS = PairList(_NO_INDEX, _NO_INDEX, np.zeros((0, 3)), _NO_INDEX)


@njit
def whole_evaluation(
    structures: Structures,
    pairs: PairList,
    weights: Weights,
    species_energies: Floats,
    soap: SoapTables,
    pack: Pack,
) -> tuple[bool, Floats, Floats, Floats, Floats]:
    """Energies, stds, gradients and derivatives by strain, preceded by a success flag.

    The flag is False where the step-by-step evaluation must take over.
    """
    positions, numbers, offsets = structures.positions, structures.numbers, structures.offsets
    i, j, shift, pair_offsets = pairs.i, pairs.j, pairs.shift, pairs.offsets
    small, none = np.bool_(True), np.empty((0, 0, 0))
    if len(pair_offsets) == 0:
        i, j, shift, pair_offsets, small = small_pairs(
            positions, offsets, structures.cells, structures.pbc, soap.cutoff
        )
    channels, unknown, c, close, values = forward(
        positions, numbers, soap.channel, i, j, shift, soap.radial, soap.centre, soap.norm,
        soap.cutoff, soap.degrees, soap.radials, soap.n_channels, soap.factor, soap.blocks,
    )  # fmt: skip
    mean_energies = structure_sums(species_energies[numbers], offsets)
    if unknown >= 0 or close >= 0 or not small or np.isnan(mean_energies.sum()):
        return False, mean_energies, mean_energies, none, np.empty((0, 0, 0, 0))
    energy, std, by_features = fused_value_and_grad(
        values, soap.groups[numbers], offsets, structures.sizes, weights.alpha,
        weights.coefficients, weights.wt, weights.rho, weights.variance, 1.0, pack.labels,
        pack.centre, pack.scale, pack.amplitude, pack.forward, pack.half, pack.panels, pack.counts,
        pack.place, pack.backward,
    )  # fmt: skip
    gradients, strains = backward(
        by_features, c, soap.factor, positions, channels, offsets, pair_offsets, i, j, shift,
        soap.radial, soap.norm, soap.cutoff, soap.degrees, soap.radials, soap.blocks,
    )  # fmt: skip
    for s in range(len(energy)):
        energy[s] += mean_energies[s]
    return True, energy, std, gradients, strains


class Compiled(NamedTuple):
    """`whole_evaluation` and its constants for one fitted potential."""

    call: Callable[..., Any]  # the entry point of `whole_evaluation`

    species_energies: Floats  # (119,); zeros where the mean function is evaluated separately
    only_species: bool  # whether the mean function consists of species energies alone
    soap: SoapTables
    pack: Pack
    columns: tuple[Floats, Floats]  # (Wᵀ, ρ)
    no_columns: tuple[Floats, Floats]

    def evaluate(
        self, batch: Batch, alpha: Floats, coefficients: Floats, std: bool, pairs: Pairs | None,
        variance: Floats | None = None,
    ) -> Values | None:  # fmt: skip
        """Energies, stds, gradients and derivatives by strain; None for an unusual structure.

        `variance` (B,) is added to that of the uncertainty.
        """
        done, *values = self.call(
            _structures(batch),
            _NO_PAIRS if pairs is None else PairList(pairs.i, pairs.j, pairs.shift, pairs.offsets),
            Weights(
                np.ascontiguousarray(alpha),
                np.ascontiguousarray(coefficients),
                *(self.columns if std else self.no_columns),
                _NOTHING if variance is None else variance,
            ),
            self.species_energies,
            self.soap,
            self.pack,
        )
        return tuple(values) if done else None


def _structures(batch: Batch) -> Structures:
    return Structures(
        np.ascontiguousarray(batch.positions), batch.numbers, batch.offsets, batch.sizes,
        np.ascontiguousarray(batch.cells), batch.pbc,
    )  # fmt: skip


def compile_for(
    descriptor: Descriptor,
    inducing: Inducing,
    uncertainty: FittedUncertainty,
    mean_function: MeanFunction,
) -> Compiled | None:
    """The constants of the compiled call; None for parts that it does not cover."""
    if type(descriptor) is not SOAP or not isinstance(inducing, RBFInducing) or not len(inducing):
        return None
    if uncertainty.columns is None or uncertainty.uses_prior_variance:
        return None
    if inducing.z.shape[1] != descriptor.n_features:
        return None  # `Inducing` raises the error
    t = descriptor._tables
    soap = SoapTables(
        t.index, t.index if t.groups is None else t.groups, t.radial, t.centre, t.norm,
        float(descriptor.cutoff), t.degrees, t.radials, t.n_channels, t.factor, t.blocks,
    )  # fmt: skip
    only_species = isinstance(mean_function, SpeciesEnergies)
    table = mean_function.table if isinstance(mean_function, SpeciesEnergies) else np.zeros(119)
    pack, columns = inducing.pack, uncertainty.columns
    weights = Weights(np.zeros(len(inducing)), np.zeros((1, 2)), *columns, _NOTHING)
    call = entry_point(
        whole_evaluation, _structures(_ONE_ATOM), _NO_PAIRS, weights, table, soap, pack
    )
    return Compiled(call, table, only_species, soap, pack, columns, no_columns(len(inducing)))
