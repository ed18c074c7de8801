"""Single-ended saddle searches on known reactions beside Sella, ASE's dimer and NEB.

`python saddle_cases.py` needs `pip install sella` for that column. Every program starts from the
same structure: the middle image of the IDPP path between both ends, or the third structure of a
case, with free atoms displaced by 0.1 Å (`--seed`; 100 and 101 were used for tuning).
The reference is ASE's climbing NEB of five images between the ends, relaxed with the engine (at
most 200 steps). Calls are those of
energy and forces until the largest force is below 0.01 eV/Å; nugget's include the confirmation of
its modes.
"""

from __future__ import annotations

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import add_adsorbate, bulk, fcc100, fcc111, molecule
from ase.calculators.calculator import Calculator
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.geometry import find_mic
from ase.mep import NEB, DimerControl, MinModeAtoms, MinModeTranslate
from ase.optimize import BFGS, FIRE

from nugget.engines.engine import get_engine
from nugget.engines.engine_settings import EngineConfig
from nugget.onthefly.learning_calculator import labeller
from nugget.onthefly.run_settings import SaddleConfig
from nugget.onthefly.saddle_run import find_saddle

RESULTS = Path(__file__).parent / "results" / "saddle_cases.json"
FMAX, MOST = 0.01, 1000
BAND = 0.03  # eV/Å: of the reference
Ends = tuple[Atoms, ...]  # both ends, and where the straight path is none, its middle


def fixed(slab: Atoms, layers: int = 1) -> Atoms:
    """With the lowest layers fixed."""
    heights = np.unique(np.round(slab.positions[:, 2], 1))
    slab.set_constraint(FixAtoms(mask=slab.positions[:, 2] < heights[layers - 1] + 0.5))
    slab.info = {}
    return slab


def hop(metal: str, adatom: str, surface: str) -> Ends:
    build, sites = {"100": (fcc100, ("hollow", "hollow")), "111": (fcc111, ("fcc", "hcp"))}[surface]
    slab = build(metal, size=(3, 3, 3), vacuum=6.0)
    ends = []
    for site in sites:
        one = slab.copy()
        add_adsorbate(one, adatom, 1.8, site)
        ends.append(fixed(one))
    if surface == "100":
        ends[1].positions[-1] += slab.cell[0] / 3
    return ends[0], ends[1]


def exchange() -> Ends:
    """An adatom on Cu(100) takes the place of a surface atom, which becomes an adatom."""
    start, _ = hop("Cu", "Cu", "100")
    adatom = start.positions[-1].copy()
    surface = np.flatnonzero(start.positions[:, 2] > start.positions[-2, 2] - 0.1)[:-1]
    nearest = surface[np.argmin(np.linalg.norm(start.positions[surface] - adatom, axis=1))]
    end = start.copy()
    place = start.positions[nearest]
    across = place + (place - adatom) * [1, 1, 0]
    end.positions[-1] = place
    end.positions[nearest] = [across[0], across[1], adatom[2]]
    return start, end


def vacancy(atoms: Atoms, removed: int, jumps: int) -> Ends:
    """Atom `jumps` moves into the place of atom `removed`."""
    start, end = atoms.copy(), atoms.copy()
    end.positions[jumps] = atoms.positions[removed]
    for one in (start, end):
        del one[removed]
    return start, end


def bulk_vacancy(metal: str) -> Ends:
    crystal = bulk(metal, cubic=True) * (2, 2, 2)
    near = int(np.argsort(crystal.get_distances(0, range(len(crystal)), mic=True))[1])
    return vacancy(crystal, 0, near)


def surface_vacancy(metal: str) -> Ends:
    slab = fixed(fcc111(metal, size=(3, 3, 3), vacuum=6.0))
    top = np.flatnonzero(slab.get_tags() == 1)
    return vacancy(slab, int(top[0]), int(top[1]))


def dissociation(metal: str) -> Ends:
    """N2 on a (111) surface parts."""
    start = fcc111(metal, size=(3, 3, 2), vacuum=6.0)
    end = start.copy()
    add_adsorbate(start, molecule("N2"), 1.6, "ontop")
    start.positions[-1] = start.positions[-2] + [1.1, 0, 0]
    for site in ("fcc", "hcp"):
        add_adsorbate(end, "N", 1.2, site)
    return fixed(start), fixed(end)


