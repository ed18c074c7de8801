"""Figure 5: where the time goes, in training and in prediction, for both uncertainties.

    python paper/fig5_timings.py [--repeats 10] [--out DIR]
    python paper/fig5_timings.py --redraw              # from the numbers that ship

Needs: nothing but nugget; structures are made on the spot. Takes: about ten minutes on one quiet
core, seconds with --redraw.

Au20, SOAP (6 Å, n 3, l 2), l = 20, inducing points by CUR, one thread, processor time. Top:
training against structures (m = 1000); middle: against inducing points (200 structures); bottom:
energies, forces, σ and ∇σ of 50 structures. The right column sets the totals against AGOX's, where
`make bench-peers` has written benchmarks/results/peers.json.
"""

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from nugget import CUR, RBF, SOAP, LabelNoise, Potential, ProjectedProcess
from nugget.errors import run_script
from nugget.gp.kernels import KernelRows
from nugget.gp.labels import Labels
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.potential.evaluate import STD
from nugget.report.style import PAGE, Theme, drawing, finish, save
from nugget.structures.batch import as_batch
from nugget.structures.neighbours import find_pairs

HERE = Path(__file__).parent
PEERS = HERE.parent / "benchmarks" / "results" / "peers.json"
MODELS = {"committee": LabelNoise(), "projected process": ProjectedProcess()}
PEER = {"committee": ("ensemble", "exact"), "projected process": ("projected", "projected")}
WORDS = {"committee": "ensemble", "projected process": "projected process"}  # as in the paper
COUNTS, SIZES = (25, 50, 100, 200), (250, 500, 1000, 2000)
SOAP32, KERNEL, NOISE = SOAP(("Au",), 6.0, 3, 2), RBF(20.0), 0.01
# Parts as they were measured, in the order of the work, and as the field calls them.
PARTS = {
    "descriptor": "descriptors (SOAP)",
    "selection": "sparsification (CUR)",
    "kernel": "kernel matrices",
    "solve": "linear solve (QR)",
    "uncertainty": "uncertainty",
    "backward": "gradients (forces, ∇σ)",
}
ROWS = {
    "training n": ("training", "training structures"),
    "training m": ("training", "inducing points $m$"),
    "predict 50": ("prediction", "inducing points $m$"),
}


def clusters(count: int) -> list[Atoms]:
    """Shaken pieces of gold crystal with EMT energies."""
    rng = np.random.default_rng(0)
    crystal = bulk("Au", cubic=True).repeat(4).positions
    images = []
    for _ in range(count):
        origin = crystal.mean(axis=0) + rng.normal(0, 0.7, 3)
        nearest = np.argsort(np.linalg.norm(crystal - origin, axis=1))[:20]
        atoms = Atoms("Au20", positions=crystal[nearest] + rng.normal(0, 0.2, (20, 3)))
        atoms.calc = EMT()
        atoms.get_potential_energy()
        images.append(atoms)
    return images


