"""Covalent radii, and how far bonds reach in units of the sum of two radii."""

from __future__ import annotations

import numpy as np
from ase.data import chemical_symbols, covalent_radii

from nugget._compiled.arrays import Floats, Ints
from nugget.errors import NuggetError

#: Å, by atomic number.
RADII: Floats = np.asarray(covalent_radii, dtype=np.float64)

#: Bond graphs: atoms closer than this are bonded. 3.54 Å for gold: between the longest bond of the
#: relaxed Au20 tetrahedron (3.28 Å with GFN1-xTB) and its second neighbours (4.07 Å and more).
BONDED = 1.3

#: Connectivity of candidates: atoms up to this far apart belong to one piece. Slightly longer than
#: BONDED, because candidates are not relaxed yet and an atom a little too far out falls back.
CONNECTED = 1.35


def radii_of(numbers: Ints) -> Floats:
    """Covalent radii (Å) of these atoms; an error when one is not an element."""
    if (numbers < 1).any():
        odd = chemical_symbols[int(numbers.min())]
        raise NuggetError(f"element {odd} has no covalent radius; bonds cannot be found.")
    return RADII[numbers]
