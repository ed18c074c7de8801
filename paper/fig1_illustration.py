"""Figure 1: what a label-noise committee is.

    python paper/fig1_illustration.py [--out DIR]

Needs: nothing but nugget. Takes: some seconds.

Three members, each with its own prior and its own noisy labels, the mean, and the band of the
committee, in one dimension.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nugget import RBF, LabelNoise, SparseGPRegressor
from nugget.errors import run_script
from nugget.report.style import COLUMN, drawing, finish, save

X = np.array([-3.6, -3.0, -2.2, -1.3, -0.7, 0.1, 0.8, 1.2])[:, None]
GRID = np.linspace(-7.0, 5.0, 500)[:, None]


def truth(x: np.ndarray) -> np.ndarray:
    return np.sin(1.3 * x)


def draw(model: SparseGPRegressor, dark: bool) -> Figure:
    mean, std, members = model.predict(GRID, return_std=True, return_members=True)
    # Far from all data, a member is its prior.
    _, priors = model.predict(np.array([[1e3]]), return_members=True)
    at = GRID[:, 0]
    with drawing(dark) as theme:
        orange, green, grey = theme.colour(1), theme.colour(2), theme.soft
        figure = Figure(figsize=(1.35 * COLUMN, 2.9), layout="constrained")
        axes = figure.add_subplot()
        axes.grid(visible=False)
        axes.fill_between(at, mean - std, mean + std, color=orange, alpha=0.25, lw=0)
        for k, (member, prior) in enumerate(zip(members, priors[:, 0], strict=True)):
            axes.plot(at, member, color=grey, lw=0.9, label="three members" if k == 0 else None)
            axes.axhline(
                prior,
                color=grey,
                lw=0.9,
                ls=(0, (5, 4)),
                label="their priors $p_k$" if k == 0 else None,
            )
            axes.annotate(
                f"$p_{k + 1}$", (at[-1], prior), (4, -3), textcoords="offset points", color=grey
            )
        axes.plot(at, truth(at), color=green, label="true function")
        axes.plot(at, mean, color=orange, lw=1.8, label=r"mean $\pm\,\sigma$")
        axes.plot(X, truth(X[:, 0]), "o", color=theme.ink, zorder=5, label="training data")
        axes.set(xlim=(at[0], at[-1]), ylim=(-2.2, 1.6), xlabel="$x$", ylabel="energy")
        axes.legend(ncols=3, loc="lower left")
        return finish(figure)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "figures", help="for the figure"
    )
    out = parser.parse_args().out
    # E_k = E + γ_k − ρ_k on the labels, ε_k(x) = k_m(x) C E_k + ρ_k: three members.
    model = SparseGPRegressor(
        kernel=RBF(length_scale=0.9, amplitude=1.0),
        noise=0.02,
        uncertainty=LabelNoise(label=0.1, prior=0.9, members=3),
        random_state=317,
    ).fit(X, truth(X[:, 0]))
    for dark in (False, True):
        for file in save(draw(model, dark), out / "fig1_illustration.png", dark):
            print(f"written: {file}")


if __name__ == "__main__":
    run_script(main)
