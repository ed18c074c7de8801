"""Errors over error bars inside and outside the training data, with and without training domain.

    python benchmarks/outside.py --data PATH [--sets Li Cu ...] [--name outside]

Every set has a model of its training structures and one of its bulk structures alone, both as
`nugget fit` makes them. "before" is the same model without training domain and repulsion. Kinds are
in: (as the training set), far: (compression, expansion, dimers, other crystals) and near: (defects
and sizes that the model of the bulk has not seen). Writes results/NAME.json.
"""

from __future__ import annotations

import argparse
import gc
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import common  # first: it sets one thread
import numpy as np
from ase import Atoms
from outside_sets import SETS, TUNING

from nugget import Posterior, Potential, presets
from nugget.potential.evaluate import MEAN, MEAN_AND_STD, value_and_grad
from nugget.potential.mean_functions.base import SumMeanFunction
from nugget.potential.mean_functions.zbl import ZBL
from nugget.structures.batch import Batch, as_batch

Row = dict[str, Any]


def default_fit(images: list[Atoms]) -> Potential:
    """As `nugget fit` does."""
    species = sorted({symbol for atoms in images for symbol in set(atoms.symbols)})
    potential = presets.auto(species, images)
    potential.uncertainty = Posterior()
    return potential.fit(images, calibrate="loo", choose_noise=True, threads=1)


def without(potential: Potential) -> Potential:
    """The same fit without training domain and repulsion."""
    plain = potential.without_domain()
    state = plain.fitted
    assert isinstance(state.mean_function, SumMeanFunction)
    parts = [part for part in state.mean_function.parts if not isinstance(part, ZBL)]
    mean = parts[0] if len(parts) == 1 else SumMeanFunction(tuple(parts))
    plain._state = replace(state, mean_function=mean)
    return plain


def scores(z: np.ndarray) -> Row:
    size = np.abs(z)
    shares = {f"within_{k}": float(np.mean(size <= k)) for k in (1, 2, 3)}
    return {"rms": float(np.sqrt(np.mean(z**2))), "max": float(size.max()), **shares,
            "beyond_5": float(np.mean(size > 5))}  # fmt: skip


def evaluated(potential: Potential, images: list[Atoms]) -> tuple[Row, np.ndarray, np.ndarray]:
    """Scores of energies and forces, errors over σ of the energies, and σ per atom."""
    forces = not images[0].info.get("pseudo")
    p = potential.predict(images, forces=forces, forces_uncertainty=forces)
    sizes = np.array([len(atoms) for atoms in images])
    error = np.array([a.get_potential_energy() for a in images]) - p.energy
    row: Row = {"energy": scores(error / p.energy_uncertainty)}
    row["rms_error"] = float(np.sqrt(np.mean((error / sizes) ** 2)))
    if p.outside is not None:
        row["outside"] = float(np.mean(p.outside))
    if forces:
        errors = np.concatenate(
            [(a.get_forces() - f).ravel() for a, f in zip(images, p.forces, strict=True)]
        )
        sigma = np.concatenate([s.ravel() for s in p.forces_uncertainty])
        some = np.abs(errors) > 1e-4  # symmetry makes the others exact
        row["forces"] = scores((errors / sigma)[some if some.any() else ~some])
    return row, error / p.energy_uncertainty, p.energy_uncertainty / sizes


def falls(images: list[Atoms], sigma: np.ndarray, kind: str) -> tuple[int, int]:
    """Steps outward along a scan in which σ per atom falls by more than 2 %, and all steps."""
    down = total = 0
    for a, b, s, t in zip(images, images[1:], sigma, sigma[1:], strict=False):
        if a.info.get("base") != b.info.get("base"):
            continue
        outward = (a.info["s"] > b.info["s"]) == (kind == "far:compression")
        if kind == "far:dimer":  # inward, below bond lengths
            if b.info["s"] > 1.8 or a.info["s"] > b.info["s"]:
                continue
            s, t = t, s
        elif not outward:
            continue
        total += 1
        down += bool(t < 0.98 * s)
    return down, total


def cost(potential: Potential, images: list[Atoms]) -> list[Row]:
    """Time of a prediction over that without training domain, in turns."""
    plain = without(potential)
    return [
        row
        for name, chosen in (("one", images[:1]), ("20", images[:20]))
        for row in _times(potential, plain, name, as_batch(chosen))
    ]


