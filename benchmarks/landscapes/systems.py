"""The landscapes that searches are judged on, in two sets, fixed before anything was tuned.

Settings are chosen on `tuning`; `verification` is looked at once, with other seeds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ase import Atoms
from ase.build import fcc111
from ase.calculators.calculator import Calculator
from ase.calculators.morse import MorsePotential
from ase.cluster import Decahedron, Octahedron
from ase.constraints import FixAtoms

HERE = Path(__file__).resolve().parent
REFERENCES = HERE.parent / "references"


def morse(rho0: float = 14.0) -> Calculator:
    """Morse clusters: ρ = 14 has short-ranged bonds and a rough landscape; bonds of 2.8 Å."""
    return MorsePotential(epsilon=1.0, rho0=rho0, r0=2.8, rcut1=8.0, rcut2=9.0)


def slab(width: int) -> Atoms:
    """Two layers of Pt(111), the lower one fixed."""
    atoms = fcc111("Pt", (width, width, 2), vacuum=8.0)
    atoms.info = {}  # ASE's notes on sites
    atoms.set_constraint(FixAtoms([a.index for a in atoms if a.tag == 2]))
    return atoms


@dataclass(frozen=True)
class System:
    """One landscape: what is searched, with what, and how long."""

    set: str
    formula: str
    engine: str
    budget: int
    system: dict[str, Any] = field(default_factory=dict)
    published: float | None = None  # eV, of the lowest structure
    width: int = 4  # of the slab, in atoms


CELL = (3.85, 3.85, 7.7)  # Å, two cubic cells
SURFACE = {"kind": "surface", "height": 5.0}
SYSTEMS: dict[str, System] = {
    "LJ13": System("tuning", "Au13", "lj", 60, published=-44.326801),
    "LJ26": System("tuning", "Au26", "lj", 150, published=-108.315616),
    "Au13": System("tuning", "Au13", "emt", 60),
    "Cu6Au7": System("tuning", "Cu6Au7", "emt", 100),
    "Au10": System("tuning", "Au10", "gfn1-xtb", 100),
    "Na8Cl8": System("tuning", "Na8Cl8", "gfn1-xtb", 100),
    "Si10": System("tuning", "Si10", "gfn1-xtb", 100),
    "LJ31": System("verification", "Au31", "lj", 150, published=-133.586422),
    "LJ38": System("verification", "Au38", "lj", 200, published=-173.928427),
    "LJ75": System("verification", "Au75", "lj", 200, published=-397.492331),
    "Morse20": System("verification", "Au20", "morse", 150),
    "Au20": System("verification", "Au20", "gfn1-xtb", 150),
    "Au12": System("verification", "Au12", "gfn1-xtb", 100),
    "Au16": System("verification", "Au16", "gfn1-xtb", 150),
    "Mg6O6": System("verification", "Mg6O6", "gfn1-xtb", 100),
    "H8O4": System("verification", "H8O4", "gfn1-xtb", 150),
    "Au6 on Pt": System("verification", "Au6", "emt", 100, SURFACE),
    "Cu4Au4": System("verification", "Cu4Au4", "emt", 60, {"kind": "bulk", "cell": CELL}),
    # Added later, before any search of them: a larger Morse cluster, and a third layer of Pt(111)
    # with three vacancies.
    "Morse26": System("verification", "Au26", "morse", 200),
    "Pt6 on Pt": System("verification", "Pt6", "emt", 100, SURFACE, width=3),
}  # fmt: skip

#: Reference files whose names are older than this list.
_FILES = {
    "LJ13": "lj13",
    "Au13": "emt-au13",
    "Au10": "gfn1-au10",
    "Au20": "gfn1-au20-tetrahedra",
}


def reference_file(name: str) -> Path:
    return REFERENCES / f"{_FILES.get(name, name.lower().replace(' ', '-'))}.extxyz"


def known_shape(name: str) -> Atoms | None:
    """A published structure that can be written down; relaxed by whoever asks."""
    if name == "LJ38":
        return Octahedron("Au", 4, 1)
    if name == "LJ75":
        return Decahedron("Au", 2, 2, 1)
    return None


def engine(name: str) -> str:
    """The engine by the name that nugget knows it by."""
    known = SYSTEMS[name].engine
    return "systems:morse" if known == "morse" else known


def settings(name: str, folder: Path) -> dict[str, Any]:
    """Settings of a search of this landscape, with defaults for all else; files go to `folder`."""
    one = SYSTEMS[name]
    system: dict[str, Any] = {"formula": one.formula, **one.system}
    if one.system.get("kind") == "surface":
        system["template"] = str(folder / "slab.traj")
        if not (folder / "slab.traj").exists():
            folder.mkdir(parents=True, exist_ok=True)
            slab(one.width).write(folder / "slab.traj")
    return {
        "system": system,
        "engine": {"name": engine(name)},
        "model": {},
        "search": {"budget": one.budget},
    }
