"""Expensive calculators by name: what there is, what is installed, how to get the rest.

An engine is a factory of ASE calculators. Besides the built-in names, `module:factory` names any
function that returns a calculator, and other packages may add names through the entry-point group
`nugget.engines` (each entry an `Engine`, or a factory).
"""

import difflib
import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from importlib.metadata import entry_points
from importlib.util import find_spec
from typing import Any

import numpy as np
from ase import Atoms
from ase.calculators.calculator import Calculator, all_changes
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones

from nugget.errors import NuggetError

DEFAULT = "gfn1-xtb"
ENTRY_POINTS = "nugget.engines"

Factory = Callable[..., Calculator]


@dataclass(frozen=True)
class Engine:
    """A named source of energies and forces."""

    name: str
    description: str
    factory: Factory
    module: str | None = None  # must be importable; None: nothing beyond what nugget needs
    how_to_install: str = ""

    def installed(self) -> bool:
        """Can it run here? Looks for the module without importing it."""
        if self.module is None:
            return True
        try:
            return find_spec(self.module) is not None
        except ModuleNotFoundError:  # the parent package of a dotted name is missing
            return False

    def calculator(self, **options: Any) -> Calculator:
        """A fresh ASE calculator; options go to the factory."""
        if not self.installed():
            raise NuggetError(
                f"engine {self.name!r} is not installed. To install it: {self.how_to_install}"
            )
        try:
            inspect.signature(self.factory).bind(**options)
        except TypeError as error:
            raise NuggetError(
                f"engine {self.name!r} does not take options {sorted(options)}: {error}."
            ) from error
        return self.factory(**options)


class ClusterLennardJones(LennardJones):
    """ASE's Lennard-Jones, refusing periodic structures when no cutoff was chosen."""

    unlimited = False

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        if self.unlimited and atoms is not None and atoms.pbc.any():
            raise NuggetError(
                "Lennard-Jones without cutoff cannot do periodic structures; give the option rc."
            )
        super().calculate(atoms, properties, system_changes)


def lennard_jones(
    sigma: float = 2.5, epsilon: float = 1.0, rc: float | None = None, **options: Any
) -> Calculator:
    """Lennard-Jones with every pair counted, unless a cutoff rc is given.

    Energies are in units of epsilon whatever sigma is: the published minima of clusters hold.
    sigma = 2.5 Å makes bonds of 2.81 Å, so that gold's covalent radii fit for generators and bond
    graphs. ASE lifts the potential by its value at rc: 4e-18 epsilon at 1000 sigma, so none.
    """
    reach = 1000.0 * sigma if rc is None else rc
    calculator = ClusterLennardJones(sigma=sigma, epsilon=epsilon, rc=reach, **options)
    calculator.unlimited = rc is None
    return calculator


def gfn1_xtb(
    method: str = "GFN1-xTB",
    electronic_temperature: float = 1500.0,
    verbosity: int = 0,
    **options: Any,
) -> Calculator:
    """tblite, silent. 1500 K of electronic temperature keep metal clusters converging.

    Set OMP_NUM_THREADS=1 before tblite is imported: two threads are many times slower than one.
    Evaluations in their own process (`nugget.evaluation.evaluator`) see to it.
    """
    tblite = import_module("tblite.ase")
    return tblite.TBLite(
        method=method,
        electronic_temperature=electronic_temperature,
        verbosity=verbosity,
        **options,
    )


