"""Phase diagrams of metal atoms on rigid fcc(111) surfaces (EMT) against brute force over sites.

    python benchmarks/grand_canonical.py --brute-force sites.json
    python benchmarks/grand_canonical.py --compare sites.json --seeds 100 110 --out diagrams.json
    python benchmarks/grand_canonical.py --compare sites.json --separate --seeds 100 102

Brute force relaxes all arrangements of up to a monolayer on the fcc, hcp, bridge and top sites (in
3×3 cells fcc and hcp only), equal sets of distances once. Searches are those of `nugget search
--vary`, and with `--separate` one search per composition with the same number of evaluations in
all. They may leave the sites, so a diagram below that of brute force is not an error. A diagram
is reached if Ω is at most 10 meV per cell above that of brute force at all μ.
"""

from __future__ import annotations

import argparse
import itertools
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.build import bulk, fcc111
from ase.geometry import find_mic
from ase.io import write
from threadpoolctl import threadpool_limits

from nugget.engines.task import Task
from nugget.relax.cell_relaxation import cells_on_calculator, relax_cells
from nugget.relax.relaxation import on_calculator, relax
from nugget.search.search import Search
from nugget.search.search_settings import make_config
from nugget.systems.grand_canonical import VariedAtoms
from nugget.systems.grand_potential import Envelope, grid
from nugget.systems.placed_atoms import PlacedAtoms
from nugget.systems.reservoirs import TOTAL, parse_ranges, parse_vary

LATTICE = {"Cu": 3.5897, "Pt": 3.9212, "Pd": 3.8786, "Au": 4.0549, "Ag": 4.0631, "Ni": 3.4874}
HEIGHT = 3.2  # Å: room for one layer
TOLERANCE = 0.010  # eV per cell
CLOSEST = 0.8  # of two covalent radii, for arrangements of sites


@dataclass(frozen=True)
class Case:
    """A host, the size of its cell, the ranges of atoms and Δμ, and the budget of a search."""

    host: str
    size: int
    vary: str
    potentials: str
    budget: int

    @property
    def template(self) -> Atoms:
        slab = fcc111(self.host, (self.size, self.size, 3), a=LATTICE[self.host], vacuum=7.0)
        slab.pbc = (True, True, False)
        return slab

    @property
    def elements(self) -> list[str]:
        return [symbol for symbol in parse_vary(self.vary) if symbol != TOTAL]

    def system(self) -> VariedAtoms:
        ranges = parse_vary(self.vary)
        symbols = tuple(s for s in self.elements for _ in range(ranges[s][1]))
        return VariedAtoms.of(PlacedAtoms.on_template(symbols, self.template, HEIGHT), ranges)


#: The first one served to choose settings; the others judge.
CASES = {
    "Au/Cu 2x2": Case("Cu", 2, "Au:0-4", "Au=-0.6:1.2", 40),
    "Ag/Ni 2x2": Case("Ni", 2, "Ag:0-4", "Ag=-0.6:1.8", 25),
    "Au/Pd 2x2": Case("Pd", 2, "Au:0-4", "Au=-0.6:1.2", 25),
    "Pd,Au/Pt 2x2": Case("Pt", 2, "Pd:0-4,Au:0-4,total:0-4", "Pd=-0.6:0.6,Au=-0.6:0.6", 45),
    "Au/Pd 3x3": Case("Pd", 3, "Au:0-9", "Au=-0.6:1.2", 60),
}


def bulk_energy(symbol: str, calculator: Any) -> float:
    """Energy per atom of the relaxed fcc crystal."""
    crystal = bulk(symbol, a=LATTICE[symbol])
    return relax_cells([crystal], cells_on_calculator(calculator), 0.005, 200)[0].energy


def sites(template: Atoms, few: bool) -> list[tuple[str, np.ndarray]]:
    """Sites of the surface: fcc and hcp, and unless `few` bridge and top."""
    layers = {tag: template.positions[template.get_tags() == tag] for tag in (1, 2, 3)}
    top = layers[1]
    height = top[:, 2].max()
    found = [("hcp", p) for p in layers[2]] + [("fcc", p) for p in layers[3]]
    if not few:
        found += [("top", p) for p in top]
        seen: list[np.ndarray] = []
        shortest = np.linalg.norm(find_mic([top[1] - top[0]], template.cell, template.pbc)[0])
        for a, b in itertools.product(range(len(top)), repeat=2):
            for shift in itertools.product((-1, 0, 1), repeat=2):
                to = top[b] + shift @ template.cell.array[:2]
                if abs(np.linalg.norm(to - top[a]) - shortest) > 0.1:
                    continue
                middle = 0.5 * (top[a] + to)
                away = [find_mic([middle - p], template.cell, template.pbc)[1][0] for p in seen]
                if min(away, default=1.0) > 0.1:
                    seen.append(middle)
        found += [("bridge", p) for p in seen]
    return [(name, np.array([p[0], p[1], height])) for name, p in found]


