"""Label noise, posterior and projected process: which error bars hold best, inside and outside.

    python benchmarks/uncertainties.py --data PATH [--sets gold "EMT Pd" ...] [--name uncertainties]

One model of the bulk (or small) structures of each set of `outside_sets.py`, as `nugget fit` makes
it. The three uncertainties share its regression, and each is calibrated on leave-one-out residuals,
with the training domain. Kinds are in: (as the training set), near: (defects and sizes that it does
not contain) and far: (compression, expansion). Writes results/NAME.json.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from outside import default_fit, scores
from outside_sets import SETS, TUNING

from nugget import LabelNoise, Posterior, Potential, ProjectedProcess
from nugget.calibration import spearman
from nugget.calibration.metrics import nll

Row = dict[str, Any]
KINDS = {"label-noise": LabelNoise(), "posterior": Posterior(), "projected": ProjectedProcess()}


def with_uncertainty(potential: Potential, settings: Any) -> tuple[Potential, float]:
    """The same fit with another calibrated uncertainty, and the seconds that this takes."""
    start, other = time.process_time(), potential.copy()
    state, env = potential.fitted, potential.descriptor.compute(potential.fitted.training.batch)
    fitted = settings.fit(
        state.regression, np.random.default_rng(0), lambda: np.empty(0), potential.noise
    )
    other._state = replace(state, uncertainty=fitted)
    other.calibrate_leave_one_out(env)
    return other, time.process_time() - start


def judged(potential: Potential, images: list[Atoms], forces: bool) -> Row:
    """Scores of energies, and of the forces of some structures."""
    sizes = np.array([len(atoms) for atoms in images])
    p = potential.predict(images, forces=False)
    assert p.energy_uncertainty is not None
    truth = np.array([atoms.get_potential_energy() for atoms in images])
    error, std = (truth - p.energy) / sizes, p.energy_uncertainty / sizes
    row: Row = {"energy": scores(error / std), "nll": float(nll(error, np.zeros_like(error), std))}
    row["spearman"] = float(spearman(error, np.zeros_like(error), std))
    if forces:
        some = images[::3]
        q = potential.predict(some, uncertainty=False, forces_uncertainty=True)
        assert q.forces is not None
        assert q.forces_uncertainty is not None
        wrong = np.concatenate([a.get_forces() for a in some]) - np.concatenate(q.forces)
        row["forces"] = scores((wrong / np.concatenate(q.forces_uncertainty)).ravel())
    return row


def one_set(name: str, data: Path) -> list[Row]:
    sets, rows = SETS[name](data), []
    start = time.process_time()
    potential = default_fit(sets.bulk_only)
    seconds, domain = time.process_time() - start, potential.fitted.domain
    assert domain is not None
    chosen = (potential.choices or {})["range"]
    print(f"{name}: {len(sets.bulk_only)} structures, {chosen}, near {domain.near:.3f} eV, "
          f"missing {domain.missing:.3f}, {seconds:.0f} s", flush=True)  # fmt: skip
    trained = {"bulk", "elastic", "aimd"}
    points = [*sets.points, *sets.beyond]
    kinds = sorted({atoms.info["kind"] for atoms in points})
    for key, settings in KINDS.items():
        own, seconds = with_uncertainty(potential, settings)
        print(f"  {key}, {seconds:.0f} s: {own.uncertainty}", flush=True)
        for kind in kinds:
            where, _, what = kind.partition(":")
            if where == "in" and what not in trained:  # not inside for a model of the bulk
                continue
            images = [atoms for atoms in points if atoms.info["kind"] == kind][:60]
            row = judged(own, images, forces=where != "far")
            row |= {"set": name, "uncertainty": key, "kind": kind, "n": len(images)}
            row["role"] = "tuning" if name in TUNING else "judging"
            rows.append(row)
            e = row["energy"]
            text = f"    {kind:22s} n {len(images):3d} rms z {e['rms']:6.2f}, within 1, 2, 3σ "
            text += (
                f"{e['within_1']:.2f} {e['within_2']:.2f} {e['within_3']:.2f}, max {e['max']:.1f}"
            )
            text += f", nll {row['nll']:.2f}, spearman {row['spearman']:.2f}"
            if "forces" in row:
                text += f", forces {row['forces']['rms']:.2f}"
            print(text, flush=True)
    return rows


def table(rows: list[Row]) -> None:
    """Mean |log rms z|, the share of kinds between 0.6 and 1.7, and shares within 3σ."""
    lines: list[list[object]] = []
    for key in KINDS:
        for where in ("in", "near", "far"):
            own = [r for r in rows if r["uncertainty"] == key and r["kind"].startswith(where)]
            if not own:
                continue
            z = np.array([r["energy"]["rms"] for r in own])
            n = np.array([r["n"] for r in own])
            within = np.array([r["energy"]["within_3"] for r in own])
            forces = [abs(np.log(r["forces"]["rms"])) for r in own if "forces" in r]
            lines.append([
                key, where, len(own), f"{np.mean(np.abs(np.log(z))):.2f}",
                f"{np.mean((z > 0.6) & (z < 1.7)):.2f}", f"{np.sum(n * within) / n.sum():.3f}",
                f"{np.mean([r['nll'] for r in own]):.2f}",
                f"{np.mean(forces):.2f}" if forces else "–",
            ])  # fmt: skip
    header = ["uncertainty", "kinds", "number", "mean |log rms z|", "0.6 to 1.7", "within 3σ",
              "NLL", "forces, |log rms z|"]  # fmt: skip
    common.table("Error bars of three uncertainties", header, lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--name", default="uncertainties")
    args = parser.parse_args()
    rows: list[Row] = []
    for name in args.sets:
        rows += one_set(name, args.data)
        common.save(args.name, rows)
    table(rows)


if __name__ == "__main__":
    main()