def isomers() -> Ends:
    """HCN and HNC; a straight path would lead through the bond."""
    places = [-1.06, 0.2, 0], [2.16, 0.2, 0], [0.6, 1.1, 0]
    start, end, middle = (Atoms("CNH", positions=[[0, 0, 0], [1.17, 0, 0], h]) for h in places)
    return start, end, middle


def ammonia() -> Ends:
    start = molecule("NH3")
    end = start.copy()
    end.positions[:, 2] *= -1
    return start, end


def methylamine() -> Ends:
    """The amino group inverts; the methyl group turns by a sixth, so that both ends are minima."""
    start = molecule("H3CNH2")
    carbon, nitrogen = start.positions[:2]
    end = start.copy()
    end.positions[3:5, 0] = 2 * nitrogen[0] - start.positions[3:5, 0]
    methyl = start[[2, 5, 6]]
    methyl.rotate(60, carbon - nitrogen, center=carbon)
    end.positions[[2, 5, 6]] = methyl.positions
    return start, end


def rotation() -> Ends:
    """One methyl group of ethane turns by a third."""
    start = molecule("C2H6")
    group = np.flatnonzero(start.positions[:, 2] * start.positions[0, 2] > 0)[1:]
    end = start.copy()
    end.positions[group] = start.positions[np.roll(group, 1)]
    return start, end


def enol() -> Ends:
    """Hydroxycarbene and formaldehyde: a hydrogen shift."""
    start = molecule("H2CO")
    end = start.copy()
    carbon, oxygen = start.positions[start.numbers == 6][0], start.positions[start.numbers == 8][0]
    hydrogen = int(np.flatnonzero(start.numbers == 1)[0])
    outward = (oxygen - carbon) / np.linalg.norm(oxygen - carbon)
    side = np.array([0.0, np.sign(start.positions[hydrogen, 1]), 0.0])
    end.positions[hydrogen] = oxygen + 0.3 * outward + 0.9 * side
    return start, end


CASES: dict[str, tuple[str, Callable[[], Ends]]] = {
    "Au on Al(100), hop": ("emt", lambda: hop("Al", "Au", "100")),
    "Cu on Cu(100), hop": ("emt", lambda: hop("Cu", "Cu", "100")),
    "Pt on Pt(111), hop": ("emt", lambda: hop("Pt", "Pt", "111")),
    "Ag on Ag(100), hop": ("emt", lambda: hop("Ag", "Ag", "100")),
    "Cu on Cu(100), exchange": ("emt", exchange),
    "vacancy in Cu": ("emt", lambda: bulk_vacancy("Cu")),
    "vacancy in Al": ("emt", lambda: bulk_vacancy("Al")),
    "vacancy in Pt": ("emt", lambda: bulk_vacancy("Pt")),
    "vacancy in Cu(111)": ("emt", lambda: surface_vacancy("Cu")),
    "vacancy in Pd(111)": ("emt", lambda: surface_vacancy("Pd")),
    "N2 on Cu(111) parts": ("emt", lambda: dissociation("Cu")),
    "N2 on Ni(111) parts": ("emt", lambda: dissociation("Ni")),
    "N2 on Pd(111) parts": ("emt", lambda: dissociation("Pd")),
    "N2 on Ag(111) parts": ("emt", lambda: dissociation("Ag")),
    "N2 on Pt(111) parts": ("emt", lambda: dissociation("Pt")),
    "HCN to HNC": ("gfn1-xtb", isomers),
    "NH3, inversion": ("gfn1-xtb", ammonia),
    "C2H6, rotation": ("gfn1-xtb", rotation),
    "CH3NH2, inversion": ("gfn1-xtb", methylamine),
    "HCOH to H2CO": ("gfn1-xtb", enol),
}


class Counted(Calculator):
    """A calculator that counts its calculations."""

    implemented_properties = ["energy", "forces"]  # noqa: RUF012 (as in ASE)

    def __init__(self, engine: str) -> None:
        super().__init__()
        self.inner = EMT() if engine == "emt" else get_engine(engine).calculator()
        self.calls = 0

    def calculate(self, atoms=None, properties=None, system_changes=()) -> None:
        super().calculate(atoms, properties, system_changes)
        self.calls += 1
        copy = self.atoms.copy()
        copy.calc = self.inner
        energy, forces = copy.get_potential_energy(), copy.get_forces(apply_constraint=False)
        self.results = {"energy": energy, "forces": forces}


