"""Fingerprint: numbers that stay the same when a structure is turned, moved or renumbered.

It changes continuously with the positions, so "the same" is a matter of a tolerance. It does not
tell mirror images apart (their energies are equal too).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols

from nugget._compiled.arrays import Floats
from nugget.errors import NuggetError
from nugget.identity.graph import directed_pairs

Pair = tuple[int, int]

#: Distances up to here, in Å, make the fingerprint of a periodic structure.
PERIODIC_CUTOFF = 6.0


@dataclass(frozen=True, eq=False)
class DistanceFingerprint:
    """Sorted distances for each pair of species; all of them, or those below a cutoff."""

    formula: str
    cutoff: float  # infinite for clusters
    blocks: Mapping[Pair, Floats]

    @classmethod
    def of(cls, atoms: Atoms, cutoff: float | None = None) -> "DistanceFingerprint":
        """Cutoff: none for clusters, PERIODIC_CUTOFF for periodic structures, unless given."""
        reach = (PERIODIC_CUTOFF if atoms.pbc.any() else np.inf) if cutoff is None else cutoff
        if atoms.pbc.any() and not np.isfinite(reach):
            raise NuggetError("a periodic structure needs a finite cutoff for its fingerprint.")
        i, j, d = directed_pairs(atoms, reach)
        zi, zj = atoms.numbers[i], atoms.numbers[j]
        code = np.minimum(zi, zj) * len(chemical_symbols) + np.maximum(zi, zj)
        order = np.lexsort((d, code))
        d, code = d[order], code[order]
        pairs, starts = np.unique(code, return_index=True)
        blocks = {
            divmod(int(pair), len(chemical_symbols)): block
            for pair, block in zip(pairs, np.split(d, starts)[1:], strict=True)
        }
        return cls(str(atoms.symbols.formula.format("hill")), float(reach), blocks)

    def probe(self, n_atoms: int) -> Floats:
        """Sixteen of the sorted distances: none of them differs by more than `difference` does.

        Merging the blocks before sorting can only bring two lists closer. A quick first test.
        """
        merged = np.sort(np.concatenate([*self.blocks.values(), np.zeros(0)]))
        finite = np.isfinite(self.cutoff)
        reach = 12 * n_atoms if finite else max(n_atoms * (n_atoms - 1), 1)
        spots = np.linspace(0, reach - 1, 16).astype(np.int64)
        fill = self.cutoff if finite else 0.0
        return np.r_[merged, np.full(max(reach - len(merged), 0), fill)][spots]

    def difference(self, other: "DistanceFingerprint") -> float:
        """Largest difference of two sorted distances, in Å; infinite for other compositions.

        Of a periodic structure a distance may leave through the cutoff: the shorter list is filled
        with the cutoff, which keeps the difference continuous.
        """
        if self.formula != other.formula or self.cutoff != other.cutoff:
            return float("inf")
        largest = 0.0
        empty = np.zeros(0)
        for pair in {*self.blocks, *other.blocks}:
            a, b = self.blocks.get(pair, empty), other.blocks.get(pair, empty)
            short, long = sorted((a, b), key=len)
            if len(short) < len(long):
                short = np.r_[short, np.full(len(long) - len(short), self.cutoff)]
            largest = max(largest, float(np.max(np.abs(short - long), initial=0.0)))
        return largest
