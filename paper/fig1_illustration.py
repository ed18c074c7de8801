"""Figure 1: what a label-noise committee is.

    python paper/fig1_illustration.py [--out DIR]

Needs: nothing but nugget. Takes: some seconds.

Three members, each with its own prior and its own noisy labels, the mean, and the band of the
committee, in one dimension.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from nugget import RBF, LabelNoise, SparseGPRegressor
from nugget.errors import run_script

ORANGE, GREEN, GREY = "#e8710a", "#2e8b57", "0.45"


def truth(x: np.ndarray) -> np.ndarray:
    return np.sin(1.3 * x)


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's Figure 1.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "figures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    x = np.array([-3.6, -3.0, -2.2, -1.3, -0.7, 0.1, 0.8, 1.2])[:, None]
    grid = np.linspace(-7.0, 5.0, 500)[:, None]
    # E_k = E + γ_k − ρ_k on the labels, ε_k(x) = k_m(x) C E_k + ρ_k: three members.
    model = SparseGPRegressor(
        kernel=RBF(length_scale=0.9, amplitude=1.0),
        noise=0.02,
        uncertainty=LabelNoise(label=0.1, prior=0.9, members=3),
        random_state=317,
    ).fit(x, truth(x[:, 0]))
    mean, std, members = model.predict(grid, return_std=True, return_members=True)
    # Far from all data, a member is its prior.
    _, priors = model.predict(np.array([[1e3]]), return_members=True)

    plt.rcParams.update({"font.size": 10, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(figsize=(6.0, 3.6), layout="constrained")
    at = grid[:, 0]
    axes.fill_between(at, mean - std, mean + std, color=ORANGE, alpha=0.22, lw=0)
    for k, (member, prior) in enumerate(zip(members, priors[:, 0], strict=True)):
        axes.plot(at, member, color=GREY, lw=1.0, label="three members" if k == 0 else None)
        axes.axhline(
            prior,
            color=GREY,
            lw=1.0,
            ls=(0, (5, 4)),
            label="their priors $p_k$" if k == 0 else None,
        )
        axes.annotate(
            f"$p_{k + 1}$", (at[-1], prior), (4, -3), textcoords="offset points", color=GREY
        )
    axes.plot(at, truth(at), color=GREEN, lw=1.8, label="true function")
    axes.plot(at, mean, color=ORANGE, lw=2.0, label=r"mean $\pm\,\sigma$")
    axes.plot(x, truth(x[:, 0]), "o", color="black", ms=5, zorder=5, label="training data")
    axes.set(xlim=(at[0], at[-1]), ylim=(-2.2, 1.6), xlabel="$x$", ylabel="energy")
    axes.legend(ncols=3, frameon=False, fontsize=8.5, loc="lower left")
    for suffix in ("png", "pdf"):
        figure.savefig(out / f"fig1_illustration.{suffix}", dpi=160)
    print(f"wrote {out / 'fig1_illustration.png'} and .pdf")


if __name__ == "__main__":
    run_script(main)
