"""Dynamics that are learned on the fly, against the engine's own.

    python benchmarks/on_the_fly/dynamics.py [--systems Cu108 ...] [--steps 5000] [--seed 3]

Engine calls, the share of force components of frames that were not called whose error is below the
allowed one, radial distribution and mean energy beside the engine's own dynamics, and the drift of
an NVE run once learning is frozen. Prints a table and writes results/on_the_fly_md.json. Runs are
kept in --out, and continued from there if they were broken off; --only learn and --only engine make
only the run that learns, and only the engine's own.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms, units
from ase.build import bulk, molecule
from ase.io import read, write
from ase.md.verlet import VelocityVerlet
from ase.optimize import BFGS
from scipy.spatial.transform import Rotation

from nugget.engines import make_calculator
from nugget.onthefly.molecular_dynamics import (
    MDProgress,
    MDRun,
    integrator,
    summary,
    thermal_momenta,
)
from nugget.onthefly.run_settings import MDConfig

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]

from common import save, table  # noqa: E402

LIMIT = 0.1  # eV/Å
FRAMES = 200


def au20() -> Atoms:
    """The tetrahedron, relaxed with the engine."""
    places = [(i, j, k) for i in range(4) for j in range(4 - i) for k in range(4 - i - j)]
    cell = np.array([[0, 1, 1], [1, 0, 1], [1, 1, 0]]) * 2.04
    atoms = Atoms("Au20", np.array(places) @ cell)
    return relaxed(atoms, "gfn1-xtb")


def liquid_silicon() -> Atoms:
    """64 atoms at the density of the crystal, molten by the engine at 3500 K."""
    atoms = bulk("Si", cubic=True) * (2, 2, 2)
    rng = np.random.default_rng(11)
    config = MDConfig(temperature=3500.0)
    atoms.calc = make_calculator("tersoff")
    thermal_momenta(atoms, 7000.0, rng)
    dynamics = integrator(atoms, config, rng)
    for _ in range(400):
        dynamics.step()
    atoms.calc = None
    atoms.set_momenta(np.zeros((64, 3)))
    return atoms


def eight_waters() -> Atoms:
    """A cube of eight molecules, turned at random, relaxed with the engine."""
    atoms, rng, water = Atoms(), np.random.default_rng(8), molecule("H2O")
    for place in np.ndindex(2, 2, 2):
        one = water.copy()
        turn = Rotation.random(random_state=rng)
        one.positions = turn.apply(one.positions - one.positions[0]) + 2.9 * np.array(place)
        atoms += one
    return relaxed(atoms, "gfn2-xtb", 0.1)


def copper() -> Atoms:
    return bulk("Cu", cubic=True) * (3, 3, 3)


def silicon() -> Atoms:
    return bulk("Si", cubic=True) * (2, 2, 2)


# start, engine, temperature (K), time step (fs), range of the distribution of distances (Å)
MD: dict[str, tuple[Any, str, float, float, tuple[float, float]]] = {
    "Cu108": (copper, "emt", 600.0, 2.0, (1.5, 5.2)),
    "Au20": (au20, "gfn1-xtb", 600.0, 2.0, (1.5, 8.0)),
    "8 H2O": (eight_waters, "gfn2-xtb", 300.0, 0.5, (0.5, 8.0)),
    "Si64": (silicon, "tersoff", 600.0, 2.0, (1.5, 5.2)),
    "liquid Si64": (liquid_silicon, "tersoff", 3000.0, 2.0, (1.5, 5.2)),
}


def relaxed(atoms: Atoms, engine: str, fmax: float = 0.05) -> Atoms:
    atoms = atoms.copy()
    atoms.calc = make_calculator(engine)
    BFGS(atoms, logfile=None).run(fmax=fmax, steps=300)
    atoms.calc = None
    return atoms


def distances(frames: list[Atoms], limits: tuple[float, float]) -> np.ndarray:
    """A normalised histogram of distances: 60 bins that add up to one."""
    found = [a.get_all_distances(mic=a.pbc.any())[np.triu_indices(len(a), 1)] for a in frames]
    counts = np.histogram(np.concatenate(found), bins=60, range=limits)[0]
    return counts / counts.sum()


def config_of(name: str, steps: int, seed: int) -> MDConfig:
    _, engine, temperature, dt, _ = MD[name]
    return MDConfig.model_validate(
        {"engine": {"name": engine}, "steps": steps, "temperature": temperature, "seed": seed,
         "dt": dt, "max_force_error": LIMIT, "every": max(steps // 250, 1)}
    )  # fmt: skip


def engine_dynamics(name: str, steps: int, seed: int, folder: Path) -> list[Atoms]:
    """Frames of the engine's own run, without its first fifth; kept in the folder."""
    path = folder / f"engine-{name.replace(' ', '-')}-{steps}-seed{seed}.extxyz"
    if path.exists():
        return read(path, ":")
    atoms, rng = MD[name][0](), np.random.default_rng(seed)
    atoms.calc = make_calculator(MD[name][1])
    config = config_of(name, steps, seed)
    thermal_momenta(atoms, config.temperature, rng)
    dynamics = integrator(atoms, config, rng)
    frames, begun = [], time.process_time()
    for step in range(steps):
        dynamics.step()
        if step >= steps // 5 and step % 10 == 0:
            frames.append(atoms.copy())
            frames[-1].info["engine_energy"] = atoms.get_potential_energy()
    frames[0].info["seconds_per_step"] = (time.process_time() - begun) / steps
    folder.mkdir(parents=True, exist_ok=True)
    write(path, frames)
    return frames


