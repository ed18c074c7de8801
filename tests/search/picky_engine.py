"""An engine that does not converge for compact clusters, which have the lowest energies."""

from ase.calculators.calculator import all_changes
from ase.calculators.emt import EMT

#: Largest number of bonds below 3.2 Å for which it converges; the octahedron of Au6 has 12.
MOST_BONDS = 10


class Picky(EMT):
    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        distances = atoms.get_all_distances()
        if (distances[distances > 0] < 3.2).sum() // 2 > MOST_BONDS:
            raise RuntimeError("SCF not converged in 250 cycles")
        super().calculate(atoms, properties or ["energy"], system_changes)


def picky() -> EMT:
    return Picky()
