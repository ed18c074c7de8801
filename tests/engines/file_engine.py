"""A code as people have them: a program that reads in.xyz and writes out.xyz where it stands."""

import sys
from pathlib import Path

from ase.calculators.calculator import FileIOCalculator
from ase.io import read, write

PROGRAM = """
import sys, time
from ase.calculators.emt import EMT
from ase.io import read, write
time.sleep({delay})  # others may write in.xyz meanwhile
atoms = read("in.xyz")
atoms.calc = EMT()
atoms.get_forces()
write("out.xyz", atoms, format="extxyz")
sys.exit(3 if len(atoms) == 7 else 0)
"""


class FileEMT(FileIOCalculator):
    """EMT behind files."""

    name = "fileemt"
    implemented_properties = ("energy", "forces")

    def write_input(self, atoms, properties=None, system_changes=None):
        super().write_input(atoms, properties, system_changes)
        write(Path(self.directory, "in.xyz"), atoms, format="extxyz", write_results=False)

    def read_results(self):
        atoms = read(Path(self.directory, "out.xyz"))
        self.results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}


def file_emt(program):
    return FileEMT(command=f"{sys.executable} {program}")


class Careless(FileEMT):
    """Ignores ASE's directory: everything goes to the current one."""

    def write_input(self, atoms, properties=None, system_changes=None):
        write("in.xyz", atoms, format="extxyz", write_results=False)

    def read_results(self):
        self.directory = "."
        super().read_results()


def careless(program):
    return Careless(command=f"{sys.executable} {program}", directory=".")