def arrangements(case: Case) -> Iterator[Atoms]:
    """All arrangements on sites; those with equal distances between equal sites once."""
    system, template = case.system(), case.template
    places = sites(template, few=case.size > 2)
    points = np.array([p for _, p in places])
    n = len(points)
    apart = find_mic(
        (points[:, None] - points[None]).reshape(-1, 3), template.cell, template.pbc
    )[1].reshape(n, n)  # fmt: skip
    seen: set[Any] = set()
    radius = min(system.members[c].radii[-1] for c in system.members if sum(c))
    for size in range(sum(high for _, high in system.counts) + 1):
        for chosen in _separate(apart, size, CLOSEST * 2 * radius):
            for labels in itertools.product(case.elements, repeat=size):
                counts = tuple(labels.count(s) for s in case.elements)
                if counts not in system.members:
                    continue
                kinds = [places[k][0] + s for k, s in zip(chosen, labels, strict=True)]
                pairs = [
                    (*sorted((kinds[a], kinds[b])), round(apart[chosen[a], chosen[b]], 2))
                    for a in range(size)
                    for b in range(a)
                ]
                key = (tuple(sorted(kinds)), tuple(sorted(pairs)))
                if key in seen:
                    continue
                seen.add(key)
                yield _placed(system, template, places, chosen, labels)


