"""AGOX, GAP and nugget on several elements and periodic cells: Cu/Au 20, NaCl 32, MgO slab 72.

    python benchmarks/peers/materials.py --agox ENV/bin/python --gap ENV2/bin/python

Each code runs in its own process and environment, on one thread, one after the other in every
round; times are processor seconds, ratios are formed within a round. With AGOX: SOAP (3, 2) with
6 Å, energies of 100 structures, m = 1000, ten members. With GAP: SOAP (8, 6) with 6 Å, energies and
forces of 40 structures, 500 points. Labels come from EMT (Cu/Au) and a pair potential (the others).
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

import common  # noqa: E402
import numpy as np  # noqa: E402
from ase import Atoms  # noqa: E402
from ase.build import bulk  # noqa: E402
from ase.calculators.emt import EMT  # noqa: E402
from ase.calculators.lj import LennardJones  # noqa: E402
from ase.calculators.singlepoint import SinglePointCalculator  # noqa: E402
from ase.io import write  # noqa: E402
from limits import alloys, rock_salt  # noqa: E402
from protocol import ONE_THREAD  # noqa: E402

COUNT = 120


def slabs(count: int) -> list[Atoms]:
    """Shaken MgO(100), 72 atoms, periodic along the surface."""
    rng = np.random.default_rng(3)
    crystal = bulk("MgO", "rocksalt", a=4.21, cubic=True).repeat((3, 3, 1))
    crystal.center(vacuum=6.0, axis=2)
    crystal.pbc = (True, True, False)
    images = []
    for _ in range(count):
        atoms = crystal.copy()
        atoms.positions += rng.normal(0, 0.12, (len(atoms), 3))
        images.append(atoms)
    return images


def labelled(images: list[Atoms]) -> list[Atoms]:
    for atoms in images:
        emt = "Au" in atoms.symbols
        atoms.calc = EMT() if emt else LennardJones(sigma=1.9, epsilon=1.0, rc=5.5, smooth=True)
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    mean = float(np.mean([a.get_potential_energy() / len(a) for a in images]))
    for atoms in images:  # AGOX has no species energies: zero on average for all
        atoms.calc.results["energy"] -= mean * len(atoms)
    return images


SYSTEMS = {
    "Cu/Au 20": lambda: alloys(["Cu", "Au"], COUNT),
    "NaCl 32": lambda: rock_salt(COUNT),
    "MgO slab 72": lambda: slabs(COUNT),
}


def ask(python: Path, who: str, against: str, data: Path, log: Path) -> dict[str, Any]:
    """One process: trains, predicts and relaxes, and prints its processor seconds."""
    command = [str(python), str(HERE / "materials_worker.py"), who, against, str(data)]
    with log.open("a") as errors:
        done = subprocess.run(
            command, check=True, stdout=subprocess.PIPE, stderr=errors, text=True, cwd=data.parent,
            env={**os.environ, **ONE_THREAD},
        )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def kept(chosen: list[str]) -> list[dict[str, Any]]:
    """Rows of an earlier run, of systems that are not measured now."""
    path = common.RESULTS / "peers_materials.json"
    rows = json.loads(path.read_text())["results"] if path.exists() else []
    return [row for row in rows if row["system"] not in chosen]


def compare(
    pythons: dict[str, Path], rounds: int, out: Path, chosen: list[str]
) -> list[dict[str, Any]]:
    results = kept(chosen)
    for name, make in SYSTEMS.items():
        if name not in chosen:
            continue
        data = out / "data.extxyz"
        write(data, labelled(make()))
        for peer, python in pythons.items():
            found: dict[str, list[dict[str, Any]]] = {peer: [], "nugget": []}
            for _ in range(rounds):
                found[peer].append(ask(python, peer, peer, data, out / "log"))
                ours = ask(Path(sys.executable), "nugget", peer, data, out / "log")
                found["nugget"].append(ours)
            row: dict[str, Any] = {"system": name, "peer": peer}
            for what in ("train_s", "predict_ms", "relax_ms"):
                theirs, ours_ = ([one[what] for one in found[w]] for w in (peer, "nugget"))
                row[what] = {"peer": median(theirs), "nugget": median(ours_)}
                row[what]["ratio"] = median(a / b for a, b in zip(theirs, ours_, strict=True))
            results.append(row)
            print(json.dumps(row), flush=True)
            common.save("peers_materials", results)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--agox", type=Path, help="python of the environment of AGOX")
    parser.add_argument("--gap", type=Path, help="python of the environment of quippy-ase")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--system", choices=list(SYSTEMS), action="append", help="this one only")
    options = parser.parse_args()
    named = {"agox": options.agox, "gap": options.gap}
    pythons = {name: path.absolute() for name, path in named.items() if path is not None}
    with tempfile.TemporaryDirectory() as folder:
        results = compare(pythons, options.rounds, Path(folder), options.system or list(SYSTEMS))
    rows = [
        [r["system"], r["peer"]]
        + [
            r[w][k]
            for w in ("train_s", "predict_ms", "relax_ms")
            for k in ("peer", "nugget", "ratio")
        ]
        for r in results
    ]
    kinds = ["training, s", "prediction, ms", "relaxation, ms per evaluation"]
    header = [f"{kind}: {k}" for kind in kinds for k in ("peer", "nugget", "×")]
    common.table("Several elements, periodic cells", ["system", "peer", *header], rows)


if __name__ == "__main__":
    main()
