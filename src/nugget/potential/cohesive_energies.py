"""Cohesive energies of the elements, the energy scale of bonds, in eV per atom.

Source: C. Kittel, Introduction to Solid State Physics, 8th edition (Wiley, 2005), chapter 3,
table 1; energies at 0 K and 1 atm with respect to neutral atoms. The table has no hydrogen, for
which half the dissociation energy of H2 (4.48 eV) is used.
"""

from __future__ import annotations

import numpy as np
from ase.data import atomic_numbers, chemical_symbols

from nugget.numerics.arrays import Floats

_KITTEL = """
Li 1.63 Be 3.32 B 5.81 C 7.37 N 4.92 O 2.60 F 0.84 Ne 0.020 Na 1.113 Mg 1.51 Al 3.39 Si 4.63 P 3.43
S 2.85 Cl 1.40 Ar 0.080 K 0.934 Ca 1.84 Sc 3.90 Ti 4.85 V 5.31 Cr 4.10 Mn 2.92 Fe 4.28 Co 4.39
Ni 4.44 Cu 3.49 Zn 1.35 Ga 2.81 Ge 3.85 As 2.96 Se 2.46 Br 1.22 Kr 0.116 Rb 0.852 Sr 1.72 Y 4.37
Zr 6.25 Nb 7.57 Mo 6.82 Tc 6.85 Ru 6.74 Rh 5.75 Pd 3.89 Ag 2.95 Cd 1.16 In 2.52 Sn 3.14 Sb 2.75
Te 2.19 I 1.11 Xe 0.16 Cs 0.804 Ba 1.90 La 4.47 Ce 4.32 Pr 3.70 Nd 3.40 Sm 2.14 Eu 1.86 Gd 4.14
Tb 4.05 Dy 3.04 Ho 3.14 Er 3.29 Tm 2.42 Yb 1.60 Lu 4.43 Hf 6.44 Ta 8.10 W 8.90 Re 8.03 Os 8.17
Ir 6.94 Pt 5.84 Au 3.81 Hg 0.67 Tl 1.88 Pb 2.03 Bi 2.18 Th 6.20 U 5.55 Np 4.73 Pu 3.60 Am 2.73
"""

# Elements that are not in the table have about the median of the table. No element counts with
# less than 1 eV, because the scale also applies to the repulsion of closed shells.
_MISSING, _LEAST = 3.0, 1.0


def _table() -> Floats:
    words = _KITTEL.split()
    table = np.full(len(chemical_symbols), _MISSING)
    table[atomic_numbers["H"]] = 2.24
    for symbol, energy in zip(words[::2], words[1::2], strict=True):
        table[atomic_numbers[symbol]] = float(energy)
    return np.maximum(table, _LEAST)


#: Energy scale of an atom's bonds by atomic number, eV.
BOND_ENERGY: Floats = _table()
