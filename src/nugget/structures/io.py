"""Structures from files and into files, whatever the format, without waiting and without loss."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Mapping, Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import ase.io
import numpy as np
from ase import Atoms
from ase.calculators.calculator import all_properties
from ase.calculators.singlepoint import SinglePointCalculator
from ase.data import chemical_symbols
from ase.db import connect
from ase.io.formats import UnknownFileTypeError
from ase.stress import full_3x3_to_voigt_6_stress

from nugget.errors import NuggetError
from nugget.storage.database import verified
from nugget.storage.files import replacing
from nugget.structures.chemiscope import is_chemiscope, write_chemiscope
from nugget.structures.labels import ENERGY_NOISE, FORCE_NOISE, WEIGHT

# Labels under the names that training sets of other programs use: of a structure, and of its atoms.
REFERENCE = {"energy": "REF_energy", "forces": "REF_forces", "stress": "REF_stress"}

# Total charge (e) and spin multiplicity 2S + 1 of a structure.
CHARGE, SPIN = "total_charge", "total_spin"

# What ASE does not know as a result, and drops when it writes: of a structure, and of its atoms.
PER_STRUCTURE = ("energy_uncertainty", "outside")

PER_ATOM = ("energies_uncertainty", "forces_uncertainty", "outside_atoms")


_OPEN: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
_XYZ = (".xyz", ".extxyz")
_DATABASES = (".db", ".json")


def read_images(path: str | Path, index: str | int | slice = ":") -> list[Atoms]:
    """The structures of a file, as a list; `index` picks some, as in "0:225" or "-1".

    Compressed files are unpacked first: reading them in place, as ASE does, seeks to and fro and
    takes minutes for a few thousand structures. Uncertainties that `write_images` put into an
    ASE database come back in `info` and `arrays`.
    """
    path = Path(path)
    if not path.is_file():
        what = "is a directory" if path.is_dir() else "does not exist"
        raise NuggetError(f"The data file {path} {what}; give a file that ASE can read.")
    wanted = as_slice(index)
    try:
        found = _read(path, wanted)
    except NuggetError:
        raise
    except (IndexError, StopIteration) as error:
        raise NuggetError(f"{path} has no structure with index {index}.") from error
    except Exception as error:  # ASE's readers raise whatever their parsing stumbles on
        reason = str(error).strip().splitlines()
        why = f" ({reason[0]})" if reason else ""
        raise NuggetError(
            f"{path} could not be read as structures{why}; give extxyz or another format of ASE."
        ) from error
    images = [found] if isinstance(found, Atoms) else list(found)
    if not images:
        raise NuggetError(f"{path} holds no structures at index {index}.")
    for k, atoms in enumerate(images):
        if not np.isin(atoms.numbers, range(len(chemical_symbols))).all():
            raise NuggetError(f"{path}: structure {k} holds atomic numbers that no element has.")
    try:
        return [_with_references(_with_stored_uncertainties(atoms)) for atoms in images]
    except (TypeError, ValueError, AttributeError) as error:
        raise NuggetError(f"{path}: stored uncertainties are not numbers ({error}).") from error


def _read(path: Path, index: int | slice) -> Any:
    unpack = _OPEN.get(path.suffix)
    if path.suffix in _DATABASES:
        return _read_database(path, index)
    if unpack is None:
        if path.suffix in _XYZ:
            return _read_xyz(path, path.read_text(), index)
        return ase.io.read(path, index)
    try:
        with unpack(path) as file:
            content: bytes = file.read()
    except (EOFError, OSError, zlib.error, lzma.LZMAError) as error:
        raise NuggetError(f"{path} is not a complete {path.suffix} file; copy it again.") from error
    inner = path.with_suffix("")
    if inner.suffix in _XYZ:
        return _read_xyz(path, content.decode(), index)
    with tempfile.TemporaryDirectory() as folder:
        unpacked = Path(folder) / inner.name
        unpacked.write_bytes(content)
        return ase.io.read(unpacked, index)


def _read_xyz(path: Path, text: str, index: int | slice) -> Any:
    """Structures of an extxyz file, after a check that its frames are complete."""
    stream, longest = io.StringIO(text), text.count("\n") + 1
    for s in count():
        head = stream.readline().split()
        if len(head) != 1 or not head[0].isdecimal():
            break  # the end, or lines that ASE explains
        atoms = int(head[0])
        lines = sum(1 for _ in islice(stream, min(atoms, longest) + 1)) - 1
        if lines < atoms:
            raise NuggetError(
                f"{path}: structure {s} claims {head[0][:20]} atoms, but the file has only "
                f"{max(lines, 0)} more lines; copy it again."
            )
    return ase.io.read(io.StringIO(text), index, format="extxyz")


def _read_database(path: Path, index: int | slice) -> Any:
    """ASE's own reader of databases leaves keys and data behind."""
    with connect(path) as database:
        rows = list(database.select())
    for row in rows:
        verified(row, path)
    return [row.toatoms(add_additional_information=True) for row in rows][index]


