"""Dynamics of gold crystals with one model in LAMMPS and in ASE: ns/day and drift of the energy.

    python benchmarks/lammps_speed.py [--atoms 1000 --atoms 10000] [--steps 100] [--out FILE]

The model is the preset `balanced`, fitted to 40 shaken crystals with EMT. Both programs integrate
by velocity Verlet in steps of 2 fs from the same positions and velocities (600 K), in turns, and
compute σ of the energy in every step. Times are processor times, so that other work on the machine
counts little. `list` and `finder` are the seconds to read LAMMPS' neighbour list, and to build one
of the same range with nugget's own finder. Drift is the slope of the total energy, in meV per atom
and ps.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import common  # noqa: F401  (first: it sets one thread)
import numpy as np
from ase import Atoms, units
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io.lammpsdata import write_lammps_data
from ase.md.velocitydistribution import MaxwellBoltzmannDistribution, Stationary
from ase.md.verlet import VelocityVerlet

from nugget import Potential
from nugget.interop.lammps_potential import _PairList, attach, start_lammps
from nugget.presets import balanced
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs

DT, TEMPERATURE, SKIN = 2.0, 600.0, 0.5
SHAPES = {1000: (10, 5, 5), 10000: (25, 10, 10)}


def model() -> Potential:
    rng, images = np.random.default_rng(0), []
    for k in range(40):
        atoms = bulk("Au", cubic=True).repeat((2, 2, 2) if k % 2 else (2, 2, 1))
        atoms.set_cell(atoms.cell.array @ (np.eye(3) + rng.normal(0, 0.03, (3, 3))), True)
        atoms.positions += rng.normal(0, rng.uniform(0.02, 0.25), atoms.positions.shape)
        work = atoms.copy()
        work.calc = EMT()
        results = {name: work.calc.get_property(name, work) for name in ("energy", "forces")}
        atoms.calc = SinglePointCalculator(atoms, **results)
        images.append(atoms)
    return balanced(["Au"], images).fit(images)


def start(count: int) -> Atoms:
    atoms = bulk("Au", cubic=True).repeat(SHAPES[count])
    MaxwellBoltzmannDistribution(atoms, temperature_K=2 * TEMPERATURE, rng=np.random.default_rng(1))
    Stationary(atoms)
    return atoms


class InASE:
    def __init__(self, atoms: Atoms, potential: Potential) -> None:
        self.atoms = atoms.copy()
        self.atoms.calc = potential.calculator(skin=SKIN)
        self.dynamics = VelocityVerlet(self.atoms, DT * units.fs)

    def run(self, steps: int) -> None:
        self.dynamics.run(steps)

    def energy(self) -> float:
        return float(self.atoms.get_total_energy())


class InLammps:
    def __init__(self, atoms: Atoms, potential: Potential) -> None:
        self.lmp = start_lammps(["-log", "none", "-screen", "none"])
        with TemporaryDirectory() as folder:
            path = Path(folder) / "s.data"
            write_lammps_data(path, atoms, masses=True, velocities=True, units="metal")
            for command in ("units metal", f"neighbor {SKIN} bin", f"read_data {path}"):
                self.lmp.command(command)
        self.attached = attach(self.lmp, potential, every=10**9)
        for command in (f"timestep {DT / 1000}", "fix move all nve", "thermo 1000000", "run 0"):
            self.lmp.command(command)

    def run(self, steps: int) -> None:
        self.lmp.command(f"run {steps} pre no post no")
        self.attached.raise_error()

    def energy(self) -> float:
        self.lmp.command("run 0 post no")
        return float(self.lmp.get_thermo("etotal"))

    def list_seconds(self) -> float:
        count = self.lmp.extract_setting("nlocal")
        everyone = count + self.lmp.extract_setting("nghost")
        ids = np.asarray(self.lmp.numpy.extract_atom("id", nelem=everyone))
        begin = time.process_time()
        _PairList.read(self.lmp, ids[:count], ids)
        return time.process_time() - begin


def measure(count: int, steps: int, rounds: int, potential: Potential) -> dict[str, Any]:
    atoms = start(count)
    runs: dict[str, Any] = {"ase": InASE(atoms, potential), "lammps": InLammps(atoms, potential)}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    energies: dict[str, list[float]] = {name: [run.energy()] for name, run in runs.items()}
    for run in runs.values():
        run.run(2)
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.process_time()
            run.run(steps)
            seconds[name].append(time.process_time() - begin)
            energies[name].append(run.energy())
    report: dict[str, Any] = {"atoms": count, "steps": steps, "rounds": rounds}
    picoseconds = np.arange(rounds + 1) * steps * DT / 1000
    for name in runs:
        step = np.array(seconds[name]) / steps
        slope = np.polyfit(picoseconds[1:], energies[name][1:], 1)[0] if rounds > 2 else np.nan
        report[name] = {
            "seconds_per_step": step.tolist(),
            "ns_per_day": float(86400 * DT * 1e-6 / np.median(step)),
            "drift": float(1e3 * slope / count),
            "span": float(1e3 * np.ptp(energies[name][1:]) / count),  # meV/atom
        }
    begin = time.process_time()
    find_pairs(as_batch(atoms), potential.descriptor.cutoff + SKIN)
    report["finder"], report["list"] = time.process_time() - begin, runs["lammps"].list_seconds()
    report["list_reads"] = runs["lammps"].attached.list_reads
    last = runs["lammps"].attached.structure().positions - runs["ase"].atoms.get_positions(
        wrap=True
    )
    length = np.diag(atoms.cell.array)
    report["apart"] = float(np.abs(last - length * np.rint(last / length)).max())
    return report


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--atoms", type=int, action="append", choices=SHAPES)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("lammps_speed.json"))
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    report = json.loads(arguments.out.read_text()) if arguments.out.exists() else {}
    potential = model()
    report["inducing_points"] = len(potential.fitted.inducing)
    for count in arguments.atoms or SHAPES:
        report[str(count)] = measure(count, arguments.steps, arguments.rounds, potential)
        print(json.dumps(report[str(count)], indent=1), flush=True)
        arguments.out.write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