def _times(potential: Potential, plain: Potential, name: str, batch: Batch) -> list[Row]:
    wanted = {"E, F, σ": MEAN, "E, F, σ, ∇σ": MEAN_AND_STD}
    work = {
        f"{what} {key}": partial(value_and_grad, model.fitted, batch, coefficients)
        for what, coefficients in wanted.items()
        for key, model in (("after", potential), ("before", plain))
    }
    timings = common.interleaved(work, 1.0)
    return [
        {
            "structures": name,
            "atoms": len(batch.positions),
            "what": what,
            "seconds": float(np.median(timings.samples[f"{what} after"])),
            "ratio": timings.ratio(f"{what} after", f"{what} before"),
        }
        for what in wanted
    ]


def one_set(name: str, data: Path) -> tuple[list[Row], dict[str, list[float]], list[Row]]:
    sets = SETS[name](data)
    rows: list[Row] = []
    z: dict[str, list[float]] = {}
    costs: list[Row] = []
    models = [("all", sets.train, sets.points), ("bulk", sets.bulk_only, sets.beyond)]
    if sets.train is sets.bulk_only:
        models = [("all", sets.train, sets.points + sets.beyond)]
    for part, train, points in models:
        start = time.perf_counter()
        potential = default_fit(train)
        seconds, domain = time.perf_counter() - start, potential.fitted.domain
        plain = without(potential)
        print(f"\n{name}, model of {part}: {len(train)} structures, margin {domain.margin:.3f}, "
              f"near {domain.near:.3f} eV, missing {domain.missing:.3f}, {seconds:.0f} s",
              flush=True)  # fmt: skip
        for kind in sorted({atoms.info["kind"] for atoms in points}):
            own = [atoms for atoms in points if atoms.info["kind"] == kind]
            new, z_new, sigma = evaluated(potential, own)
            old, z_old, _ = evaluated(plain, own)
            row = {"set": name, "model": part, "kind": kind, "n": len(own),
                   "before": old, "after": new}  # fmt: skip
            if kind in ("far:compression", "far:expansion", "far:dimer"):
                row["falls"] = falls(own, sigma, kind)
            group = f"{'tuning' if name in TUNING else 'judging'} {kind.split(':')[0]}"
            z.setdefault(f"{group} before", []).extend(z_old.tolist())
            z.setdefault(f"{group} after", []).extend(z_new.tolist())
            rows.append(row)
            print(_line(row), flush=True)
        if part == "all":
            costs = [{"set": name, **row} for row in cost(potential, sets.points)]
        del potential, plain
        gc.collect()
    return rows, z, costs


def _line(row: Row) -> str:
    new, old = row["after"], row["before"]
    e = new["energy"]
    text = (f"  {row['kind']:24s} n {row['n']:3d} rms z {old['energy']['rms']:8.2f} -> "
            f"{e['rms']:5.2f}, within 1, 2, 3σ {e['within_1']:.2f} {e['within_2']:.2f} "
            f"{e['within_3']:.2f}, max {e['max']:5.1f}, outside {new['outside']:.2f}")  # fmt: skip
    if "forces" in new:
        text += f", forces {old['forces']['rms']:7.2f} -> {new['forces']['rms']:5.2f}"
    if "falls" in row:
        text += f", σ falls in {row['falls'][0]} of {row['falls'][1]} steps"
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--sets", nargs="+", default=list(SETS), choices=list(SETS))
    parser.add_argument("--name", default="outside")
    args = parser.parse_args()
    rows: list[Row] = []
    z: dict[str, list[float]] = {}
    costs: list[Row] = []
    for name in args.sets:
        some, own, times = one_set(name, args.data)
        rows += some
        costs += times
        for group, values in own.items():
            z.setdefault(group, []).extend(values)
        summary = {group: {"n": len(v), **scores(np.array(v))} for group, v in sorted(z.items())}
        common.save(args.name, {"kinds": rows, "summary": summary, "cost": costs})
    header = ["group", "n", "rms z", "within 1σ", "2σ", "3σ", "beyond 5σ"]
    names = ("rms", "within_1", "within_2", "within_3", "beyond_5")
    lines: list[list[object]] = [
        [group, s["n"], *(f"{s[key]:.3g}" for key in names)] for group, s in summary.items()
    ]
    common.table("Energies", header, lines)
    common.table(
        "Time of a prediction over that without training domain",
        ["set", "structures", "atoms", "what", "ratio"],
        [[c["set"], c["structures"], c["atoms"], c["what"], f"{c['ratio']:.3f}"] for c in costs],
    )


if __name__ == "__main__":
    main()