def as_slice(index: str | int | slice) -> int | slice:
    """The place or range of structures that text such as "0:225" or "-1" denotes."""
    if not isinstance(index, str):
        return index
    try:
        numbers = [int(part) if part.strip() else None for part in index.split(":")]
        if len(numbers) == 1 and numbers[0] is not None:
            return numbers[0]
        if 2 <= len(numbers) <= 3 and numbers[2:] != [0]:
            return slice(*numbers)
    except ValueError:
        pass
    raise NuggetError(f"The index {index!r} is not a slice; write it as '0:100', '::10' or '-1'.")


def _with_stored_uncertainties(atoms: Atoms) -> Atoms:
    """Bring back what `write_images` hid where the format has room for it."""
    pairs = atoms.info.get("key_value_pairs", {})
    data = {**atoms.info.get("data", {}), **atoms.info}
    for name in PER_STRUCTURE:
        if name in pairs:
            atoms.info[name] = float(pairs[name])
    for name in PER_ATOM:
        if name in data:
            atoms.arrays[name] = np.asarray(data[name], dtype=np.float64)
            atoms.info.pop(name, None)
    return atoms


def _with_references(atoms: Atoms) -> Atoms:
    """Take REF_energy, REF_forces and REF_stress as labels of a structure without any."""
    results = {} if atoms.calc is None else atoms.calc.results
    if "energy" in results or REFERENCE["energy"] not in atoms.info:
        return atoms
    home = {**atoms.info, **atoms.arrays}
    labels = {name: home[key] for name, key in REFERENCE.items() if key in home}
    if "stress" in labels:
        labels["stress"] = _voigt(0, labels["stress"])
    atoms.calc = SinglePointCalculator(atoms, **{**results, **labels})
    return atoms


def with_reference_keys(
    images: Sequence[Atoms], charge: int | None = None, spin: int | None = None
) -> list[Atoms]:
    """Copies whose labels are REF_energy, REF_forces and REF_stress, as MACE and others read them.

    `charge` and the multiplicity `spin` are added where structures do not name their own.
    """
    out = []
    for atoms in images:
        results, copy = _present_results(atoms), atoms.copy()
        for name, key in REFERENCE.items():
            if name in results:
                home = copy.arrays if name == "forces" else copy.info
                home[key] = np.array(results[name]) if name != "energy" else float(results[name])
        for key, value in ((CHARGE, charge), (SPIN, spin)):
            if value is not None:
                copy.info.setdefault(key, value)
        out.append(copy)
    return out


def relabelled(
    images: Sequence[Atoms],
    energy_key: str | None = None,
    forces_key: str | None = None,
    stress_key: str | None = None,
    virial_key: str | None = None,
) -> list[Atoms]:
    """Copies whose labels are `info[energy_key]`, `arrays[forces_key]` and `info[stress_key]`.

    Labels for which no key is given stay as the file has them. A stress has six components in
    Voigt's order, or nine, in eV/Å³. A virial W (eV) becomes the stress −W/V. Some structures may
    lack stress or virial.
    """
    if stress_key and virial_key:
        raise NuggetError("Give the stress or the virial, not both.")
    tensor = stress_key or virial_key
    if tensor and not any(tensor in atoms.info for atoms in images):
        raise _no_label(0, images[0].info, "info", tensor, "stress" if stress_key else "virial")
    out = []
    for s, atoms in enumerate(images):
        results = {n: v for n, v in _present_results(atoms).items() if n in all_properties}
        for name, key, home, place in (
            ("energy", energy_key, atoms.info, "info"),
            ("forces", forces_key, atoms.arrays, "arrays"),
        ):
            if key is None:
                continue
            if key not in home:
                raise _no_label(s, home, place, key, name)
            results[name] = home[key]
        if tensor:
            results.pop("stress", None)
            if tensor in atoms.info:
                value = _voigt(s, atoms.info[tensor])
                results["stress"] = value if stress_key else _stress_of(s, atoms, value)
        copy = atoms.copy()
        copy.calc = SinglePointCalculator(copy, **results)
        out.append(copy)
    return out


def _no_label(s: int, home: Any, place: str, key: str, name: str) -> NuggetError:
    there = sorted(k for k in home if k not in ("numbers", "positions"))
    return NuggetError(f"Structure {s} has no {key!r} for its {name}; its {place} holds {there}.")


def _stress_of(s: int, atoms: Atoms, virial: Any) -> Any:
    """−W/V in eV/Å³ of a virial in eV."""
    if atoms.cell.rank < 3:
        raise NuggetError(f"Structure {s} has a virial but no cell volume: set its cell.")
    return -virial / atoms.get_volume()


