"""Sets for `outside.py`: training structures, and test structures inside and outside of them.

The labels of EMT, Tersoff and GFN1-xTB are exact everywhere. For DFT metals only the inside and new
defects have labels; far structures have plausible energies instead (`pseudo`): Rose's equation of
state for compression and expansion, GFN1-xTB for dimers, EMT for other crystals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk, diamond100, diamond111, fcc100, fcc110, fcc111, surface
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import read

from nugget.engines import make_calculator

COMPRESSION = (0.97, 0.94, 0.91, 0.88, 0.85, 0.82, 0.79, 0.76, 0.73, 0.70)
EXPANSION = (1.03, 1.06, 1.10, 1.14, 1.18, 1.22, 1.27, 1.32, 1.38, 1.44, 1.5)
DISTANCES = (
    0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.1, 1.2, 1.3, 1.4, 1.5, 1.6, 1.8, 2.0, 2.2, 2.5, 2.8, 3.2, 3.6,
    4.0, 4.5, 5.0, 5.5, 6.0,
)  # fmt: skip

# Cohesive energy (eV), bulk modulus (GPa), lattice and its constant in PBE (Å).
METALS = {
    "Li": (1.63, 13.9, "bcc", 3.44),
    "Cu": (3.49, 137.0, "fcc", 3.63),
    "Ni": (4.44, 195.0, "fcc", 3.52),
}


@dataclass
class Sets:
    """Two training sets and the structures that models of each are tested on."""

    train: list[Atoms]
    points: list[Atoms]  # for models of `train`
    bulk_only: list[Atoms]
    beyond: list[Atoms]  # for models of `bulk_only`: new defects, larger clusters


def label(atoms: Atoms, calculator: Any, kind: str, **info: Any) -> Atoms:
    work = atoms.copy()
    work.calc = calculator
    energy, forces = float(work.get_potential_energy()), work.get_forces()
    return _with(atoms, {"kind": kind, **info}, energy=energy, forces=forces)


def pseudo(atoms: Atoms, energy: float, kind: str, **info: Any) -> Atoms:
    return _with(atoms, {"kind": kind, "pseudo": True, **info}, energy=float(energy))


def _with(atoms: Atoms, info: dict[str, Any], **results: Any) -> Atoms:
    out = atoms.copy()
    out.info = info
    out.calc = SinglePointCalculator(out, **results)
    return out


def named(atoms: Atoms, kind: str) -> Atoms:
    return _with(atoms, {"kind": kind}, **atoms.calc.results)


def scaled(atoms: Atoms, factor: float) -> Atoms:
    out = atoms.copy()
    out.calc = None
    if out.pbc.any():
        out.set_cell(out.cell * factor, scale_atoms=True)
    else:
        centre = out.positions.mean(axis=0)
        out.positions = centre + factor * (out.positions - centre)
    return out


def dimer(a: str, b: str, distance: float) -> Atoms:
    return Atoms([a, b], [[0, 0, 0], [0, 0, distance]])


def phases(symbol: str, volume: float) -> list[tuple[str, Atoms]]:
    """Elemental crystals at three volumes per atom around that of the ground state."""
    out = []
    for name, n, factor in (("fcc", 4, 1.0), ("bcc", 2, 1.0), ("sc", 1, 1.15), ("diamond", 8, 1.4)):
        for v in (0.93, 1.0, 1.07):
            a = (volume * n * factor * v) ** (1 / 3)
            out.append((name, bulk(symbol, name, a=a, cubic=True)))
    for v in (0.93, 1.0, 1.07):
        a = (volume * v * np.sqrt(2)) ** (1 / 3)
        out.append(("hcp", bulk(symbol, "hcp", a=a, c=a * np.sqrt(8 / 3))))
    return out


def _scan(atoms: Atoms, calculator: Any, **info: Any) -> list[Atoms]:
    """Compression and expansion."""
    out = []
    for kind, factors in (("compression", COMPRESSION), ("expansion", EXPANSION)):
        out += [label(scaled(atoms, s), calculator, f"far:{kind}", s=s, **info) for s in factors]
    return out


def zuo(element: str, data: Path) -> Sets:
    """DFT of Zuo et al.; every second training structure of Cu and Ni."""
    train = read(data / f"zuo_{element}_training.extxyz.gz", ":")
    test = read(data / f"zuo_{element}_test.extxyz.gz", ":")
    train = train if element == "Li" else train[::2]
    names = {"AIMD-NVT": "aimd", "Elastic": "elastic", "Vacancy": "vacancy", "Surface": "surface"}

    def group(atoms: Atoms) -> str:
        if given := atoms.info.get("group"):
            return names[given]
        return {108: "bulk", 107: "vacancy"}.get(len(atoms), "surface")

    points = [named(a, f"in:{group(a)}") for a in test]
    cohesive, modulus, lattice, constant = METALS[element]
    cell = bulk(element, lattice, a=constant, cubic=True)
    volume = cell.get_volume() / len(cell)
    inner = ("bulk", "elastic")
    lowest = min(a.get_potential_energy() / len(a) for a in train if group(a) in inner)
    radius = (3 * volume / (4 * np.pi)) ** (1 / 3)
    length = np.sqrt(cohesive / (12 * np.pi * modulus / 160.2177 * radius))

    def rose(s: float) -> float:
        x = (s - 1) * radius / length
        return float(lowest + cohesive - cohesive * (1 + x + 0.05 * x**3) * np.exp(-x))

    large = cell * (2, 2, 2)
    for kind, factors in (("compression", COMPRESSION), ("expansion", EXPANSION)):
        points += [
            pseudo(scaled(large, s), rose(s) * len(large), f"far:{kind}", s=s) for s in factors
        ]
    points += _pseudo_dimers(element, 2 * (lowest + cohesive))
    if element != "Li":
        points += _pseudo_phases(element, volume, lowest)
    kept = ("bulk", "elastic") if element != "Li" else ("elastic", "aimd")
    defects = [a for a in [*train, *test] if group(a) in ("vacancy", "surface")]
    beyond = [named(a, f"near:bulk->{group(a)}") for a in defects]
    return Sets(train, points, [a for a in train if group(a) in kept], beyond)


def _pseudo_dimers(element: str, separate: float) -> list[Atoms]:
    """Dimers from 1.8 Å; no method at hand is reliable below."""
    calculator = make_calculator("gfn1-xtb")
    apart = label(dimer(element, element, 30.0), calculator, "").get_potential_energy()
    out = []
    for distance in (d for d in DISTANCES if d >= 1.8):
        atoms = dimer(element, element, distance)
        energy = label(atoms, calculator, "").get_potential_energy() - apart + separate
        out.append(pseudo(atoms, energy, "far:dimer", s=distance))
    return out


def _pseudo_phases(element: str, volume: float, lowest: float) -> list[Atoms]:
    """Open crystals; EMT cannot order fcc, bcc and hcp."""
    cells = [scaled(bulk(element, "fcc"), s) for s in np.linspace(0.97, 1.03, 25)]
    best = min((label(c, EMT(), "") for c in cells), key=lambda a: a.get_potential_energy())
    out = []
    for name, atoms in phases(element, volume):
        if name not in ("sc", "diamond"):
            continue
        own = label(scaled(atoms, (best.get_volume() / volume) ** (1 / 3)), EMT(), "")
        energy = lowest + own.get_potential_energy() / len(own) - best.get_potential_energy()
        out.append(pseudo(atoms, energy * len(atoms), "far:phase", name=name))
    return out


def _perturbed(atoms: Atoms, rng: np.random.Generator, strain: float, size: float) -> Atoms:
    out = atoms.copy()
    e = rng.normal(0, strain / 1.5, (3, 3))
    e = np.clip((e + e.T) / 2, -2 * strain, 2 * strain)
    out.set_cell(out.cell @ (np.eye(3) + e), scale_atoms=True)
    out.positions += np.clip(rng.normal(0, size, out.positions.shape), -0.6, 0.6)
    return out


def emt_alloys(data: Path, number: int = 110) -> Sets:
    """EMT: Cu, Al and alloys in bulk, with vacancies, and surfaces."""
    rng = np.random.default_rng(0)
    cells = {"Cu": (3.60, 0), "Al": (4.0, 32), "Cu3Al": (3.69, 8), "CuAl": (3.8, 16)}
    cells["CuAl3"] = (3.9, 24)

    def cell(name: str) -> Atoms:
        constant, aluminium = cells[name]
        atoms = bulk("Cu", "fcc", a=constant, cubic=True) * (2, 2, 2)
        atoms.numbers[rng.permutation(32)[:aluminium]] = 13
        return atoms

    def surface() -> Atoms:
        symbol, build = rng.choice(["Cu", "Al"]), (fcc111, fcc100, fcc110)[rng.integers(3)]
        atoms = build(symbol, (2, 2, 4), a=3.6 if symbol == "Cu" else 4.0, vacuum=5.0)
        atoms.pbc = True
        atoms.numbers[rng.permutation(16)[: 4 * rng.integers(3)]] = 13 if symbol == "Cu" else 29
        return atoms

    def make(kind: str, name: str) -> Atoms:
        atoms = surface() if kind == "surface" else cell(rng.choice(list(cells)))
        if kind == "vacancy":
            del atoms[int(rng.integers(len(atoms)))]
        strain = 0.01 if kind == "surface" else 0.03
        return label(_perturbed(atoms, rng, strain, rng.uniform(0.02, 0.2)), EMT(), name)

    shares = {"bulk": 0.6, "vacancy": 0.2, "surface": 0.2}
    train = [make(kind, kind) for kind, share in shares.items() for _ in range(int(share * number))]
    tests = {"bulk": 30, "vacancy": 12, "surface": 12}
    points = [make(kind, f"in:{kind}") for kind, n in tests.items() for _ in range(n)]
    for name in ("Cu", "Al", "CuAl"):
        points += _scan(cell(name), EMT(), base=name)
    for a, b in (("Cu", "Cu"), ("Al", "Al"), ("Cu", "Al")):
        points += [label(dimer(a, b, d), EMT(), "far:dimer", s=d, base=a + b) for d in DISTANCES]
    for element, volume in (("Cu", 3.6**3 / 4), ("Al", 16.0)):
        every = [p for p in phases(element, volume) if p[0] != "fcc"]
        points += [label(atoms, EMT(), "far:phase", name=name) for name, atoms in every]
    beyond = [make(k, f"near:bulk->{k}") for k in ["vacancy"] * 20 + ["surface"] * 20]
    return Sets(train, points, [a for a in train if a.info["kind"] == "bulk"], beyond)


# Lattice constants of EMT, Å.
CONSTANTS = {"Ag": 4.06, "Al": 3.99, "Au": 4.06, "Ni": 3.49, "Pd": 3.88, "Pt": 3.92, "Cu": 3.59}


def emt_crystals(symbols: tuple[str, ...], seed: int, data: Path, number: int = 80) -> Sets:
    """EMT: bulk of one element, or alloys of several; new vacancies and surfaces."""
    rng = np.random.default_rng(seed)

    def make(kind: str, name: str) -> Atoms:
        shares = rng.dirichlet(np.ones(len(symbols)))
        constant = float(sum(x * CONSTANTS[s] for x, s in zip(shares, symbols, strict=True)))
        if kind == "surface":
            build = (fcc111, fcc100, fcc110)[rng.integers(3)]
            atoms = build(symbols[0], (2, 2, 5), a=constant, vacuum=5.0)
            atoms.pbc = True
        else:
            atoms = bulk(symbols[0], "fcc", a=constant, cubic=True) * (2, 2, 2)
        atoms.symbols = list(rng.choice(symbols, len(atoms), p=shares))
        if kind == "vacancy":
            del atoms[int(rng.integers(len(atoms)))]
        strain = 0.01 if kind == "surface" else 0.03
        return label(_perturbed(atoms, rng, strain, rng.uniform(0.02, 0.2)), EMT(), name)

    train = [make("bulk", "bulk") for _ in range(number)]
    points = [make("bulk", "in:bulk") for _ in range(30)]
    points += _scan(bulk(symbols[0], "fcc", a=CONSTANTS[symbols[0]], cubic=True), EMT())
    kinds = ["vacancy"] * 20 + ["surface"] * 20
    return Sets(train, points, train, [make(kind, f"near:bulk->{kind}") for kind in kinds])


def tersoff_silicon(data: Path, number: int = 100) -> Sets:
    """Tersoff silicon: diamond, hot cells, vacancies and surfaces."""
    rng, calculator = np.random.default_rng(1), make_calculator("tersoff")
    base = bulk("Si", "diamond", a=5.432, cubic=True)

    def make(kind: str, name: str) -> Atoms:
        if kind == "surface":
            build = diamond100 if rng.random() < 0.5 else diamond111
            atoms = build("Si", (2, 2, 6), a=5.432, vacuum=5.0)
            atoms.pbc = True
        else:
            atoms = base * ((2, 2, 1) if rng.random() < 0.7 else (2, 2, 2))
        if kind == "vacancy":
            del atoms[int(rng.integers(len(atoms)))]
        size = rng.uniform(0.25, 0.4) if kind == "hot" else rng.uniform(0.02, 0.15)
        strain = 0.01 if kind == "surface" else 0.03
        return label(_perturbed(atoms, rng, strain, size), calculator, name)

    shares = {"bulk": 0.45, "hot": 0.2, "vacancy": 0.15, "surface": 0.2}
    train = [make(kind, kind) for kind, share in shares.items() for _ in range(int(share * number))]
    tests = {"bulk": 20, "hot": 15, "vacancy": 12, "surface": 12}
    points = [make(kind, f"in:{kind}") for kind, n in tests.items() for _ in range(n)]
    rattled = base * (2, 1, 1)
    rattled.positions += rng.normal(0, 0.1, rattled.positions.shape)
    points += _scan(base, calculator, base="perfect") + _scan(rattled, calculator, base="rattled")
    points += [label(dimer("Si", "Si", d), calculator, "far:dimer", s=d) for d in DISTANCES]
    for name, atoms in phases("Si", 5.432**3 / 8 * 0.75):
        if name != "diamond":
            points.append(label(atoms, calculator, "far:phase", name=name))
    kinds = ["vacancy"] * 15 + ["surface"] * 15 + ["hot"] * 15
    beyond = [make(kind, f"near:bulk->{kind}") for kind in kinds]
    return Sets(train, points, [a for a in train if a.info["kind"] == "bulk"], beyond)


LATTICES = {
    "Si": ("diamond", 5.46), "Ge": ("diamond", 5.76), "C": ("diamond", 3.57), "Mo": ("bcc", 3.16),
    "Mg": ("hcp", 3.19), "GaAs": ("zincblende", 5.75), "MgO": ("rocksalt", 4.25),
    "SiC": ("zincblende", 4.38), "W": ("bcc", 3.18),
}  # fmt: skip

# Lattice vectors are repeated until they are longer than this, Å.
_LENGTH = 7.5


def foundation_crystals(name: str, seed: int, data: Path, number: int = 80) -> Sets:
    """SevenNet-0 in place of DFT (needs nugget[foundation]): warm and hot bulk; new defects.

    Its energies of short distances are wrong, so that compression ends at 0.85.
    """
    rng, calculator = np.random.default_rng(seed), make_calculator("sevennet")
    lattice, constant = LATTICES[name]
    unit = bulk(name, lattice, a=constant, cubic=lattice != "hcp")

    bond = float((unit * (2, 2, 2)).get_all_distances(mic=True)[0, 1:].min())

    def repeated(atoms: Atoms) -> Atoms:
        lengths = atoms.cell.lengths()
        times = [1 if x > _LENGTH - 1.0 else 2 if 2 * x > _LENGTH else 3 for x in lengths]
        return atoms * tuple(times)

    def slab() -> Atoms:
        """A slab without the overlapping atoms that `surface` gives for some compounds."""
        while True:
            indices = [(1, 0, 0), (1, 1, 0), (1, 1, 1)][rng.integers(3)]
            layers = int(rng.integers(3, 6))
            atoms = repeated(surface(unit, indices, layers, vacuum=5.0, periodic=True))
            if np.sort(atoms.get_all_distances(mic=True).ravel())[len(atoms)] > 0.9 * bond:
                return atoms

    def make(kind: str, named: str) -> Atoms:
        atoms = slab() if kind == "surface" else repeated(unit)
        if kind == "vacancy":
            del atoms[int(rng.integers(len(atoms)))]
        size = rng.uniform(0.06, 0.12) if kind == "hot" else rng.uniform(0.005, 0.05)
        strain = 0.01 if kind == "surface" else 0.03
        return label(_perturbed(atoms, rng, strain, size * bond), calculator, named)

    shares = {"bulk": 0.5, "hot": 0.2, "vacancy": 0.1, "surface": 0.2}
    train = [make(kind, kind) for kind, share in shares.items() for _ in range(int(share * number))]
    points = [make(kind, f"in:{kind}") for kind in shares for _ in range(12)]
    points += [a for a in _scan(unit, calculator, base="perfect") if a.info["s"] > 0.84]
    if len(set(unit.symbols)) == 1:
        for phase, atoms in phases(unit.symbols[0], unit.get_volume() / len(unit)):
            if phase != lattice:
                points.append(label(atoms, calculator, "far:phase", name=phase))
    narrow = [make(kind, kind) for kind in ("bulk", "bulk", "hot") for _ in range(number // 4)]
    kinds = ["vacancy"] * 20 + ["surface"] * 20
    return Sets(train, points, narrow, [make(kind, f"near:bulk->{kind}") for kind in kinds])


def gold_clusters(data: Path) -> Sets:
    """DFT gold clusters; larger ones from smaller ones."""
    every = read(data / "au_clusters_dft.extxyz.gz", "0:650")
    points = [named(a, "in:cluster") for a in every[250:400]]
    points += [named(a, "near:Au21") for a in read(data / "au21_dft.extxyz.gz", "::8")]
    small = [a for a in every if len(a) <= 12][:120]
    beyond = [named(a, "near:Au10,12->Au16,18") for a in every[250:] if len(a) >= 16][:60]
    return Sets(every[:225], points, small, beyond)


#: Sets by name. The constants of the training domain were chosen on Li, Cu and EMT Cu-Al, those of
#: missing neighbours on Cu, Ni, EMT Cu-Al, silver and Cu-Au, and the relative error of the
#: second-moment mean function on Ni, Cu, EMT Ni-Pt and (towards high density) EMT silver.
SETS: dict[str, Callable[[Path], Sets]] = {
    "Li": partial(zuo, "Li"),
    "Cu": partial(zuo, "Cu"),
    "EMT Cu-Al": emt_alloys,
    "Ni": partial(zuo, "Ni"),
    "gold": gold_clusters,
    "Tersoff Si": tersoff_silicon,
    "EMT Pd": partial(emt_crystals, ("Pd",), 2911),
    "EMT Ni-Pt": partial(emt_crystals, ("Ni", "Pt"), 2912),
    "EMT Ag": partial(emt_crystals, ("Ag",), 4101),
    "EMT Au-Pd": partial(emt_crystals, ("Au", "Pd"), 4102),
    "EMT Al": partial(emt_crystals, ("Al",), 4201),
    "EMT Cu-Pt": partial(emt_crystals, ("Cu", "Pt"), 4202),
    **{
        f"SevenNet {name}": partial(foundation_crystals, name, 5101 + k)
        for k, name in enumerate(LATTICES)
    },
}

TUNING = ("Li", "Cu", "Ni", "EMT Cu-Al", "EMT Ni-Pt", "EMT Ag", "EMT Pd", "EMT Au-Pd")
