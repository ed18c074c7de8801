"""Figure 2: three uncertainties, two sets of features.

    python paper/fig2_three_models.py [--out DIR]

Needs: nothing but nugget. Takes: some seconds.

f(x₁, x₂) = cos x₁ + x₂ cos(x₂)/2 along the diagonal x₁ = x₂. Top: features (x₁, x₂). Bottom:
features (x₁/10, x₂/10, cos x₁, cos x₂), which know the periodicity. Columns: projected process,
committee with prior noise only, committee with prior and label noise. A row has one mean.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from nugget import RBF, LabelNoise, ProjectedProcess, SparseGPRegressor
from nugget.errors import run_script

ORANGE, GREEN = "#e8710a", "#2e8b57"


def function(x: np.ndarray) -> np.ndarray:
    return np.cos(x[:, 0]) + 0.5 * x[:, 1] * np.cos(x[:, 1])


def path(t: np.ndarray) -> np.ndarray:
    """The diagonal of the plane, from (-8, -8) at t = -8 to (8, 8) at t = 8."""
    return np.stack([t, t], axis=1)


def plain(x: np.ndarray) -> np.ndarray:
    return x


def periodic(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x / 10.0, np.cos(x)], axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description="The paper's Figure 2.")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "figures")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)

    grid = np.linspace(-8.0, 8.0, 400)
    train = np.linspace(-4.0, 4.0, 13)
    true, labels = function(path(grid)), function(path(train))
    unknown = np.abs(grid) > 4.3
    columns = {
        "projected process": ProjectedProcess(),
        r"prior noise only, $\sigma_p = 2$": LabelNoise(label=0.0, prior=2.0),
        r"prior and label noise, $\sigma_l = 0.05$": LabelNoise(label=0.05, prior=2.0),
    }
    rows = {"$(x_1, x_2)$": (plain, 1.5), r"$(x_i/10,\ \cos x_i)$": (periodic, 2.5)}

    plt.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False})
    figure, axes = plt.subplots(
        2, 3, figsize=(9.0, 5.0), sharex=True, sharey=True, layout="constrained"
    )
    for i, (row, (features, length)) in enumerate(rows.items()):
        for j, (title, uncertainty) in enumerate(columns.items()):
            model = SparseGPRegressor(
                RBF(length, amplitude=4.0), noise=0.01, uncertainty=uncertainty
            ).fit(features(path(train)), labels)
            mean, std = model.predict(features(path(grid)), return_std=True)
            inside = np.mean(np.abs(mean - true)[unknown] < 2 * std[unknown])
            panel = axes[i, j]
            panel.fill_between(grid, mean - 2 * std, mean + 2 * std, color=ORANGE, alpha=0.3, lw=0)
            panel.plot(grid, true, color=GREEN, lw=1.6, label="true function")
            panel.plot(grid, mean, color=ORANGE, lw=1.6, label=r"mean $\pm\,2\sigma$")
            panel.plot(train, labels, "o", color="black", ms=3.5, label="training data", zorder=5)
            panel.text(0.02, 0.97, f"({'abcdef'[3 * i + j]})", transform=panel.transAxes, va="top")
            panel.text(
                0.98,
                0.03,
                f"{inside:.0%} of the extrapolation inside",
                transform=panel.transAxes,
                ha="right",
                fontsize=8,
                color="0.35",
            )
            if i == 0:
                panel.set_title(title, fontsize=10)
            if j == 0:
                panel.set_ylabel(f"features {row}\n$f$")
    axes[0, 0].set(xlim=(-8, 8), ylim=(-5.8, 5.4), xticks=(-8, -4, 0, 4, 8))
    handles, names = axes[0, 0].get_legend_handles_labels()
    figure.legend(handles, names, loc="outside lower center", ncols=3, frameon=False)
    for panel in axes[1]:
        panel.set_xlabel("$x_1 = x_2$")
    for suffix in ("png", "pdf"):
        figure.savefig(out / f"fig2_three_models.{suffix}", dpi=150)
    print(f"wrote {out / 'fig2_three_models.png'} and .pdf")


if __name__ == "__main__":
    run_script(main)