def with_noise(
    images: Sequence[Atoms],
    group_key: str,
    levels: Mapping[str, tuple[float, float | None]],
    weight_key: str | None = None,
) -> list[Atoms]:
    """Copies with noise levels of their own by `info[group_key]`, and weights `info[weight_key]`.

    `levels` holds the noise of energies (eV/atom) and of forces (eV/Å, None: as elsewhere) of each
    group. A group without structures is an error.
    """
    groups = {str(atoms.info.get(group_key, "")) for atoms in images}
    for name in levels:
        if name not in groups:
            there = ", ".join(sorted(groups - {""})) or "none"
            raise NuggetError(f"No structure has {group_key}={name}; there is {there}.")
    if weight_key and not any(weight_key in atoms.info for atoms in images):
        raise _no_label(0, images[0].info, "info", weight_key, "weight")
    out = []
    for atoms in images:
        copy = atoms.copy()
        copy.calc = atoms.calc
        energy, force = levels.get(str(atoms.info.get(group_key, "")), (None, None))
        for key, value in ((ENERGY_NOISE, energy), (FORCE_NOISE, force)):
            if value is not None:
                copy.info[key] = value
        if weight_key and weight_key in atoms.info:
            copy.info[WEIGHT] = atoms.info[weight_key]
        out.append(copy)
    return out


def _voigt(s: int, stress: Any) -> Any:
    value = np.asarray(stress, float)
    if value.size == 9:
        return full_3x3_to_voigt_6_stress(value.reshape(3, 3))
    if value.shape != (6,):
        raise NuggetError(f"Structure {s}: a stress has 6 or 9 components, not {value.size}.")
    return value


def attach_uncertainties(atoms: Atoms) -> Atoms:
    """Copy the uncertainties of the last calculation to `info` and `arrays`; return `atoms`.

    ASE writes only results that it knows, but all of `info` and `arrays`. Nothing is computed: if
    the atoms moved since the last calculation, there is nothing to attach, and what an earlier
    call attached is removed.
    """
    return _attach(atoms, atoms.calc, _present_results(atoms))


def _present_results(atoms: Atoms) -> dict[str, Any]:
    """Results of the calculator that belong to the atoms as they are now."""
    if atoms.calc is None or atoms.calc.check_state(atoms):
        return {}
    return dict(atoms.calc.results)


def _attach(atoms: Atoms, calculator: Any, results: dict[str, Any]) -> Atoms:
    if hasattr(calculator, "uncertainties"):  # one of ours: what stands there may be out of date
        for name in PER_STRUCTURE:
            atoms.info.pop(name, None)
        for name in PER_ATOM:
            atoms.arrays.pop(name, None)
    atoms.info.update({name: float(results[name]) for name in PER_STRUCTURE if name in results})
    atoms.arrays.update({name: np.array(results[name]) for name in PER_ATOM if name in results})
    return atoms


def write_images(path: str | Path, images: Sequence[Atoms] | Atoms, append: bool = False) -> None:
    """Write structures with their results and uncertainties: extxyz, ase.db or traj.

    A name that ends with .chemiscope.json becomes a data set of chemiscope. Other formats of ASE
    are written as ASE writes them, without uncertainties. In an ASE database
    σ of the energy is the key `energy_uncertainty` (so `ase db x.db 'energy_uncertainty>0.5'`
    works), and the per-atom arrays are in the row's `data`.
    """
    path = Path(path)
    images = [images] if isinstance(images, Atoms) else list(images)
    ready = [_frozen(atoms) for atoms in images]
    try:
        if append:
            _write(path, ready, append)
        else:
            with replacing(path) as partial:
                _write(partial, ready, append)
    except (OSError, sqlite3.Error, UnknownFileTypeError) as error:
        raise NuggetError(f"{path} could not be written ({error}); choose another name.") from error


def _write(path: Path, images: list[Atoms], append: bool) -> None:
    if is_chemiscope(path):
        write_chemiscope(path, images)
        return
    if path.suffix in _DATABASES:
        _write_database(path, images)
        return
    if path.suffix == ".traj":  # it keeps `info`, but no arrays that ASE does not know
        for atoms in images:
            atoms.info.update({n: atoms.arrays[n] for n in PER_ATOM if n in atoms.arrays})
    ase.io.write(path, images, append=append)


def _frozen(atoms: Atoms) -> Atoms:
    """A copy with the calculator's present results, and without the calculator."""
    copy = atoms.copy()
    results = _present_results(atoms)
    if results:
        copy.calc = SinglePointCalculator(
            copy, **{name: value for name, value in results.items() if name in all_properties}
        )
    return _attach(copy, atoms.calc, results)


def _write_database(path: Path, images: list[Atoms]) -> None:
    with connect(path) as database:
        for atoms in images:
            pairs = {name: float(atoms.info[name]) for name in PER_STRUCTURE if name in atoms.info}
            data = {name: atoms.arrays[name] for name in PER_ATOM if name in atoms.arrays}
            database.write(atoms, key_value_pairs=pairs, data=data)
