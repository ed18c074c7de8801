"""Engines that go wrong in every way, for the tests of `nugget.engines`.

`chosen` reads the fault from the structure's first tag, so that one process can meet them all.
"""

import ctypes
import hashlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from ase.calculators.emt import EMT
from ase.calculators.morse import MorsePotential
from ase.units import Bohr, Hartree

from nugget.engines.engine import make_calculator

FAULTS = (
    "none",
    "raises",
    "hangs",
    "nan energy",
    "infinite force",
    "scf",
    "says unconverged",
    "kill -9",
    "segfault",
    "exits",
    "sys.exit",
    "chatty",
    "reads stdin",
    "slow",
    "hangs with child",
    "nan later",
    "flat forces",
    "energy is text",
    "two energies",
    "bad stress",
    "false energy",
)


class Faulty(EMT):
    converged = True

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        fault = FAULTS[int(atoms.get_tags()[0])]
        super().calculate(atoms, properties or ["energy"], system_changes)
        getattr(self, "do_" + "".join(c if c.isalnum() else "_" for c in fault))()

    calls = 0

    def do_none(self):
        pass

    def do_raises(self):
        raise RuntimeError("the basis set\nis on holiday")

    def do_hangs(self):
        time.sleep(1000)

    def do_nan_energy(self):
        self.results["energy"] = np.nan

    def do_infinite_force(self):
        self.results["forces"][1, 2] = np.inf

    def do_scf(self):
        raise RuntimeError("SCF not converged in 250 cycles")

    def do_says_unconverged(self):
        self.converged = False

    def do_kill__9(self):
        os.kill(os.getpid(), signal.SIGKILL)

    def do_segfault(self):
        ctypes.string_at(0)

    def do_exits(self):
        os.write(2, b"ERROR STOP: out of disk\n")
        os._exit(3)

    def do_sys_exit(self):
        sys.exit("giving up")

    def do_chatty(self):
        print('{"atoms": "this is not a reply"}', flush=True)
        os.write(1, b"x\n" * 200_000)

    def do_reads_stdin(self):
        assert sys.stdin.read() == ""

    def do_slow(self):
        time.sleep(1.0)

    def do_hangs_with_child(self):
        child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
        Path(os.environ["NUGGET_TEST_CHILD"]).write_text(str(child.pid))
        time.sleep(1000)

    def do_nan_later(self):
        self.calls += 1
        if self.calls == 3:
            self.results["energy"] = np.nan

    def do_flat_forces(self):
        self.results["forces"] = self.results["forces"].ravel()

    def do_energy_is_text(self):
        self.results["energy"] = "-3.1 eV"

    def do_two_energies(self):
        self.results["energy"] = np.array([1.0, 2.0])

    def do_false_energy(self):
        self.results["energy"] -= 1e4

    def do_bad_stress(self):
        self.results["stress"] = np.zeros(5)


def chosen(**options):
    return Faulty(**options)


class Remembers(Calculator):
    """Its energy counts its own calculations."""

    implemented_properties = ("energy", "forces")
    count = 0

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        self.count += 1
        self.results = {"energy": float(self.count), "forces": np.zeros((len(atoms), 3))}


def remembers():
    return Remembers()


class Threads(Calculator):
    """Its energy is the number of threads that a library would take."""

    implemented_properties = ("energy", "forces")

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        threads = float(os.environ["OMP_NUM_THREADS"])
        self.results = {"energy": threads, "forces": np.zeros((len(atoms), 3))}


def threads():
    return Threads()


def dies_once(marker):
    """Dies unless the marker file exists, which it makes."""
    path = Path(marker)
    if not path.exists():
        path.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    return EMT()


def broken():
    raise FileNotFoundError("no pseudopotential for Au")


class InTurn(Faulty):
    """Good and bad calculations by turns; a file counts them, since processes come and go."""

    order = ("none", "none", "raises", "none", "hangs", "none", "nan energy", "none", "kill -9")

    def __init__(self, counter: str) -> None:
        super().__init__()
        self.counter = Path(counter)

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        with open(self.counter, "ab", buffering=0) as file:
            file.write(b"x")
            count = file.tell() - 1  # appending is atomic: processes side by side never share one
        tagged = atoms.copy()
        tagged.set_tags([FAULTS.index(self.order[count % len(self.order)])] * len(atoms))
        super().calculate(tagged, properties, system_changes)


