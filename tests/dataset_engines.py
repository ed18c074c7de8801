"""An engine that fails on some structures, for the tests of `nugget.dataset`."""

from ase.calculators.calculator import all_changes
from ase.calculators.emt import EMT


class Moody(EMT):
    """EMT that refuses structures whose first coordinate has an even second decimal."""

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        if int(abs(atoms.positions[0, 0]) * 100) % 2 == 0:
            raise RuntimeError("not in the mood")
        super().calculate(atoms, properties, system_changes)


def moody():
    return Moody()