def reference(
    start: Atoms, end: Atoms, middle: Atoms | None, engine: str
) -> tuple[float, float, int]:
    """Energies of the start and the saddle by ASE's climbing NEB, and its calls."""
    counter = Counted(engine)
    for one in (start, end):
        one.calc = counter
        BFGS(one, logfile=None).run(fmax=FMAX, steps=MOST)
    images = [start.copy() for _ in range(4)] + [end.copy()]
    if middle is not None:
        images[2] = middle
        NEB(images[:3]).interpolate()
        NEB(images[2:]).interpolate()
    band = NEB(images, climb=False, method="improvedtangent", allow_shared_calculator=True)
    if middle is None:
        band.interpolate("idpp", mic=True)
    for image in images:
        image.calc = counter
    FIRE(band, logfile=None).run(fmax=0.3, steps=50)
    band.climb = True
    FIRE(band, logfile=None).run(fmax=BAND, steps=150)
    energies = [image.get_potential_energy() for image in images]
    return energies[0], max(energies), counter.calls


def by_nugget(atoms: Atoms, engine: str, away: np.ndarray) -> dict:
    config = SaddleConfig(engine=EngineConfig(name=engine), baseline="none")
    result = find_saddle(atoms, labeller(Counted(engine)), config)
    return {"energy": result.energy, "calls": result.calls, "converged": result.converged}


def by_sella(atoms: Atoms, engine: str, away: np.ndarray) -> dict:
    from sella import Sella

    atoms.calc = counter = Counted(engine)
    run = Sella(atoms, internal=not atoms.pbc.any(), order=1, logfile=None)
    converged = run.run(fmax=FMAX, steps=MOST)
    return {"energy": atoms.get_potential_energy(), "calls": counter.calls,
            "converged": bool(converged)}  # fmt: skip


def by_dimer(atoms: Atoms, engine: str, away: np.ndarray) -> dict:
    atoms.calc = counter = Counted(engine)
    with DimerControl(logfile=None, eigenmode_logfile=None) as control:
        dimer = MinModeAtoms(atoms, control, eigenmodes=[away / np.linalg.norm(away)],
                             random_seed=0)  # fmt: skip
        with MinModeTranslate(dimer, logfile=None) as run:
            converged = run.run(fmax=FMAX, steps=MOST)
    return {"energy": atoms.get_potential_energy(), "calls": counter.calls,
            "converged": bool(converged)}  # fmt: skip


PROGRAMS = {"nugget": by_nugget, "sella": by_sella, "dimer": by_dimer}


def one(engine: str, ends: Ends, seed: int) -> dict:
    """One reaction with all programs, from the same start."""
    start, end, *others = ends
    middle = others[0] if others else None
    low, high, calls = reference(start, end, None if middle is None else middle.copy(), engine)
    away = find_mic(end.positions - start.positions, start.cell, start.pbc)[0]
    images = [start.copy(), start.copy(), end.copy()]
    NEB(images).interpolate("idpp", mic=True)
    guess, rng = images[1] if middle is None else middle, np.random.default_rng(seed)
    guess.set_positions(guess.positions + rng.normal(0.0, 0.1, guess.positions.shape))
    out: dict = {"neb": {"barrier": high - low, "calls": calls}}
    for name, run in PROGRAMS.items():
        try:
            row = run(guess.copy(), engine, away)
            out[name] = {**row, "barrier": row.pop("energy") - low}
        except Exception as error:  # programs fail in many ways
            out[name] = {"error": f"{type(error).__name__}: {error}"[:200]}
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--only", nargs="*", default=list(CASES))
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    done = json.loads(options.out.read_text()) if options.out.exists() else {}
    for name in options.only:
        key = f"{name}, seed {options.seed}"
        if key not in done:
            engine, ends = CASES[name]
            done[key] = {"engine": engine, **one(engine, ends(), options.seed)}
            options.out.write_text(json.dumps(done, indent=1) + "\n")
        row = done[key]
        print(f"{key:40}", f"NEB {row['neb']['barrier']:.3f} ({row['neb']['calls']})",
              *(f"{p} {row[p].get('barrier', np.nan):.3f} ({row[p].get('calls')}"
                f"{'' if row[p].get('converged') else ' not converged'})" for p in PROGRAMS),
              flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