class Parts:
    """Processor seconds of named parts, one after the other."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.last = time.process_time()

    def done(self, name: str) -> None:
        now = time.process_time()
        self.seconds[name] = self.seconds.get(name, 0.0) + now - self.last
        self.last = now


def train(images: list[Atoms], m: int, model: LabelNoise | ProjectedProcess) -> dict[str, float]:
    """What `Potential.fit` does with energies, with a clock after every part."""
    rng = np.random.default_rng(0)
    y = np.array([atoms.get_potential_energy() for atoms in images])
    parts = Parts()
    batch = as_batch(images)
    env = SOAP32.compute(batch)
    points = Points(env.values, batch.offsets, env.species)
    parts.done("descriptor")
    chosen = CUR(m).select(points, KERNEL, rng)
    parts.done("selection")
    inducing = KERNEL.inducing(points.x[chosen], points.group[chosen])
    rows, gram = inducing.forward(points).k_sum, inducing.gram
    parts.done("kernel")
    labels = Labels.energies(rows, y - y.mean(), NOISE, batch.sizes)
    regression = SparseRegression.fit(gram, labels)
    _ = regression.alpha
    parts.done("solve")
    if isinstance(model, LabelNoise):
        _ = model.fit(regression, rng).weights
    else:
        model.fit(regression)
    parts.done("uncertainty")
    return parts.seconds


def slopes(
    pot: Potential, rows: KernelRows, sizes: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
    """∇σ as weights on ∇k_sum, and what the projected process adds to it by features."""
    fitted = pot.fitted.uncertainty
    own = pot.kernel.self_sum(rows.points) if fitted.uses_prior_variance else None
    nothing = np.zeros(rows.n_inducing)
    _, std, weights = fitted.std_and_weights(
        rows.k_sum, sizes, nothing, STD, None if own is None else own.value
    )
    if own is None:
        return weights[0], None
    return weights[0], own.vjp(fitted.prior_variance_slope(std))


def predict(pot: Potential, images: list[Atoms]) -> dict[str, float]:
    """What `Potential.predict` does for E, F, σ and ∇σ, with a clock after every part."""
    parts = Parts()
    batch = as_batch(images)
    env = pot.descriptor.compute(batch, find_pairs(batch, 6.0))
    parts.done("descriptor")
    rows = pot.fitted.inducing.forward(Points(env.values, batch.offsets, env.species))
    parts.done("kernel")
    b, extra = slopes(pot, rows, batch.sizes)
    parts.done("uncertainty")
    alpha = np.broadcast_to(pot.fitted.regression.alpha, b.shape)
    grad = rows.vjp(np.stack([alpha, b]))
    if extra is not None:
        grad[1] += extra
    env.pullback(grad)
    parts.done("backward")
    return parts.seconds


def median(work: Callable[[], dict[str, float]], repeats: int) -> dict[str, float]:
    """Medians of every part, after one run that does not count."""
    work()
    found = [work() for _ in range(repeats)]
    return {name: float(np.median([f[name] for f in found])) for name in found[0]}


def measure(repeats: int) -> dict[str, dict[str, dict[str, dict[str, float]]]]:
    images = clusters(250)
    results: dict[str, dict[str, dict[str, dict[str, float]]]] = {}
    for name, model in MODELS.items():
        by_n = {
            str(n): median(lambda n=n, u=model: train(images[:n], 1000, u), repeats) for n in COUNTS
        }
        by_m = {
            str(m): median(lambda m=m, u=model: train(images[:200], m, u), repeats) for m in SIZES
        }
        predictions = {}
        for m in SIZES:
            pot = Potential(SOAP32, KERNEL, CUR(m), NOISE, uncertainty=model)
            pot.fit(images[:200], use_forces=False)
            predictions[str(m)] = median(lambda p=pot: predict(p, images[200:]), repeats)
        results[name] = {"training n": by_n, "training m": by_m, "predict 50": predictions}
        print(f"{name}: measured", flush=True)
    return results


def stacked(axis: Axes, found: dict[str, dict[str, float]], label: str, theme: Theme) -> None:
    """Bars of milliseconds, one per size, parts on top of each other."""
    bottom = np.zeros(len(found))
    for k, (part, name) in enumerate(PARTS.items()):
        heights = np.array([1e3 * row.get(part, 0.0) for row in found.values()])
        if any(part in row for row in found.values()):
            axis.bar(list(found), heights, 0.7, bottom, color=theme.colour(k), label=name)
            bottom += heights
    axis.grid(axis="x", visible=False)
    axis.set_xlabel(label)
    axis.set_ylim(0, 1.08 * bottom.max())


def totals(
    axis: Axes, results: dict, row: str, peers: dict | None, label: str, theme: Theme
) -> None:
    """Sums of the parts, and AGOX's, on logarithmic axes."""
    for name, style in zip(MODELS, ("o-", "s--"), strict=True):
        found = results[name][row]
        axis.loglog(
            [int(size) for size in found],
            [sum(parts.values()) for parts in found.values()],
            style,
            color=theme.colour(0),
            label=f"nugget, {WORDS[name]}",
        )
        if peers is not None:
            part = peers[PEER[name][0]]
            theirs = part["predict 50 m"] if row == "predict 50" else part[row]
            theirs = dict(sorted(theirs.items(), key=lambda item: int(item[0])))
            axis.loglog(
                [int(size) for size in theirs],
                [found["agox"]["cpu"]["median"] for found in theirs.values()],
                style,
                color=theme.colour(1),
                label=f"AGOX, {WORDS[name]}",
            )
    axis.set(xlabel=label, ylabel="processor time, s")
    sizes = [int(size) for size in results["committee"][row]]
    axis.set_xticks(sizes, [str(size) for size in sizes])
    axis.minorticks_off()


def draw(results: dict, peers: dict | None, dark: bool) -> Figure:
    with drawing(dark) as theme:
        figure = Figure(figsize=(PAGE, 6.6), layout="constrained")
        axes = figure.subplots(3, 3)
        for axis_row, (row, (what, label)) in zip(axes, ROWS.items(), strict=True):
            for axis, name in zip(axis_row, MODELS, strict=False):
                stacked(axis, results[name][row], label, theme)
                axis.set_title(f"{what}, {WORDS[name]}")
            height = max(axis.get_ylim()[1] for axis in axis_row[:2])
            for axis in axis_row[:2]:
                axis.set_ylim(0, height)
            axis_row[0].set_ylabel("processor time, ms")
            axis_row[1].tick_params(labelleft=False)
            totals(axis_row[2], results, row, peers, label, theme)
            axis_row[2].set_title(f"{what}, total")
        parts: dict = {}
        for axis in (axes[0, 0], axes[2, 0]):
            parts |= dict(zip(*reversed(axis.get_legend_handles_labels()), strict=True))
        axes[2, 2].legend(loc="center", borderpad=0.1, labelspacing=0.2)
        figure.legend(parts.values(), parts.keys(), loc="outside lower center", ncols=3)
        return finish(figure, axes.ravel())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=10, help="of each measurement")
    parser.add_argument("--redraw", action="store_true", help="from the numbers measured last")
    parser.add_argument("--out", type=Path, help="for figure and numbers; else paper/")
    args = parser.parse_args()
    numbers = (args.out or HERE / "results") / "fig5.json"
    args.out = args.out or HERE / "figures"
    args.out.mkdir(parents=True, exist_ok=True)
    if args.redraw:
        results = json.loads((HERE / "results" / "fig5.json").read_text())
    else:
        with threadpool_limits(1):
            results = measure(args.repeats)
    peers = json.loads(PEERS.read_text()) if PEERS.exists() else None
    for dark in (False, True):
        save(draw(results, peers, dark), args.out / "fig5_timings.png", dark)
    numbers.parent.mkdir(exist_ok=True)
    numbers.write_text(json.dumps(results, indent=1) + "\n")
    for name, found in results.items():
        for row, sizes in found.items():
            total = {size: f"{1e3 * sum(parts.values()):.3g} ms" for size, parts in sizes.items()}
            print(f"{name}, {row}: {total}")


if __name__ == "__main__":
    run_script(main)