def in_turn(counter: str) -> Calculator:
    return InTurn(counter)


class Liar(InTurn):
    """Wrong in every way, and sometimes with a false energy: once, or twice in a row."""

    order = ("none", "none", "none", "raises", "none", "false energy", "none", "flat forces",
             "none", "false energy", "false energy", "none", "nan energy", "none", "kill -9",
             "none", "hangs")  # fmt: skip


def liar(counter: str) -> Calculator:
    return Liar(counter)


class Dawdler(EMT):
    """Takes up to `delay` seconds, some structures longer than others."""

    def __init__(self, delay: float) -> None:
        super().__init__()
        self.delay = delay

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        time.sleep(self.delay * (0.2 + 0.8 * (1e3 * np.abs(atoms.positions).sum() % 1.0)))
        super().calculate(atoms, properties or ["energy"], system_changes)


def dawdler(delay: float) -> Calculator:
    return Dawdler(delay)


class Raising(Faulty):
    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        raise RuntimeError("never works")


def raising() -> Calculator:
    return Raising()


class Stale(EMT):
    """False from the second structure of a process on."""

    done = 0

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        super().calculate(atoms, properties or ["energy"], system_changes)
        Stale.done += 1
        if Stale.done > 1:
            self.results["energy"] = -1e4


def stale() -> Calculator:
    return Stale()


def structure_hash(atoms: Atoms) -> str:
    """Elements and positions, with all bits."""
    return hashlib.sha256(atoms.numbers.tobytes() + atoms.positions.tobytes()).hexdigest()


class Lying(Calculator):
    """Another engine whose energies are false by `shift` at some of its calls.

    A file counts the calls for more than one atom, since processes come and go. Another one, with
    the ending `.true`, lists all structures and their true energies.
    """

    implemented_properties = ("energy", "forces")

    def __init__(self, inner: Calculator, counter: str, at: list[int], shift: float) -> None:
        super().__init__()
        self.inner, self.counter, self.at, self.shift = inner, Path(counter), at, shift

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        super().calculate(atoms, properties, system_changes)
        bare = self.atoms.copy()
        bare.set_constraint()
        bare.calc = self.inner
        self.results = {"energy": bare.get_potential_energy(), "forces": bare.get_forces()}
        if len(bare) > 1:
            with open(self.counter, "ab", buffering=0) as file:
                file.write(b"x")
                count = file.tell()
            with open(f"{self.counter}.true", "a") as true:
                true.write(f"{structure_hash(bare)} {float(self.results['energy'])!r}\n")
            if count in self.at:
                self.results["energy"] += self.shift


def lying(counter: str, at: list[int], shift: float, inner: str = "emt") -> Calculator:
    if inner == "morse":
        engine: Calculator = MorsePotential(epsilon=1.0, r0=2.8, rho0=14.0, rcut1=50.0, rcut2=60.0)
    else:
        engine = make_calculator(inner)
    return Lying(engine, counter, at, shift)


class WrongForces(EMT):
    """Forces of EMT that are wrong in one of several ways; `moved` changes the positions."""

    def __init__(self, how: str) -> None:
        super().__init__()
        self.how = how

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        super().calculate(atoms, properties or ["energy"], system_changes)
        forces = self.results["forces"]
        if self.how == "hartree":
            forces = forces / (Hartree / Bohr)
        elif self.how == "sign":
            forces = -forces
        elif self.how == "permuted":
            forces = np.roll(forces, 1, axis=0)
        elif self.how == "moved":
            atoms.positions[0] += 0.3
        elif self.how == "shifted":
            atoms.positions += 1.0
        self.results["forces"] = forces


def wrong_forces(how: str) -> Calculator:
    return WrongForces(how)


class Shifted(EMT):
    """EMT whose energies are lower by the number in a file, as after another version."""

    def __init__(self, file: str) -> None:
        super().__init__()
        self.file = Path(file)

    def calculate(self, atoms=None, properties=None, system_changes=all_changes):
        super().calculate(atoms, properties or ["energy"], system_changes)
        self.results["energy"] -= float(self.file.read_text())


def shifted(file: str) -> Calculator:
    return Shifted(file)
