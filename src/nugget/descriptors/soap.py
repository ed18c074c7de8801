"""The SOAP descriptor (smooth overlap of atomic positions).

Values follow DScribe's definition to 1e-12. Gradients are computed by the adjoint method, without a
Jacobian. The compiled loops are in `soap_loops`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from ase import Atoms

from nugget.descriptors import radial, soap_loops
from nugget.descriptors.base import (
    EnvironmentsBase,
    Jacobian,
    ordered_species,
    refuse_element,
    species_index,
)
from nugget.descriptors.soap_loops import TOO_CLOSE
from nugget.errors import NuggetError
from nugget.numerics.arrays import Floats, Ints
from nugget.numerics.simd import aligned
from nugget.registry import registered
from nugget.structures.batch import Batch, as_batch
from nugget.structures.neighbours import Pairs, find_pairs

COMPRESSIONS = ("off", "mu1nu1", "mu2")

# Knots of the radial tables per Å at sigma = 1: the interpolation error stays below 1e-11.
_KNOTS = 25


@registered("descriptor")
@dataclass(frozen=True)
class SOAP:
    """Power spectrum of the atomic density around each atom.

    Parameters
    ----------
    species : chemical symbols that may occur; order does not matter (features are ordered by
        atomic number, as in DScribe).
    cutoff : radius of an environment in Å; the density goes smoothly to zero there.
    n_max, l_max : number of radial functions and highest angular momentum. (3, 2) is fast,
        (8, 6) resolves far more detail.
    sigma : width in Å of the Gaussian that represents an atom.
    compression : "off" has features for all pairs of elements. "mu1nu1" has products of each
        element's density with the total density, so that the number of features grows linearly
        with the number of elements. "mu2" uses the total density alone. All as in DScribe.
    """

    species: tuple[str, ...]
    cutoff: float = 6.0
    n_max: int = 3
    l_max: int = 2
    sigma: float = 1.0
    compression: str = "off"

    def __post_init__(self) -> None:
        object.__setattr__(self, "species", ordered_species(self.species, "SOAP"))
        if self.compression not in COMPRESSIONS:
            raise NuggetError(
                f"SOAP compression={self.compression!r}: choose among {list(COMPRESSIONS)}."
            )
        _in_range("cutoff", self.cutoff, 1 < self.cutoff <= 50, "number above 1.0 to 50.0 Å")
        _in_range("sigma", self.sigma, 0.05 <= self.sigma <= 10, "number from 0.05 to 10.0 Å")
        for name, low in (("n_max", 1), ("l_max", 0)):
            value = getattr(self, name)
            fits = low <= value <= 20 and int(value) == value
            _in_range(name, value, fits, f"whole number from {low} to 20")
        _ = self._tables  # raises here, not at first use, if the radial basis is singular

    @property
    def n_features(self) -> int:
        """Length f of a feature vector."""
        return int(self._tables.feature.max()) + 1

    @cached_property
    def _tables(self) -> _Tables:
        return _make_tables(self)

    def compute(
        self,
        images: Sequence[Atoms] | Atoms | Batch,
        pairs: Pairs | None = None,
        *,
        strict: bool = True,
    ) -> Environments:
        """Features of every atom of every structure; `pairs` may come from a Verlet list.

        Coincident atoms are an error, unless `strict` is False: then such pairs are ignored, and
        `Environments.coincident` names the structures that have them.
        """
        batch = as_batch(images)
        if pairs is None:
            pairs = find_pairs(batch, self.cutoff)
        t = self._tables
        channels, unknown, c, close, values = soap_loops.forward(
            batch.positions, batch.numbers, t.index, pairs.i, pairs.j, pairs.shift, t.radial,
            t.centre, t.norm, float(self.cutoff), t.degrees, t.radials, t.n_channels, t.factor,
            t.blocks,
        )  # fmt: skip
        if unknown >= 0:
            refuse_element(batch, unknown, self.species)
        if close >= 0 and strict:
            _refuse_coincident(batch, pairs, close)
        species = channels if t.groups is None else t.groups[batch.numbers]
        return Environments(self, batch, pairs, species, values, c, channels, close >= 0)


@dataclass(frozen=True, eq=False)
class Environments(EnvironmentsBase):
    """Features of all atoms of a batch, and their backward pass to positions."""

    descriptor: SOAP
    batch: Batch
    pairs: Pairs
    species: Ints  # (n_env,) index of the central species
    values: Floats  # (n_env, f)
    coefficients: Floats = field(repr=False)  # layout: see soap_loops
    channels: Ints = field(repr=False)  # (n_env,) density that each atom belongs to
    has_coincident: bool = False

    @property
    def coincident(self) -> Ints:
        """Structures with coincident atoms."""
        p = self.pairs
        if not self.has_coincident:
            return np.zeros(0, dtype=np.int64)
        structures: Ints = soap_loops.coincident(self.batch.positions, p.offsets, p.i, p.j, p.shift)
        return structures

    def _pull(self, stacked: Floats) -> tuple[Floats, Floats]:
        t, batch, p = self.descriptor._tables, self.batch, self.pairs
        gradients: tuple[Floats, Floats] = soap_loops.backward(
            stacked, self.coefficients, t.factor, batch.positions, self.channels, batch.offsets,
            p.offsets, p.i, p.j, p.shift, t.radial, t.norm, float(self.descriptor.cutoff),
            t.degrees, t.radials, t.blocks,
        )  # fmt: skip
        return gradients

    def select(self, structures: Ints) -> Environments:
        """The environments of these structures alone."""
        atoms = self.batch.atoms_of(structures)
        return Environments(
            self.descriptor, self.batch.select(structures),
            self.pairs.select(self.batch, structures), self.species[atoms], self.values[atoms],
            self.coefficients[atoms], self.channels[atoms],
        )  # fmt: skip

    def jacobian(self) -> Jacobian:
        """∂x_centre/∂d of every directed pair. Large; used to fit forces, not to predict."""
        soap, t, p = self.descriptor, self.descriptor._tables, self.pairs
        pairs = soap_loops.jacobian(
            self.coefficients, self.batch.positions, self.channels, p.i, p.j, p.shift, t.radial,
            t.norm, t.feature, t.factor, float(soap.cutoff), soap.n_max, self.values.shape[1],
        )  # fmt: skip
        return Jacobian(*pairs)


@dataclass(frozen=True, eq=False)
class _Tables:
    """Everything that the compiled loops need and that depends on the settings alone."""

    radial: Floats  # polynomials, see radial.table
    centre: Floats  # h_n0(0), the contribution of an atom to its own density
    norm: Floats  # normalisation of the harmonics, (lm,)
    factor: Floats  # π √(8/(2l+1)), (l,)
    degrees: tuple[int, ...]  # 0 … l_max
    radials: tuple[int, ...]  # 0 … n_max − 1
    feature: Ints  # (l, ν, ν') → index of the feature in DScribe's order, −1 if there is none
    index: Ints  # (119,) atomic number → channel, −1 if not described
    groups: Ints | None  # (119,) atomic number → species index, if that is not the channel
    n_channels: int
    blocks: Ints  # (·, 2) channels whose products are features


def _make_tables(soap: SOAP) -> _Tables:
    l_max, n_max = soap.l_max, soap.n_max
    intervals = math.ceil(_KNOTS * soap.cutoff / min(soap.sigma, 1.0))
    table, centre = radial.table(soap.cutoff, soap.sigma, n_max, l_max, intervals)
    several, index = len(soap.species), species_index(soap.species)
    blocks = {
        "off": [(a, b) for a in range(several) for b in range(a, several)],
        "mu1nu1": [(a, several) for a in range(several)],  # the last channel is the total
        "mu2": [(0, 0)],
    }[soap.compression]
    n_channels = 1 + max(b for _, b in blocks)
    feature = np.full((l_max + 1, *[n_channels * n_max] * 2), -1, dtype=np.int64)
    count = 0
    for a, b in blocks:
        for degree in range(l_max + 1):
            for n in range(n_max):
                for k in range(n if a == b else 0, n_max):
                    feature[degree, a * n_max + n, b * n_max + k] = count
                    count += 1
    return _Tables(
        radial=aligned(table),
        centre=centre,
        norm=_harmonic_norms(l_max),
        factor=np.pi * np.sqrt(8.0 / (2 * np.arange(l_max + 1) + 1)),
        degrees=tuple(range(l_max + 1)),
        radials=tuple(range(n_max)),
        feature=feature,
        index=np.minimum(index, 0) if soap.compression == "mu2" else index,
        groups=index if soap.compression == "mu2" else None,
        n_channels=n_channels,
        blocks=np.array(blocks, dtype=np.int64),
    )


def _harmonic_norms(l_max: int) -> Floats:
    """√((2l+1)/4π · (l−m)!/(l+m)!), times √2 for m ≠ 0."""
    norm = np.empty((l_max + 1) ** 2)
    for degree in range(l_max + 1):
        for m in range(-degree, degree + 1):
            ratio = math.factorial(degree - abs(m)) / math.factorial(degree + abs(m))
            norm[degree * degree + degree + m] = math.sqrt(
                (2 * degree + 1) / (4 * math.pi) * ratio * (2 if m else 1)
            )
    return norm


def _in_range(name: str, value: float, fits: bool, allowed: str) -> None:
    if not fits:
        raise NuggetError(f"SOAP {name}={value!r} is out of range: give a {allowed}.")


def _refuse_coincident(batch: Batch, pairs: Pairs, p: int) -> None:
    i, j = int(pairs.i[p]), int(pairs.j[p])
    s = int(np.searchsorted(batch.offsets, i, side="right")) - 1
    start = batch.offsets[s]
    distance = np.linalg.norm(batch.positions[j] + pairs.shift[p] - batch.positions[i])
    raise NuggetError(
        f"Structure {batch.first + s}: atoms {i - start} and {j - start} are {distance:.3g} Å "
        f"apart (less than {TOO_CLOSE} Å); move them apart or remove the structure."
    )
