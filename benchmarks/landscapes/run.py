"""How often and how soon searches find the lowest structures: many landscapes, paired seeds.

    python benchmarks/landscapes/run.py --set tuning --seeds 5 --variants "default;before" -j 2
    python benchmarks/landscapes/run.py --systems Au20 LJ38 --first 1000 --seeds 20

Every search is a directory below --out and is continued if it was interrupted; what is done is not
done again. A search ends when its reference is found: the bonds and, relaxed with the engine, the
energy within 0.05 eV. Prints success with Wilson intervals, medians of Kaplan and Meier, rms of
error/σ over evaluations 6 to 40 of all seeds, ratios of evaluations paired by seed (searches
without success count with their budget), each with p of an exact sign-flip test that the first
variant is worse. Writes results/landscapes_NAME.json and .png.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
os.environ["PYTHONPATH"] = os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")])

import common  # noqa: E402  first: it sets one thread
import numpy as np  # noqa: E402
from systems import SYSTEMS, reference_file, settings  # noqa: E402

VARIANTS: dict[str, dict[str, Any]] = {
    "default": {},
    # The defaults of version 0.1.
    "before": {
        "model.use_forces": False,
        "model.n_max": 3,
        "model.l_max": 2,
        "search.explore": 0,
        "search.generators": {"symmetric": 2.0, "copies": 0.0},
    },
    "energies": {"model.use_forces": False},
    "no exploring": {"search.explore": 0},
    "no symmetric": {"search.generators": {"symmetric": 0.0}},
    "no symmetry": {"search.generators": {"symmetric": 0.0, "copies": 0.0}},
    "no walkers": {"search.walkers": 0},
    "walk always": {"search.walk": "always"},
    "walk always, no symmetric": {
        "search.generators": {"symmetric": 0.0},
        "search.walk": "always",
    },
}


Job = tuple[str, str, int, str, int | None]  # system, variant, seed, directory, budget


def result_file(job: Job) -> Path:
    name, variant, seed, out, _ = job
    folder = Path(out) / name.replace(" ", "-") / variant.replace(" ", "-").replace(",", "")
    return folder / f"seed{seed}.json"


def one(job: Job) -> dict[str, Any]:
    """One search, from where it stands."""
    from nugget.errors import NuggetError
    from nugget.search import Search, make_config
    from nugget.systems.system_settings import DEFAULT_GENERATORS

    name, variant, seed, _, budget = job
    folder = result_file(job).parent
    directory, done = folder / f"seed{seed}", result_file(job)
    if done.exists():
        row: dict[str, Any] = json.loads(done.read_text())
        return row
    if (directory / "config.toml").exists():
        search = Search.resume(directory, trust=True)
    else:
        tree = settings(name, folder)
        tree["search"].update(seed=seed, reference=str(reference_file(name)))
        if budget is not None:
            tree["search"]["budget"] = budget
        for key, value in VARIANTS[variant].items():
            section, option = key.split(".")
            generators = {**DEFAULT_GENERATORS, **value} if option == "generators" else value
            tree[section][option] = generators
        search = Search.create(make_config(tree), directory)
    try:
        result = search.run()
        found, evaluations, minima = result.found, result.evaluations, result.minima
    except NuggetError as error:  # ten failures in a row: it does not find it within the budget
        print(f"{directory} broke off: {error}", flush=True)
        found, evaluations, minima = False, search.config.search.budget, []
    good = [record for record in search.store.records() if record.ok]
    early = [r for r in good[5:40] if r.predicted is not None and r.std]
    z = [(r.energy - r.predicted) / (r.scale * r.std) for r in early]  # type: ignore[operator]
    lowest = min([r.energy for r in good] + [one.energy for one in minima])
    reference = min(atoms.get_potential_energy() for atoms in search.references)
    row = {
        "system": name,
        "variant": variant,
        "seed": seed,
        "found": found,
        "evaluations": evaluations,
        "above": lowest - reference,
        "explored": sum(r.purpose == "explore" for r in good),
        "z": [round(float(value), 3) for value in z],
        "engine_seconds": sum(r.engine_seconds for r in good),
        "surrogate_seconds": sum(r.surrogate_seconds for r in good),
    }
    done.write_text(json.dumps(row))
    return row


def summarise(rows: list[dict[str, Any]]) -> list[list[object]]:
    from nugget.campaign import KaplanMeier, wilson

    table: list[list[object]] = []
    for name in dict.fromkeys(row["system"] for row in rows):
        own = [row for row in rows if row["system"] == name]
        for variant in dict.fromkeys(row["variant"] for row in own):
            some = [row for row in own if row["variant"] == variant]
            hits = sum(row["found"] for row in some)
            low, high = wilson(hits, len(some))
            curve = KaplanMeier.of([r["evaluations"] for r in some], [r["found"] for r in some])
            zs = [value for row in some for value in row["z"]]
            steps = sum(row["evaluations"] for row in some)
            times = [1e3 * sum(row[f"{p}_seconds"] for row in some) / steps for p in PARTS]
            table.append(
                [
                    name,
                    variant,
                    f"{hits}/{len(some)}",
                    f"{low:.0%}–{high:.0%}",
                    curve.median or "–",
                    f"{np.sqrt(np.mean(np.square(zs))):.2f}" if zs else "–",
                    *(f"{t:.0f}" for t in times),
                ]
            )
    return table


PARTS = ("engine", "surrogate")


def ratios(rows: list[dict[str, Any]], above: str, below: str) -> dict[str, Any] | None:
    """Geometric mean over systems of the paired ratio of evaluations, with a bootstrap interval."""
    found = {(r["system"], r["variant"], r["seed"]): r["evaluations"] for r in rows}
    logs: dict[str, list[float]] = {}
    for (system, variant, seed), count in found.items():
        if variant == above and (system, below, seed) in found:
            logs.setdefault(system, []).append(np.log(count / found[system, below, seed]))
    if not logs:
        return None
    rng = np.random.default_rng(0)
    draws = [
        np.mean([np.mean(rng.choice(values, len(values))) for values in logs.values()])
        for _ in range(2000)
    ]
    low, high = np.exp(np.quantile(draws, [0.025, 0.975]))
    return {
        "ratio": float(np.exp(np.mean([np.mean(v) for v in logs.values()]))),
        "interval": [float(low), float(high)],
        "systems": {name: float(np.exp(np.mean(v))) for name, v in logs.items()},
        "pairs": {name: len(values) for name, values in logs.items()},
        "p_worse": {name: p_worse(values) for name, values in logs.items()},
    }


def p_worse(logs: list[float]) -> float:
    """Chance of a mean as high as this if the sign of each pair's log ratio were a coin's."""
    signs = np.array(list(product((1, -1), repeat=len(logs)))) if len(logs) <= 12 else None
    if signs is None:
        signs = np.random.default_rng(0).choice([1, -1], (4096, len(logs)))
    return float(np.mean(signs @ np.abs(logs) >= np.sum(logs) - 1e-12))


def figure(rows: list[dict[str, Any]], path: Path) -> None:
    """Share of searches that have succeeded against evaluations, one panel per system."""
    from matplotlib.figure import Figure

    from nugget.report.style import PAGE, drawing, finish

    names = list(dict.fromkeys(row["system"] for row in rows))
    columns = min(4, len(names))
    lines = -(-len(names) // columns)
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    with drawing() as theme:
        fig = Figure(figsize=(PAGE * max(columns, 2) / 4, 1.9 * lines), layout="constrained")
        axes = fig.subplots(lines, columns, squeeze=False)
        for ax, name in zip(axes.flat, names, strict=False):
            own = [row for row in rows if row["system"] == name]
            end = 1.05 * max(row["evaluations"] for row in own)
            for k, variant in enumerate(variants):
                some = [row for row in own if row["variant"] == variant]
                hits = sorted(row["evaluations"] for row in some if row["found"])
                share = [j / max(len(some), 1) for j in range(len(hits) + 1)]
                style = {"color": theme.colour(k), "linestyle": ("-", "--", ":")[k % 3]}
                if some:
                    x, y = [0, *hits, end], [*share, share[-1]]
                    ax.step(x, y, where="post", label=variant, **style)
            ax.set(title=name, ylim=(-0.03, 1.05), xlim=(0, end))
        for ax in axes[-1]:
            ax.set_xlabel("evaluations")
        for ax in axes[:, 0]:
            ax.set_ylabel("share found")
        for ax in axes.flat[len(names) :]:
            ax.remove()
        found = [ax.get_legend_handles_labels() for ax in axes.flat[: len(names)]]
        labelled = {text: line for one in found for line, text in zip(*one, strict=True)}
        fig.legend(labelled.values(), labelled, loc="outside lower center", ncols=len(labelled))
        finish(fig, axes.flat[: len(names)] if len(names) > 1 else ())
    fig.savefig(path, dpi=200)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--set", choices=["tuning", "verification"], default="tuning")
    parser.add_argument("--systems", nargs="+", choices=list(SYSTEMS), help="instead of --set")
    parser.add_argument("--variants", default="default;before", help="; ".join(VARIANTS))
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--budget", type=int)
    parser.add_argument("-j", "--processes", type=int, default=1)
    parser.add_argument("--out", default="runs/landscapes")
    parser.add_argument("--done", action="store_true", help="no search; tables of what is there")
    parser.add_argument("--name", help="results/landscapes_NAME.json; default: the set")
    parser.add_argument("--redraw", action="store_true", help="the figure alone, from --name")
    args = parser.parse_args()
    name = f"landscapes_{args.name or args.set}"
    if args.redraw:
        rows = json.loads((common.RESULTS / f"{name}.json").read_text())["results"]["rows"]
        figure(rows, common.RESULTS / f"{name}.png")
        return
    names = args.systems or [name for name, one in SYSTEMS.items() if one.set == args.set]
    variants = args.variants.split(";")
    jobs = [
        (name, variant, seed, args.out, args.budget)
        for name in names
        for seed in range(args.first, args.first + args.seeds)
        for variant in variants
    ]
    if args.done:
        jobs = [job for job in jobs if result_file(job).exists()]
    rows = []
    with ProcessPoolExecutor(args.processes) as pool:
        for row in pool.map(one, jobs):
            rows.append(row)
            print(
                f"{row['system']:9} {row['variant']:14} seed {row['seed']:4d}: "
                f"{'found at' if row['found'] else 'not in'} {row['evaluations']}, "
                f"best {row['above']:+.3f} eV, {row['explored']} to explore",
                flush=True,
            )
    header = [
        "system", "variant", "found", "95 %", "median", "rms z", "engine ms", "surrogate ms",
    ]  # fmt: skip
    common.table("Success within the budget", header, summarise(rows))
    compared = {other: ratios(rows, variants[0], other) for other in variants[1:]}
    for other, found in compared.items():
        if found is not None:
            low, high = found["interval"]
            whole = f"{found['ratio']:.2f} ({low:.2f}–{high:.2f})"
            lines: list[list[object]] = [
                [system, f"{value:.2f}", found["pairs"][system], f"{found['p_worse'][system]:.2f}"]
                for system, value in found["systems"].items()
            ]
            title = f"Evaluations, {variants[0]} / {other}: geometric mean {whole}"
            common.table(title, ["system", "ratio", "pairs", "p of being worse"], lines)
    common.save(name, {"rows": rows, "ratios": compared})
    figure(rows, common.RESULTS / f"{name}.png")


if __name__ == "__main__":
    main()