def _separate(apart: np.ndarray, size: int, closest: float) -> Iterator[tuple[int, ...]]:
    """Sets of `size` sites that are not too close, site by site."""

    def extended(chosen: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
        if len(chosen) == size:
            yield chosen
            return
        first = chosen[-1] + 1 if chosen else 0
        for k in range(first, len(apart)):
            if all(apart[k, j] >= closest for j in chosen):
                yield from extended((*chosen, k))

    yield from extended(())


def _placed(
    system: VariedAtoms, template: Atoms, places: Sequence[tuple[str, np.ndarray]],
    chosen: Sequence[int], labels: Sequence[str],
) -> Atoms:  # fmt: skip
    order = sorted(range(len(chosen)), key=lambda k: system.varied.index(labels[k]))
    member = system.members[tuple(labels.count(s) for s in system.varied)]
    x = member.start()[0]
    lift = {"fcc": 2.2, "hcp": 2.2, "bridge": 2.3, "top": 2.5}
    for row, k in enumerate(order, start=len(template)):
        name, point = places[chosen[k]]
        x[row] = point
        x[row, 2] += lift[name]
    return member.assemble(x)


def brute_force(case: Case) -> dict[str, Any]:
    """The lowest relaxed arrangement of each composition."""
    calculator, system = Task(name="emt").calculator(), case.system()
    begun, images = time.process_time(), list(arrangements(case))
    relaxed = relax(images, on_calculator(calculator), 0.01, 200, system.region)
    lowest: dict[str, float] = {}
    for one in relaxed:
        if system.fault(one.atoms) is None:
            name = ",".join(map(str, system.placed(one.atoms)))
            lowest[name] = min(lowest.get(name, np.inf), one.energy)
    return {
        "arrangements": len(images), "evaluations": sum(one.evaluations for one in relaxed),
        "seconds": time.process_time() - begun, "lowest": lowest,
        "references": {s: bulk_energy(s, calculator) for s in case.elements},
    }  # fmt: skip


def envelope_of(case: Case, references: dict[str, float], lowest: dict[str, float]) -> Envelope:
    """The envelope of these energies, by placed atoms."""
    ranges = parse_ranges(case.potentials, "", "")
    low, high = zip(*(ranges[s] for s in case.elements), strict=True)
    empty = Envelope(
        tuple(range(1, len(case.elements) + 1)), tuple(references[s] for s in case.elements),
        low, high,
    )  # fmt: skip
    for name, energy in lowest.items():
        empty = empty.including(tuple(map(int, name.split(","))), energy)
    return empty


def differences(case: Case, brute: dict[str, Any], lowest: dict[str, float]) -> dict[str, Any]:
    """How far Ω of a search lies above that of brute force, and whether the phases agree."""
    known, found = (envelope_of(case, brute["references"], e) for e in (brute["lowest"], lowest))
    points = grid(list(zip(known.lowest, known.highest, strict=True)))[1]

    def omega(envelope: Envelope) -> np.ndarray:
        return np.min([envelope.omega(c, e, points) for c, e in envelope.points.items()], axis=0)

    gap = omega(found) - omega(known)
    return {
        "highest_above": float(gap.max()), "lowest_below": float(gap.min()),
        "reached": bool(gap.max() <= TOLERANCE),
        "same_phases": found.vertices() == known.vertices(),
        "phases": [list(c) for c in found.vertices()],
    }  # fmt: skip


def settings_of(case: Case, file: Path, seed: int, budget: int) -> dict[str, Any]:
    """The settings of a search without those of the atoms."""
    return {
        "system": {"kind": "surface", "template": str(file), "height": HEIGHT},
        "engine": {"name": "emt"},
        "search": {"seed": seed, "budget": budget},
    }


def search(case: Case, brute: dict[str, Any], seed: int) -> dict[str, Any]:
    """One search over all compositions."""
    begun = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "slab.traj"
        write(file, case.template)
        settings = settings_of(case, file, seed, case.budget)
        settings["system"] |= {
            "vary": case.vary, "chemical_potential": case.potentials,
            "reservoirs": ",".join(f"{s}={s}(bulk)" for s in case.elements),
            "reference_energies": {f"{s}(bulk)": e for s, e in brute["references"].items()},
        }  # fmt: skip
        result = Search.create(make_config(settings), Path(place) / "run").run()
    diagram = result.diagram
    assert diagram is not None
    lowest = {
        ",".join(str(phase.counts[s]) for s in case.elements): phase.energy
        for phase in diagram.phases
    }
    return {
        "seed": seed, "evaluations": result.evaluations, "polish": result.polish_evaluations,
        "seconds": time.process_time() - begun, **differences(case, brute, lowest),
        "lowest": lowest, "diagram": diagram.data(),
    }  # fmt: skip


def separate(case: Case, brute: dict[str, Any], seed: int) -> dict[str, Any]:
    """One search per composition, with the same evaluations in all."""
    system, lowest = case.system(), dict[str, float]()
    placed = [counts for counts in system.members if sum(counts)]
    evaluations, polish, begun = 1, 0, time.process_time()
    lowest[",".join("0" for _ in case.elements)] = (
        Task(name="emt").calculator().get_potential_energy(case.template)
    )
    with tempfile.TemporaryDirectory() as place:
        file = Path(place) / "slab.traj"
        write(file, case.template)
        for counts in placed:
            budget = max(round((case.budget - 1) / len(placed)), 5)
            settings = settings_of(case, file, seed, budget)
            settings["system"]["formula"] = system.name_of(counts)
            directory = Path(place) / system.name_of(counts)
            result = Search.create(make_config(settings), directory).run()
            evaluations, polish = (
                evaluations + result.evaluations, polish + result.polish_evaluations
            )  # fmt: skip
            assert result.lowest is not None
            lowest[",".join(map(str, counts))] = result.lowest.energy
    return {
        "seed": seed, "evaluations": evaluations, "polish": polish,
        "seconds": time.process_time() - begun, **differences(case, brute, lowest),
        "lowest": lowest,
    }  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--brute-force", type=Path, metavar="FILE")
    parser.add_argument("--compare", type=Path, metavar="FILE")
    parser.add_argument("--cases", nargs="*", default=list(CASES))
    parser.add_argument("--seeds", nargs=2, type=int, default=(100, 110), metavar=("FIRST", "END"))
    parser.add_argument("--separate", action="store_true")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    with threadpool_limits(1):
        if options.brute_force is not None:
            table = {}
            for name in options.cases:
                table[name] = brute_force(CASES[name])
                print(name, json.dumps(table[name]), flush=True)
                options.brute_force.write_text(json.dumps(table, indent=1) + "\n")
            return
        brute, results = json.loads(options.compare.read_text()), dict[str, Any]()
        for seed in range(*options.seeds):
            for name in options.cases:
                run = (separate if options.separate else search)(CASES[name], brute[name], seed)
                results.setdefault(name, []).append(run)
                short = {k: v for k, v in run.items() if k not in ("diagram", "lowest")}
                print(name, json.dumps(short), flush=True)
                if options.out is not None:
                    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
