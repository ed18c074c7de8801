"""The Gaussian process without atoms: selection, training, growth and prediction, one thread.

    python benchmarks/gp.py [--quick]

"plain" is the same algebra done as it is usually written down: a full SVD for CUR, K_mm inverted,
an explicit (K_mm + AᵀΣ⁻¹A)⁻¹, NumPy's exponential. Both run in turns, so their ratio holds on any
machine.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import common  # first: it sets one thread
import numpy as np

from nugget.gp.inducing import CUR
from nugget.gp.kernels import RBF
from nugget.gp.labels import FORCE, Labels
from nugget.gp.points import Points
from nugget.gp.regression import SparseRegression
from nugget.gp.uncertainty.label_noise import LabelNoise
from nugget.gp.uncertainty.projected import ProjectedProcess
from nugget.potential.evaluate import STD

KERNEL, NOISE, FORCE_NOISE = RBF(20.0), 0.01, 0.05
Work = Callable[[], object]


def features(n: int, rng: np.random.Generator) -> np.ndarray:
    """18 features that follow from few variables, as descriptors do (K_mm becomes singular)."""
    u = rng.normal(size=(n, 4))
    products = np.einsum("na,nb->nab", u, u).reshape(n, 16)[:, :14]
    return np.concatenate([u * [16.0, 3.0, 2.6, 1.3], 0.3 * products], axis=1)


def structures(count: int, rng: np.random.Generator) -> Points:
    """`count` structures of 20 environments."""
    n = 20 * count
    return Points(features(n, rng), np.arange(0, n + 1, 20), np.zeros(n, dtype=np.int64))


def plain_cur(
    x: np.ndarray, m: int, rng: np.random.Generator, full_matrices: bool = True
) -> np.ndarray:
    u = np.linalg.svd(x, full_matrices=full_matrices)[0][:, : x.shape[1]]
    p = (u**2).sum(1)
    return rng.choice(len(x), m, replace=False, p=p / p.sum())


def plain_kernel(x: np.ndarray, z: np.ndarray) -> np.ndarray:
    d2 = (x**2).sum(1)[:, None] + (z**2).sum(1) - 2 * x @ z.T
    return np.exp(-0.5 * d2 / KERNEL.length_scale**2)


def plain_training(points: Points, y: np.ndarray, m: int, projected: bool) -> object:
    rng = np.random.default_rng(0)
    z = points.x[plain_cur(points.x, m, rng)]
    k_mm = plain_kernel(z, z) + 1e-10 * np.eye(m)
    a = np.add.reduceat(plain_kernel(points.x, z), points.offsets[:-1], axis=0)
    weight = 1.0 / (NOISE**2 * points.sizes)
    c = np.linalg.inv(k_mm + (a.T * weight) @ a) @ (a.T * weight)
    if projected:
        inner = np.linalg.inv(k_mm + (a.T * weight) @ a)
        return c @ y, np.linalg.inv(k_mm) - inner
    return c @ y, c @ (points.sizes[:, None] * rng.normal(size=(len(y), 10)))


def our_training(points: Points, y: np.ndarray, m: int, projected: bool) -> object:
    rng = np.random.default_rng(0)
    chosen = CUR(m).select(points, KERNEL, rng)
    inducing = KERNEL.inducing(points.x[chosen], points.group[chosen])
    labels = Labels.energies(inducing.forward(points).k_sum, y, NOISE, points.sizes)
    regression = SparseRegression.fit(inducing.gram, labels)
    uncertainty = ProjectedProcess() if projected else None
    if uncertainty is None:
        return regression.alpha, LabelNoise().fit(regression, rng)
    return regression.alpha, uncertainty.fit(regression)


def cur(seconds: float) -> dict[str, float]:
    points = structures(400, np.random.default_rng(0))
    times = common.interleaved(
        {
            "full SVD": lambda: plain_cur(points.x, 1000, np.random.default_rng(0)),
            "thin SVD": lambda: plain_cur(points.x, 1000, np.random.default_rng(0), False),
            "CUR": lambda: CUR(1000).select(points, KERNEL, np.random.default_rng(0)),
        },
        seconds,
    )
    common.table(
        "CUR selection, 1000 of 8000 environments with 18 features",
        ["way", "ms", "ours is faster by"],
        [[name, 1e3 * value, value / times["CUR"]] for name, value in times.items()],
    )
    return times


def training(sizes: list[tuple[int, int]], seconds: float) -> list[dict[str, float]]:
    rows, results = [], []
    for count, m in sizes:
        rng = np.random.default_rng(1)
        points, y = structures(count, rng), rng.normal(size=count)
        work: dict[str, Work] = {
            "committee": partial(our_training, points, y, m, projected=False),
            "projected": partial(our_training, points, y, m, projected=True),
            "plain committee": partial(plain_training, points, y, m, projected=False),
            "plain projected": partial(plain_training, points, y, m, projected=True),
        }
        t = common.interleaved(work, seconds)
        ratios = [t["plain committee"] / t["committee"], t["plain projected"] / t["projected"]]
        rows.append(
            [20 * count, m, 1e3 * t["committee"], ratios[0], 1e3 * t["projected"], ratios[1]]
        )
        results.append({"n_env": 20 * count, "m": m, **t})
    common.table(
        "Training (selection, kernel, solve, uncertainty), energies only",
        ["n_env", "m", "exact committee / ms", "plain/ours", "projected / ms", "plain/ours"],
        rows,
    )
    return results


def force_rows(points: Points, structure: int, z: np.ndarray) -> np.ndarray:
    """60 derivative-like rows of one structure: κ differentiated along random feature changes."""
    rng = np.random.default_rng(structure)
    x = points.x[20 * structure : 20 * structure + 20]
    k = KERNEL.matrix(x, np.zeros(20, int), z, np.zeros(len(z), int))
    moves = rng.normal(size=(60, 20, x.shape[1])) * (rng.random((60, 20, 1)) < 0.4)
    along = moves.reshape(1200, -1) @ z.T - np.einsum("cif,if->ci", moves, x).reshape(-1, 1)
    return np.einsum("cim,im->cm", along.reshape(60, 20, -1), k) / KERNEL.length_scale**2


def growth(m: int, count: int, forces: bool, seconds: float) -> dict[str, float]:
    """One more structure and five more inducing points, against a refit with all of it."""
    rng = np.random.default_rng(2)
    points, y = structures(count + 1, rng), rng.normal(size=count + 1)
    chosen = rng.permutation(CUR(m + 5).select(points, KERNEL, rng))
    inducing = KERNEL.inducing(points.x[chosen], points.group[chosen])
    k_mm, k_sum = inducing.gram, inducing.forward(points).k_sum

    def labels(first: int, last: int) -> Labels:
        parts = [Labels.energies(k_sum[first:last], y[first:last], NOISE, points.sizes[first:last])]
        if forces:
            rows = np.concatenate([force_rows(points, s, inducing.z) for s in range(first, last)])
            n, draw = len(rows), np.random.default_rng(first)
            noise = np.full(n, FORCE_NOISE)
            parts.append(Labels(rows, draw.normal(size=n), noise, np.zeros(n), np.full(n, FORCE)))
        return Labels.concatenate(parts)

    def columns(given: Labels) -> Labels:
        return Labels(given.rows[:, :m], given.y, given.noise, given.count, given.kind)

    old, new = labels(0, count), labels(count, count + 1)
    everything, new_m = Labels.concatenate([old, new]), columns(new)
    last = points.select([count])
    before = SparseRegression.fit(k_mm[:m, :m], columns(old))
    assert before.alpha.size == m  # a model in use has its weights
    committee = LabelNoise()

    # Force rows come from a descriptor and are given to both; everything else is counted.
    def grow() -> object:
        # Growing twice from one parent would copy its rows; a search grows each one once.
        before._store.used = (len(old), m)
        inducing.forward(last)
        after = before.add_rows(new_m).add_inducing(k_mm[:, m:], everything.rows[:, m:])
        return after.alpha, committee.fit(after, rng)

    def refit() -> object:
        CUR(m + 5).select(points, KERNEL, np.random.default_rng(0))
        fresh = KERNEL.inducing(inducing.z, inducing.group)
        fresh.forward(points)
        after = SparseRegression.fit(fresh.gram, everything)
        return after.alpha, committee.fit(after, rng)

    # One more structure with the inducing points as they are, and no uncertainty.
    def add() -> object:
        before._store.used = (len(old), m)
        inducing.forward(last)
        return before.add_rows(new_m).alpha

    def refit_mean() -> object:
        CUR(m).select(points, KERNEL, np.random.default_rng(0))
        fresh = KERNEL.inducing(inducing.z[:m], inducing.group[:m])
        fresh.forward(points)
        return SparseRegression.fit(fresh.gram, columns(everything)).alpha

    times = common.interleaved(
        {"add": add, "refit mean": refit_mean, "grow": grow, "refit": refit}, seconds
    )
    common.table(
        f"One more structure at m = {m}, {len(everything)} labels "
        f"({'energies and forces' if forces else 'energies'})",
        ["work", "grow / ms", "refit / ms", "grow/refit"],
        [
            [name, 1e3 * times[a], 1e3 * times[b], times[a] / times[b]]
            for name, a, b in [
                ("its labels, mean only", "add", "refit mean"),
                ("and 5 inducing points, exact committee", "grow", "refit"),
            ]
        ],
    )
    return times


def prediction(m: int, seconds: float) -> dict[str, float]:
    """Kernel forward and back, and σ with its weights, for one structure and for fifty."""
    rng = np.random.default_rng(3)
    points, y = structures(200, rng), rng.normal(size=200)
    chosen = CUR(m).select(points, KERNEL, rng)
    inducing = KERNEL.inducing(points.x[chosen], points.group[chosen])
    k_sum = inducing.forward(points).k_sum
    labels = Labels.energies(k_sum, y, NOISE, points.sizes)
    regression = SparseRegression.fit(inducing.gram, labels)
    exact = LabelNoise().fit(regression, rng)
    committees = {
        "exact": exact,
        "10 members": LabelNoise(members=10).fit(regression, rng),
    }
    projected = ProjectedProcess().fit(regression)
    results: dict[str, float] = {}
    nothing = np.zeros(m)
    for count in (1, 50):
        where = structures(count, rng)
        rows = inducing.forward(where)
        weights = rng.normal(size=(count, m))
        own = KERNEL.self_sum(where)
        work: dict[str, Work] = {
            "kernel forward": partial(inducing.forward, where),
            "kernel back": partial(rows.vjp, weights),
            "k_ss forward": partial(KERNEL.self_sum, where),
            "k_ss back": partial(own.vjp, own.value),
            "projected: σ, ∇σ weights": partial(
                projected.std_and_weights, rows.k_sum, where.sizes, nothing, STD, own.value
            ),
        }
        for name, committee in committees.items():
            work[f"{name}: σ, ∇σ weights"] = partial(
                committee.std_and_weights, rows.k_sum, where.sizes, nothing, STD
            )
        times = common.interleaved(work, seconds)
        common.table(
            f"Prediction pieces, {count} structure(s) of 20, m = {m}",
            ["piece", "µs per structure"],
            [[name, 1e6 * value / count] for name, value in times.items()],
        )
        results |= {f"{count}: {name}": value / count for name, value in times.items()}
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it runs")
    quick = parser.parse_args().quick
    seconds, m = (0.2, 200) if quick else (2.0, 1000)
    sizes = (
        [(50, 200)] if quick else [(50, 1000), (100, 1000), (200, 500), (200, 1000), (200, 2000)]
    )
    results = {
        "cur": cur(seconds),
        "training": training(sizes, seconds),
        "growth energies": growth(m, 20 if quick else 200, False, seconds),
        "growth forces": growth(m, 10 if quick else 148, True, seconds),
        "prediction": prediction(m, seconds),
    }
    if not quick:
        common.save("gp", results)


if __name__ == "__main__":
    main()
