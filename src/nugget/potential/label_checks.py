"""Checks of a training set before a fit: labels that contradict each other, and foreign units.

Each check returns findings. A finding that `refuses` would spoil the fit; others are warnings.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np

from nugget.numerics.arrays import Floats, Ints
from nugget.potential.training import Training, structure_keys

# Energies (eV/atom) and force components (eV/Å) of equal structures may differ by this much.
_SAME_ENERGY, _SAME_FORCE = 1e-3, 0.02

# Sums of forces (eV/Å) that are named: larger than this, and than this share of all |F|. Converged
# DFT forces of the gold clusters of docs/evidence/accuracy.md sum to at most 0.08 eV/Å.
_NET, _NET_SHARE = 0.15, 0.05

# Units of energy in eV.
_UNITS = {"Hartree": 27.211386, "Rydberg": 13.605693, "kcal/mol": 0.0433641, "kJ/mol": 0.0103643}

# An energy in another unit deviates by more than this many times the typical deviation and this
# many eV/atom, and agrees in that unit within this share.
_FAR, _FAR_ENERGY, _AGREES = 20.0, 1.0, 0.05

# Energies are per atom if one energy per element explains them this much better than totals, in
# structures whose numbers of atoms differ by this factor.
_PER_ATOM, _SIZES = 0.2, 1.3

# Largest σV/N, in eV, of one structure and of the median structure. A stress that changes the
# energy of an atom by more per unit strain is a virial, or has another unit.
_LARGEST_STRESS, _MEDIAN_STRESS = 60.0, 12.0

# Structures that a sentence names.
_NAMED = 5


class Finding(Enum):
    """What is wrong with some labels."""

    DUPLICATES = "duplicates with different labels"
    NET_FORCE = "forces that do not sum to zero"
    ENERGY_UNIT = "energy in another unit"
    PER_ATOM = "energies per atom"
    STRESS_SIZE = "stress of an impossible size"
    FORCE_SCALE = "forces that contradict the energies"
    STRESS_SCALE = "stress that contradicts the energies"


@dataclass(frozen=True)
class LabelFinding:
    """Labels that are probably wrong, with one sentence about them."""

    kind: Finding
    structures: tuple[int, ...]
    sentence: str
    refuses: bool = False


def check_labels(training: Training) -> list[LabelFinding]:
    """All findings that need no model."""
    checks = (_per_atom, _energy_units, _stress_sizes, _duplicates, _net_forces)
    return [finding for check in checks for finding in check(training)]


def _per_atom(training: Training) -> Iterator[LabelFinding]:
    """Energies that do not grow with the number of atoms."""
    sizes, shares = training.batch.sizes, _shares(training)
    if sizes.max() < _SIZES * sizes.min():
        return

    def left(label: Floats) -> Floats:
        """What one energy per element does not explain."""
        return np.abs(label - shares @ least_absolute(shares, label))

    as_total, as_given = left(training.energy / sizes) * sizes, left(training.energy)
    if as_given.mean() < _PER_ATOM * as_total.mean():
        yield LabelFinding(
            Finding.PER_ATOM, (),
            "The energies do not grow with the number of atoms, so they are probably energies per "
            "atom: multiply each by the number of atoms.",
            refuses=True,
        )  # fmt: skip


def _energy_units(training: Training) -> Iterator[LabelFinding]:
    """Single energies that agree with the others in another unit."""
    sizes = training.batch.sizes
    label = training.energy / sizes
    expected = _by_composition(training)
    away = np.abs(label - expected)
    limit = max(_FAR * float(np.median(away)), _FAR_ENERGY)
    found: dict[str, list[int]] = defaultdict(list)
    for s in np.flatnonzero(away > limit):
        for unit, size in _UNITS.items():
            if abs(label[s] * size - expected[s]) < max(_AGREES * abs(expected[s]), limit / _FAR):
                found[unit].append(int(s))
                break
    for unit, some in found.items():
        first, others = some[0], ""
        if len(some) > 1:
            others = f" The same holds for {_structures(some[1:]).lower()}."
        yield LabelFinding(
            Finding.ENERGY_UNIT, tuple(some),
            f"The energy of structure {first} is {label[first]:.4g} eV/atom, where the other "
            f"structures suggest {expected[first]:.4g}; it is probably in {unit}: convert it to eV."
            f"{others}",
            refuses=True,
        )  # fmt: skip


def _by_composition(training: Training) -> Floats:
    """Energies per atom (B,) from one energy per element by least absolute deviations."""
    shares = _shares(training)
    return shares @ least_absolute(shares, training.energy / training.batch.sizes)


def _shares(training: Training) -> Floats:
    """The share of each element in each structure."""
    batch = training.batch
    elements = np.unique(batch.numbers)
    counts = np.zeros((len(batch), len(elements)))
    np.add.at(counts, (batch.owner, np.searchsorted(elements, batch.numbers)), 1.0)
    return counts / batch.sizes[:, None]


def least_absolute(design: Floats, y: Floats, steps: int = 50) -> Floats:
    """Coefficients c with the smallest Σ|y − design·c|, by reweighted least squares."""
    weight = np.ones(len(y))
    c: Floats = np.zeros(design.shape[1])
    floor = 1e-6 * float(np.median(np.abs(y))) + 1e-300
    for _ in range(steps):
        root = np.sqrt(weight)
        c = np.asarray(np.linalg.lstsq(design * root[:, None], y * root, rcond=1e-10)[0], float)
        weight = 1.0 / np.maximum(np.abs(y - design @ c), floor)
    return c


def _stress_sizes(training: Training) -> Iterator[LabelFinding]:
    """Stresses that are too large for a stress in eV/Å³."""
    some = np.flatnonzero(training.has_stress)
    if not len(some):
        return
    cells, sizes = training.batch.cells[some], training.batch.sizes[some]
    largest = np.abs(training.stress[some]).max(axis=1)
    per_atom = largest * np.abs(np.linalg.det(cells)) / sizes
    if per_atom.max() <= _LARGEST_STRESS and np.median(per_atom) <= _MEDIAN_STRESS:
        return
    worst = int(np.argmax(per_atom))
    yield LabelFinding(
        Finding.STRESS_SIZE, (int(some[worst]),),
        f"The stress of structure {some[worst]} is {largest[worst]:.3g} eV/Å³, or "
        f"{160.2 * largest[worst]:.3g} GPa: this is probably a virial (use --virial-key), or "
        "another unit.",
        refuses=True,
    )  # fmt: skip


def _duplicates(training: Training) -> Iterator[LabelFinding]:
    """Equal structures whose labels differ."""
    places: dict[tuple[bytes, ...], list[int]] = defaultdict(list)
    for s, key in enumerate(structure_keys(training.batch)):
        places[key].append(s)
    batch = training.batch
    for same in places.values():
        if len(same) < 2:
            continue
        energies = training.energy[same] / batch.sizes[same[0]]
        first = slice(batch.offsets[same[0]], batch.offsets[same[0] + 1])
        differences = [
            np.nanmax(np.abs(training.forces[_rows(training, s)] - training.forces[first]))
            for s in same[1:]
            if training.has_forces[s] and training.has_forces[same[0]]
        ]
        force = max(differences, default=0.0)
        if np.ptp(energies) <= _SAME_ENERGY and force <= _SAME_FORCE:
            continue
        forces = f" and their forces by {force:.3g} eV/Å" if force > _SAME_FORCE else ""
        yield LabelFinding(
            Finding.DUPLICATES, tuple(same),
            f"{_structures(same)} are equal, but their energies differ by "
            f"{1e3 * np.ptp(energies):.3g} meV/atom{forces}; keep the right one.",
        )  # fmt: skip


def _net_forces(training: Training) -> Iterator[LabelFinding]:
    """Structures whose forces do not sum to zero, which no potential of distances can follow."""
    batch, has = training.batch, training.has_forces
    sums = np.add.reduceat(training.forces, batch.offsets[:-1])
    net = np.linalg.norm(sums, axis=1)
    total = np.add.reduceat(np.linalg.norm(training.forces, axis=1), batch.offsets[:-1])
    some = np.flatnonzero(has & (net > np.maximum(_NET, _NET_SHARE * total)))
    if len(some):
        worst = int(some[np.argmax(net[some])])
        place = f" in structure {worst}" if len(some) > 1 else ""
        yield LabelFinding(
            Finding.NET_FORCE, tuple(int(s) for s in some),
            f"{_structures(some)}: the forces do not sum to zero ({net[worst]:.3g} eV/Å{place}). "
            "Forces of fixed atoms are missing, or a field acts that the model does not know.",
        )  # fmt: skip


def _rows(training: Training, s: int) -> slice:
    return slice(training.batch.offsets[s], training.batch.offsets[s + 1])


def _structures(numbers: Sequence[int] | Ints) -> str:
    """The structures by number, the first few."""
    shown = [str(int(n)) for n in numbers[:_NAMED]]
    if len(numbers) == 1:
        return f"Structure {shown[0]}"
    rest = len(numbers) - len(shown)
    if rest:
        return f"Structures {', '.join(shown)} and {rest} more"
    return f"Structures {', '.join(shown[:-1])} and {shown[-1]}"