def learn(name: str, steps: int, seed: int, folder: Path) -> tuple[MDRun, MDProgress, float | None]:
    """A run that learns, or what is left of it; its progress and seconds per step."""
    directory = folder / f"{name.replace(' ', '-')}-{steps}-seed{seed}"
    if (directory / "run.json").exists():
        run = MDRun.resume(directory)
    else:
        run = MDRun.create(MD[name][0](), config_of(name, steps, seed), directory)
    begun = time.process_time()
    progress = run.run()
    report = directory / "seconds_per_step.txt"
    if progress.done_here == steps:  # in one go: the time is that of the whole run
        report.write_text(str((time.process_time() - begun) / steps))
    return run, progress, float(report.read_text()) if report.exists() else None


def measure_md(name: str, steps: int, reference: int, seed: int, folder: Path) -> dict[str, Any]:
    _, engine, temperature, dt, limits = MD[name]
    run, progress, seconds = learn(name, steps, seed, folder)
    directory, config = run.directory, run.config
    frames = read(directory / "md.extxyz", ":")
    called = {call["step"] for call in progress.calls}
    free = [a for a in frames if a.info["step"] not in called and a.info["step"] > steps // 50]
    calculator = make_calculator(engine)
    errors, bars = [], []
    for atoms in free[-FRAMES:]:
        said = atoms.calc.results["forces"]
        errors.append(np.abs(calculator.get_property("forces", atoms.copy()) - said).ravel())
        bars.append(atoms.arrays["forces_uncertainty"].ravel())
    error, bar = np.array(errors), np.array(bars)
    later = [a for a in frames if a.info["step"] >= steps // 5]
    mine = [a.get_potential_energy() for a in later]
    theirs = engine_dynamics(name, reference, seed + 100, folder)
    energies = [a.info["engine_energy"] for a in theirs]
    per_step = theirs[0].info["seconds_per_step"]
    gap = distances(later, limits) - distances(theirs, limits)
    half = len(theirs) // 2  # how much two halves of the engine's own run differ
    own = distances(theirs[:half], limits) - distances(theirs[half:], limits)
    report = summary(progress, config)
    drift = frozen_drift(run, dt)
    print(f"{name}: {report['calls']} calls", flush=True)
    # What is measured here wins: the summary's share within 2σ is that of its calls.
    return {
        **report, "calls_within_two_std": report["within_two_std"], "system": name,
        "engine": engine, "temperature": temperature, "seed": seed, "dt": dt,
        "steps": steps, "frames": len(errors), "reference_steps": reference,
        "below_limit": mean(error <= LIMIT), "within_two_std": mean(error <= 2 * bar),
        "rms_error": None if not errors else float(np.sqrt(np.mean(error**2))),
        "mean_std": mean(bar),
        "rdf_difference": float(0.5 * np.abs(gap).sum()),
        "rdf_difference_of_halves": float(0.5 * np.abs(own).sum()),
        "mean_energy": float(np.mean(mine)), "engine_mean_energy": float(np.mean(energies)),
        "atoms": len(run.atoms),
        "mean_energy_error": float(np.hypot(blocks(mine), blocks(energies))),
        "drift_mev_per_atom_10ps": drift,
        "seconds_per_step": seconds, "engine_seconds_per_step": per_step,
    }  # fmt: skip


def mean(values: np.ndarray) -> float | None:
    """None if there are no values: a short run may have called the engine at every frame."""
    return float(np.mean(values)) if values.size else None


def shown(value: float | None, form: str, factor: float = 1.0) -> str:
    """A number for the table, a dash if there is none."""
    return "—" if value is None or np.isnan(value) else format(factor * value, form)


def blocks(values: list[float]) -> float:
    """Standard error of a mean, from five blocks of a series."""
    means = [np.mean(part) for part in np.array_split(values, 5)]
    return float(np.std(means, ddof=1) / np.sqrt(5))


def frozen_drift(run: MDRun, dt: float, steps: int = 5000) -> float:
    """Slope of the total energy of an NVE run on the frozen model, meV/atom per 10 ps."""
    atoms, calculator = run.atoms, run.calculator
    calculator.frozen = True
    dynamics = VelocityVerlet(atoms, dt * units.fs)
    energies = []
    for _ in range(steps):
        dynamics.step()
        energies.append(atoms.get_total_energy() / len(atoms))
    slope = np.polyfit(np.arange(steps) * dt * 1e-3, energies, 1)[0]  # eV/atom/ps
    return float(1e4 * slope)


def show(results: list[dict[str, Any]]) -> None:
    rows = []
    for r in results:
        shift = 1e3 * (r["mean_energy"] - r["engine_mean_energy"]) / r["atoms"]
        error = 1e3 * r["mean_energy_error"] / r["atoms"]
        rows.append([
            f"{r['system']} ({r['engine']}, {r['temperature']:.0f} K)",
            f"{r['calls']} ({100 * r['calls_share']:.2f} %)", shown(r["below_limit"], ".1%"),
            shown(r["rms_error"], ".3f"), shown(r["within_two_std"], ".1%"),
            f"{r['rdf_difference']:.3f} ({r['rdf_difference_of_halves']:.3f})",
            f"{shown(shift, '+.1f')} ± {shown(error, '.1f')}",
            f"{r['drift_mev_per_atom_10ps']:+.2f}",
            f"{shown(r['seconds_per_step'], '.0f', 1e3)} / "
            f"{shown(r['engine_seconds_per_step'], '.0f', 1e3)}",
        ])  # fmt: skip
    header = ["system", "calls", f"forces to {LIMIT} eV/Å", "RMS, eV/Å", "within 2σ",
              "RDF difference (of halves)", "mean energy, meV/atom", "drift, meV/atom/10 ps",
              "ms per step, ours / engine's"]  # fmt: skip
    table(f"{results[0]['steps']} steps that learn", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", choices=("learn", "engine"), help="make these runs, compare none")
    parser.add_argument("--systems", nargs="+", default=list(MD), help="some of the names")
    parser.add_argument("--steps", type=int, default=5000, help="of the run that learns")
    parser.add_argument("--reference", type=int, default=2000, help="steps of the engine's own run")
    parser.add_argument("--out", type=Path, default=Path("runs/on_the_fly"), help="for the runs")
    parser.add_argument("--seed", type=int, default=3, help="of velocities and choices")
    parser.add_argument("--name", default="on_the_fly_md", help="of the file of results")
    args = parser.parse_args()
    if args.only == "learn":
        for name in args.systems:
            learn(name, args.steps, args.seed, args.out)
    elif args.only == "engine":
        for name in args.systems:
            engine_dynamics(name, args.reference, args.seed + 100, args.out)
    else:
        results = [
            measure_md(name, args.steps, args.reference, args.seed, args.out)
            for name in args.systems
        ]
        show(results)
        save(args.name, {"results": results})


if __name__ == "__main__":
    main()
