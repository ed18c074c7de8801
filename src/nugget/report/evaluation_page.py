"""A page that judges a model: parity, calibration, errors by kind, and the worst structures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from nugget import __version__
from nugget._compiled.arrays import Floats
from nugget.calibration import calibration_curve, sigma_bins
from nugget.calibration.groups import (
    component_elements,
    element_errors,
    group_errors,
    grouped_by,
)
from nugget.report.evaluation_rows import POINTS, Evaluation, Rows
from nugget.report.page import column, page, sections
from nugget.report.page.sections import Section

_UNITS = {"force": ("forces", "eV/Å"), "stress": ("stress", "eV/Å³")}
_GROUPS = {"formula": "composition", "kind": "kind of structure", "size": "number of atoms"}


def evaluation_page(found: Evaluation, title: str, command: str = "") -> str:
    """The page as HTML."""
    shown = Rows(found)
    plots = [_parity(found, shown)]
    plots += [_component_parity(found, kind, shown) for kind in found.parts]
    parts: list[Section] = [
        _figures(found),
        *(sections.side_by_side(*plots[k : k + 2]) for k in range(0, len(plots), 2)),
        sections.side_by_side(_calibration(found), _scores(found)),
        _sigma(found),
        *shown.galleries(),
        *_groups(found),
        sections.table(
            ["", "what it is"],
            [list(pair) for pair in found.potential.contents().facts.items()],
            title="The model", folded=True,
        ),
    ]  # fmt: skip
    if command:
        parts.append(sections.code(command, title="Made by"))
    return page(
        title, parts, structures=shown.structures, data=shown.data,
        subtitle=f"{len(found.images)} structures that the model is judged by",
        footer=f"nugget {__version__}",
    )  # fmt: skip


def _figures(found: Evaluation) -> Section:
    judged = {"energies": ("meV/atom", 1e3, np.abs(found.error), found.energies.y_std)}
    for kind, part in found.parts.items():
        name, unit = _UNITS[kind]
        judged[name] = (unit, 1.0, np.abs(part.y_pred - part.y_true), part.y_std)
    items = []
    for name, (unit, factor, error, std) in judged.items():
        note = "mean absolute error" if name == "energies" else "by component"
        shares = [np.mean(error <= k * std) for k in (1, 2)]
        items.append((f"{name}, MAE", f"{factor * error.mean():.3g} {unit}", note))
        words = f"{shares[0]:.0%}, {shares[1]:.0%}"
        items.append((f"{name} within σ, 2σ", words, "68 %, 95 % if honest"))
    return sections.figures(items)


def _parity(found: Evaluation, shown: Rows) -> Section:
    rows, energies = shown.rows, found.energies
    images = [found.images[s] for s in rows]
    largest = found.largest_force_errors()[rows]
    columns = {
        "number": column(rows.tolist(), "structure"),
        "true": column(_list(energies.y_true[rows]), "label", "eV/atom", 4),
        "predicted": column(_list(energies.y_pred[rows]), "prediction", "eV/atom", 4),
        "std": column(_list(energies.y_std[rows]), "σ", "eV/atom", 4),
        "error": column(_list(1e3 * found.error[rows]), "error", "meV/atom", 1),
        "size": column(_list(1e3 * np.abs(found.error[rows])), "|error|", "meV/atom", 1, False),
        "sigma": column(_list(1e3 * energies.y_std[rows]), "σ", "meV/atom", 1, False),
        "composition": column([a.get_chemical_formula() for a in images], "composition"),
        "atoms": column([len(a) for a in images], "atoms"),
        "force": column(_list(largest), "largest force error", "eV/Å", 3),
    }
    shown.add("structures", columns, rows)
    many = f" {len(rows)} of {len(found.images)} structures." if len(rows) < len(largest) else ""
    colors = ["atoms", "std"]
    if len(set(columns["composition"].values)) <= 8:
        colors = ["composition", *colors]
    return sections.plot(
        "structures", [sections.diagonal(), sections.points("true", "predicted", error="std")],
        title="Energies", x=sections.axis("label, eV/atom"), y=sections.axis("prediction, eV/atom"),
        colors=colors, square=True, caption=f"Bars are σ. Click a point to see it.{many}",
    )  # fmt: skip


def _component_parity(found: Evaluation, kind: str, shown: Rows) -> Section:
    part = found.parts[kind]
    unit = _UNITS[kind][1]
    rows = np.arange(len(part.y_true))
    if len(rows) > POINTS:
        rows = np.sort(shown.rng.choice(len(rows), POINTS, replace=False))
    columns = {
        "true": column(_list(part.y_true[rows]), "label", unit, 4),
        "predicted": column(_list(part.y_pred[rows]), "prediction", unit, 4),
        "std": column(_list(part.y_std[rows]), "σ", unit, 4),
    }
    colors = ["std"]
    if kind == "force":
        columns["element"] = column(
            component_elements(found.images, part)[rows].tolist(), "element"
        )
        colors = ["element", *colors]
    shown.add(kind, columns, part.owner[rows])
    many = f" {len(rows)} of {len(part.y_true)} components." if len(rows) < len(part.owner) else ""
    return sections.plot(
        kind, [sections.diagonal(), sections.points("true", "predicted", error="std")],
        title="Forces" if kind == "force" else "Stress", square=True, colors=colors,
        x=sections.axis(f"label, {unit}"), y=sections.axis(f"prediction, {unit}"),
        caption=f"Components, bars are σ.{many}",
    )  # fmt: skip


def _judged(found: Evaluation) -> dict[str, tuple[Floats, Floats, Floats]]:
    parts: dict[str, Any] = {"energies": found.energies}
    parts |= {"forces" if kind == "force" else kind: part for kind, part in found.parts.items()}
    return {name: (one.y_true, one.y_pred, one.y_std) for name, one in parts.items()}


def _calibration(found: Evaluation) -> Section:
    curves = []
    for name, data in _judged(found).items():
        expected, observed = calibration_curve(*data)
        curves.append(sections.curve(name, _list(expected), _list(observed)))
    return sections.plot(
        "", [sections.diagonal(), *curves], title="Calibration", square=True,
        x=sections.axis("expected share of labels", limits=(0, 1)),
        y=sections.axis("observed share", limits=(0, 1)),
        caption="Share of labels below each quantile of the prediction. Honest error bars lie on "
        "the diagonal.",
    )  # fmt: skip


def _scores(found: Evaluation) -> Section:
    """How many σ the errors are, beside the normal distribution."""
    edges = np.linspace(-5, 5, 41)
    middle = 0.5 * (edges[1:] + edges[:-1])
    curves = []
    for name, (true, predicted, std) in _judged(found).items():
        scores = (predicted - true)[std > 0] / std[std > 0]
        density = np.histogram(np.clip(scores, -5, 5), edges)[0] / (0.25 * max(len(scores), 1))
        curves.append(sections.curve(name, _list(middle), _list(density)))
    normal = np.exp(-0.5 * middle**2) / np.sqrt(2 * np.pi)
    return sections.plot(
        "", [*curves, sections.curve("if honest", _list(middle), _list(normal))],
        title="Errors in units of σ", x=sections.axis("error / σ"), square=False,
        y=sections.axis("density", limits=(0, None)),
        caption="Narrower than the normal distribution: σ is too large. Wider: too small. The ends "
        "hold all that is beyond.",
    )  # fmt: skip


def _sigma(found: Evaluation) -> Section:
    """|error| against σ, by structure, with the root mean square in bins of equal count."""
    energies = found.energies
    bins = sigma_bins(energies.y_true, energies.y_pred, energies.y_std)
    rms = sections.curve("root mean square", _list(1e3 * bins.rmv), _list(1e3 * bins.rmse))
    return sections.plot(
        "structures", [sections.points("sigma", "size"), sections.diagonal(), rms],
        title="Does σ know which energies are wrong?",
        x=sections.axis("σ, meV/atom", scale="log", limits=_room(1e3 * energies.y_std)),
        y=sections.axis("|error|, meV/atom", scale="log", robust=True),
        colors=["atoms"],
        caption="Honest σ: two thirds of the points are below the diagonal, and the root mean "
        "square of the errors follows it.",
    )  # fmt: skip


def _groups(found: Evaluation) -> list[Section]:
    made = []
    if "force" in found.parts:
        of = element_errors(found.images, found.parts["force"])
        rows = [
            [symbol, int(one["atoms"]), _round(one["mae"]), _round(one["rmse"]),
             _share(one["within_1"]), _share(one["within_2"])]
            for symbol, one in of.items()
        ]  # fmt: skip
        heads = ["element", "atoms", "force MAE, eV/Å", "RMSE, eV/Å", "in σ", "in 2σ"]
        made.append(sections.table(heads, rows, title="Errors by element"))
    names = _GROUPS if found.by in _GROUPS else {found.by: found.by, **_GROUPS}
    seen: list[list[list[int]]] = []
    for key, name in names.items():
        groups = grouped_by(found.images, key)
        if len(groups) > 1 and list(groups.values()) not in seen:
            seen.append(list(groups.values()))
            made.append(_group_table(found, name, groups))
    return made


def _group_table(found: Evaluation, name: str, groups: Mapping[str, Sequence[int]]) -> Section:
    heads = [name, "structures", "energy MAE, meV/atom", "in σ", "in 2σ"]
    kinds = list(found.parts)
    heads += [text for kind in kinds for text in (f"{kind} MAE, {_UNITS[kind][1]}", "in 2σ")]
    rows = []
    for group, members in list(groups.items())[:100]:
        one = group_errors(found.energies, found.parts, members)
        row: list[Any] = [group, len(members), round(1e3 * one["energy_mae"], 2)]
        row += [_share(one["within_1"]), _share(one["within_2"])]
        for kind in kinds:
            row += [_round(one.get(f"{kind}_mae")), _share(one.get(f"{kind}_within_2"))]
        rows.append(row)
    caption = f"The 100 largest of {len(groups)} groups." if len(groups) > 100 else ""
    return sections.table(heads, rows, title=f"Errors by {name}", caption=caption)


def _room(values: Floats) -> tuple[float, float]:
    """Limits of a logarithmic axis that do not stretch values which are all alike."""
    positive = values[values > 0] if (values > 0).any() else np.ones(1)
    return float(positive.min()) / 2, float(positive.max()) * 2


def _list(values: Floats) -> list[float]:
    return [float(value) for value in values]


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