class Boxed(Calculator):
    """Puts structures without a cell into a box with vacuum around, for codes that need one.

    The box is kept while the same atoms stay at least half the vacuum inside, so that the steps
    of a relaxation are comparable. Positions outside are never changed.
    """

    implemented_properties = ["energy", "forces"]  # noqa: RUF012 (as in ASE)

    def __init__(self, inner: Calculator, vacuum: float) -> None:
        super().__init__()
        self.inner = inner
        self.vacuum = vacuum
        self._box: Atoms | None = None
        self._shift = np.zeros(3)

    def calculate(
        self,
        atoms: Atoms | None = None,
        properties: list[str] | None = None,
        system_changes: list[str] = all_changes,
    ) -> None:
        super().calculate(atoms, properties, system_changes)
        assert self.atoms is not None
        boxed = self.atoms.copy()
        boxed.set_constraint()
        if boxed.cell.rank < 3:
            if boxed.pbc.any():
                raise NuggetError("a periodic structure needs its whole cell for this engine.")
            boxed = self._in_box(boxed)
        boxed.calc = self.inner
        self.results["energy"] = boxed.get_potential_energy()
        self.results["forces"] = boxed.get_forces()

    def _in_box(self, atoms: Atoms) -> Atoms:
        moved = atoms.copy()
        if self._box is not None and np.array_equal(self._box.numbers, atoms.numbers):
            moved.set_cell(self._box.cell)
            moved.positions += self._shift
            margin = np.minimum(moved.positions, moved.cell.lengths() - moved.positions).min()
            if margin >= self.vacuum / 2:
                return moved
            moved = atoms.copy()
        moved.center(vacuum=self.vacuum)
        self._box = moved.copy()
        self._shift = moved.positions[0] - atoms.positions[0]
        return moved


def gpaw(vacuum: float = 4.0, **options: Any) -> Calculator:
    """GPAW: PBE in a dzp basis of atomic orbitals, 0.25 Å grid, Fermi width 0.1 eV, silent."""
    settings: dict[str, Any] = {
        "mode": "lcao",
        "basis": "dzp",
        "xc": "PBE",
        "h": 0.25,
        "occupations": {"name": "fermi-dirac", "width": 0.1},
        "txt": None,
    }
    inner = import_module("gpaw").GPAW(**{**settings, **options})
    return Boxed(inner, vacuum)


_BUILT_IN = (
    Engine(
        "gfn1-xtb",
        "GFN1-xTB tight binding (tblite); good for metals, 0.1 to 0.5 s for 10 to 20 atoms",
        gfn1_xtb,
        "tblite",
        "pip install tblite",
    ),
    Engine("emt", "effective-medium theory (ASE); Al Cu Ag Au Ni Pd Pt, for tests", EMT),
    Engine("lj", "Lennard-Jones, no cutoff (ASE); its minima are published", lennard_jones),
    Engine(
        "gpaw",
        "density-functional theory, PBE (GPAW, LCAO dzp); about 20 s for Au20",
        gpaw,
        "gpaw",
        "apt-get install libxc-dev libopenblas-dev libfftw3-dev, then "
        "CC=g++ CXX=g++ pip install gpaw gpaw-data",
    ),
)


@cache
def engines() -> dict[str, Engine]:
    """All named engines: the built-in ones, then those of other packages."""
    found = {engine.name: engine for engine in _BUILT_IN}
    for entry in entry_points(group=ENTRY_POINTS):
        if entry.name in found:
            raise NuggetError(
                f"two engines are called {entry.name!r}, one from {entry.value}; remove one."
            )

        # Loaded on first use: listing names must not import somebody's DFT code.
        def factory(_entry: Any = entry, **options: Any) -> Calculator:
            loaded = _entry.load()
            if isinstance(loaded, Engine):
                return loaded.calculator(**options)
            return loaded(**options)

        found[entry.name] = Engine(entry.name, f"from {entry.value}", factory, entry.module)
    return found


def get_engine(name: str) -> Engine:
    """The engine of that name, or of `module:factory`; an error names the nearest alternative."""
    known = engines()
    if name in known:
        return known[name]
    module, colon, attribute = name.partition(":")
    if colon and module and attribute:

        def factory(**options: Any) -> Calculator:
            found = getattr(import_module(module), attribute, None)
            if not callable(found):
                raise NuggetError(f"module {module!r} has no function {attribute!r}.")
            return found(**options)

        return Engine(name, f"{attribute} of module {module}", factory, module, "see its authors")
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(sorted(known))}"
    raise NuggetError(f"there is no engine {name!r}; {hint} (or give module:factory).")


def make_calculator(engine: str, /, **options: Any) -> Calculator:
    """A fresh calculator of the named engine."""
    return get_engine(engine).calculator(**options)


@dataclass(frozen=True)
class EngineInfo:
    """One line of the table of engines."""

    name: str
    installed: bool
    default: bool
    description: str
    how_to_install: str


def describe_engines() -> list[EngineInfo]:
    """What `nugget engines` prints."""
    return [
        EngineInfo(e.name, e.installed(), e.name == DEFAULT, e.description, e.how_to_install)
        for e in engines().values()
    ]
