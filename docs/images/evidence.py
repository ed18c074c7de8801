"""The figures of the evidence pages, from the results of benchmarks.

python docs/images/evidence.py
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
from make import ENDING, HERE
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from nugget.report.style import PAGE, Theme, drawing, finish

RESULTS = HERE.parents[1] / "benchmarks" / "results"


def results(name: str) -> Any:
    content = json.loads((RESULTS / f"{name}.json").read_text())
    return content.get("results", content) if isinstance(content, dict) else content


def canvas(panels: int, height: float = 2.5) -> tuple[Figure, list[Axes]]:
    figure = Figure(figsize=(PAGE, height), layout="constrained")
    return figure, list(np.atleast_1d(figure.subplots(1, panels)))


def groups(axis: Axes, labels: list[str], values: dict[str, list[float]], theme: Theme) -> None:
    """Bars side by side, one group per label."""
    width = 0.8 / len(values)
    for k, (name, heights) in enumerate(values.items()):
        at = np.arange(len(labels)) + (k - (len(values) - 1) / 2) * width
        axis.bar(at, heights, width * 0.92, color=theme.colour(k), label=name)
    axis.set_xticks(np.arange(len(labels)), labels)
    axis.grid(visible=False, axis="x")
    axis.legend(loc="upper center", ncols=len(values))


def accuracy(theme: Theme) -> Figure:
    figure, (left, right) = canvas(2)
    zuo = {element: row["all"] for element, row in results("zuo").items()}
    errors = {"nugget fit": [row["energy"] for row in zuo.values()]}
    for method in ("GAP", "MTP"):
        errors[method] = [row["published"][method][0] for row in zuo.values()]
    groups(left, list(zuo), errors, theme)
    left.set(ylabel="test error, meV/atom", ylim=(0, 0.62), title="Zuo et al. (2020)")
    rows = results("accuracy_sets")
    names = list(dict.fromkeys(row["set"] for row in rows))
    shares = {
        f"within {k}σ": [
            100 * np.mean([row[f"in_energy_{k}"] for row in rows if row["set"] == name])
            for name in names
        ]
        for k in (1, 2)
    }
    groups(right, [name.replace("-", "-\n") for name in names], shares, theme)
    for share in (68.3, 95.4):
        right.axhline(share, color=theme.soft, lw=0.8, ls=":")
    right.set(ylabel="test energies, %", ylim=(0, 120), title="calibration of σ")
    return finish(figure, (left, right))


def searches(theme: Theme) -> Figure:
    figure, (left, right) = canvas(2)
    for k, name in enumerate(("au20", "lj38", "lj75")):
        rows = results(f"landscapes_{name}")["rows"]
        found = np.sort([row["evaluations"] for row in rows if row["found"]])
        share = 100 * np.arange(len(found) + 1) / len(rows)
        label = f"{rows[0]['system']}, {len(rows)} searches"
        left.step([0, *found], share, where="post", color=theme.colour(k), label=label)
    left.set(xlabel="evaluations", ylabel="searches that succeeded, %", xlim=(0, 80))
    left.legend()
    ratios = results("landscapes_verification")["ratios"]["before"]["systems"]
    names = list(ratios)
    right.barh(names, [ratios[name] for name in names], color=theme.colour(0))
    right.axvline(1, color=theme.soft, lw=0.8, ls=":")
    right.invert_yaxis()
    right.grid(visible=False, axis="y")
    right.set(xlabel="evaluations, relative to version 0.1")
    return finish(figure, (left, right))


def crystals(theme: Theme) -> Figure:
    figure, (axis,) = canvas(1, 2.3)
    rows = [row for row in results("crystals") if row["groups"] and row["seed"] >= 200]
    names = list(dict.fromkeys(row["system"] for row in rows))
    for k, name in enumerate(names):
        found = [row["found"] for row in rows if row["system"] == name and row["found"]]
        heights = k + np.linspace(-0.2, 0.2, len(found))
        axis.plot(sorted(found), heights, "o", ms=3.5, color=theme.colour(0))
        axis.plot([np.median(found)] * 2, [k - 0.35, k + 0.35], color=theme.colour(1), lw=2)
    axis.set_yticks(range(len(names)), names)
    axis.invert_yaxis()
    axis.grid(visible=False, axis="y")
    axis.set(xlabel="evaluations until the ground state was found", xlim=(0, 60))
    return finish(figure)


def on_the_fly(theme: Theme) -> Figure:
    figure, (left, right) = canvas(2)
    runs = results("on_the_fly_md")["results"]
    names = [row["system"] for row in runs]
    left.bar(names, [100 * row["calls"] / row["steps"] for row in runs], 0.6, color=theme.colour(0))
    left.grid(visible=False, axis="x")
    left.set(ylabel="engine calls, % of 5000 steps", title="molecular dynamics")
    paths = [row for name in ("", "_gfn1") for row in results(f"on_the_fly_neb{name}")["results"]]
    labels = [row["path"] for row in paths]
    for k, method in enumerate(("nugget", "ase")):
        at = np.arange(len(paths)) + 0.4 * k - 0.2
        calls = [row[method]["calls"] for row in paths]
        right.barh(at, calls, 0.37, color=theme.colour(k), label=["nugget neb", "ASE's NEB"][k])
    right.set_yticks(range(len(paths)), labels)
    right.invert_yaxis()
    right.grid(visible=False, axis="y")
    right.set(xlabel="engine calls", title="barriers")
    right.legend()
    return finish(figure, (left, right))


def speed(theme: Theme) -> Figure:
    figure, panels = canvas(2)
    rows = results("peers_materials")
    names = list(dict.fromkeys(row["system"] for row in rows))
    kinds = (("predict_ms", "time of a prediction"), ("train_s", "time of training"))
    for axis, (key, title) in zip(panels, kinds, strict=True):
        ratios = {
            f"{peer} / nugget": [
                next(r[key]["ratio"] for r in rows if (r["system"], r["peer"]) == (name, tag))
                for name in names
            ]
            for tag, peer in (("agox", "AGOX"), ("gap", "GAP"))
        }
        groups(axis, names, ratios, theme)
        highest = max(max(values) for values in ratios.values())
        axis.set(yscale="log", ylim=(1, 4 * highest), ylabel="ratio", title=title)
    return finish(figure, panels)


FIGURES: dict[str, Callable[[Theme], Figure]] = {
    "evidence-accuracy": accuracy,
    "evidence-searches": searches,
    "evidence-crystals": crystals,
    "evidence-on-the-fly": on_the_fly,
    "evidence-speed": speed,
}


def main() -> None:
    for name, draw in FIGURES.items():
        for dark, ending in ENDING.items():
            with drawing(dark) as theme:
                figure = draw(theme)
                figure.savefig(HERE / f"{name}{ending}.png", dpi=150)
        print(f"Written: {HERE / name}.png")


if __name__ == "__main__":
    main()
