"""Figure 2: three uncertainties, two sets of features.

    python paper/fig2_three_models.py [--out DIR]

Needs: nothing but nugget. Takes: some seconds.

f(x₁, x₂) = cos x₁ + x₂ cos(x₂)/2 along the diagonal x₁ = x₂. Top: features (x₁, x₂). Bottom:
features (x₁/10, x₂/10, cos x₁, cos x₂), which know the periodicity. Columns: projected process,
committee with prior noise only, committee with prior and label noise. A row has one mean.
"""

import argparse
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure

from nugget import RBF, LabelNoise, ProjectedProcess, SparseGPRegressor
from nugget.errors import run_script
from nugget.report.style import PAGE, drawing, finish, save

GRID = np.linspace(-8.0, 8.0, 400)
TRAIN = np.linspace(-4.0, 4.0, 13)
COLUMNS = {
    "projected process": ProjectedProcess(),
    r"prior noise only, $\sigma_p = 2$": LabelNoise(label=0.0, prior=2.0),
    r"prior and label noise, $\sigma_l = 0.05$": LabelNoise(label=0.05, prior=2.0),
}


def function(x: np.ndarray) -> np.ndarray:
    return np.cos(x[:, 0]) + 0.5 * x[:, 1] * np.cos(x[:, 1])


def path(t: np.ndarray) -> np.ndarray:
    """The diagonal of the plane, from (-8, -8) at t = -8 to (8, 8) at t = 8."""
    return np.stack([t, t], axis=1)


def plain(x: np.ndarray) -> np.ndarray:
    return x


def periodic(x: np.ndarray) -> np.ndarray:
    return np.concatenate([x / 10.0, np.cos(x)], axis=1)


ROWS = {"$(x_1, x_2)$": (plain, 1.5), r"$(x_i/10,\ \cos x_i)$": (periodic, 2.5)}


def draw(dark: bool) -> Figure:
    true, labels = function(path(GRID)), function(path(TRAIN))
    unknown = np.abs(GRID) > 4.3
    with drawing(dark) as theme:
        orange, green = theme.colour(1), theme.colour(2)
        figure = Figure(figsize=(PAGE, 4.2), layout="constrained")
        axes = figure.subplots(2, 3, sharex=True, sharey=True)
        for i, (row, (features, length)) in enumerate(ROWS.items()):
            for j, (title, uncertainty) in enumerate(COLUMNS.items()):
                model = SparseGPRegressor(
                    RBF(length, amplitude=4.0), noise=0.01, uncertainty=uncertainty
                ).fit(features(path(TRAIN)), labels)
                mean, std = model.predict(features(path(GRID)), return_std=True)
                inside = np.mean(np.abs(mean - true)[unknown] < 2 * std[unknown])
                panel = axes[i, j]
                panel.grid(visible=False)
                low, high = mean - 2 * std, mean + 2 * std
                panel.fill_between(GRID, low, high, color=orange, alpha=0.3, lw=0)
                panel.plot(GRID, true, color=green, label="true function")
                panel.plot(GRID, mean, color=orange, label=r"mean $\pm\,2\sigma$")
                panel.plot(
                    TRAIN, labels, "o", color=theme.ink, ms=3, label="training data", zorder=5
                )
                panel.text(
                    0.98,
                    0.03,
                    f"{inside:.0%} of the extrapolation inside",
                    transform=panel.transAxes,
                    ha="right",
                    fontsize=7,
                    color=theme.soft,
                )
                if i == 0:
                    panel.set_title(title)
                if j == 0:
                    panel.set_ylabel(f"features {row}\n$f$")
        axes[0, 0].set(xlim=(-8, 8), ylim=(-5.8, 5.4), xticks=(-8, -4, 0, 4, 8))
        for panel in axes[1]:
            panel.set_xlabel("$x_1 = x_2$")
        handles, names = axes[0, 0].get_legend_handles_labels()
        figure.legend(handles, names, loc="outside lower center", ncols=3)
        return finish(figure, axes.ravel())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--out", type=Path, default=Path(__file__).parent / "figures", help="for the figure"
    )
    out = parser.parse_args().out
    for dark in (False, True):
        for file in save(draw(dark), out / "fig2_three_models.png", dark):
            print(f"written: {file}")


if __name__ == "__main__":
    run_script(main)
