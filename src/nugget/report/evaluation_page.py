"""The page of `nugget evaluate`: parity, calibration, errors by group, and the worst structures."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from ase import Atoms

from nugget import __version__
from nugget.calibration import calibration_curve, sigma_bins
from nugget.display import counted
from nugget.numerics.arrays import Floats, Ints
from nugget.potential.validation import component_elements, element_errors, group_errors, grouped_by
from nugget.report.digest import fixed
from nugget.report.page import Data, Structures, column, page, sections
from nugget.report.page.sections import Section
from nugget.report.run_verdicts import model_verdict

if TYPE_CHECKING:
    from nugget.calibration import Components, Residuals
    from nugget.potential.potential import Potential


POINTS = 3000  # points of a plot at most
_ATOMS = 30_000  # atoms of all structures on the page at most
_WORST = 6
_VALUES = {
    "force error": "force error, eV/Å",
    "force σ": "σ of the force, eV/Å",
    "energy σ": "σ of the atom's energy, eV",
}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Predictions of a model for labelled structures."""

    potential: Potential
    images: Sequence[Atoms]
    energies: Residuals
    parts: Mapping[str, Components]  # force and stress components, where there are some
    by: str = "formula"  # how structures are grouped
    seed: int = 0  # of the random choice of points

    @property
    def error(self) -> Floats:
        return self.energies.y_pred - self.energies.y_true

    def lengths(self, s: int) -> dict[str, Floats]:
        """Lengths of the errors of a structure's forces, and of their σ; empty without forces."""
        own = self.parts["force"].of([s]) if "force" in self.parts else None
        if own is None or not len(own.y_true):
            return {}
        values = {"force error": own.y_pred - own.y_true, "force σ": own.y_std}
        return {name: np.linalg.norm(v.reshape(-1, 3), axis=1) for name, v in values.items()}

    def largest_force_errors(self) -> Floats:
        """The largest error of a force on an atom, by structure; NaN without forces."""
        largest = np.full(len(self.images), np.nan)
        if "force" in self.parts:
            part = self.parts["force"]
            length = np.linalg.norm((part.y_pred - part.y_true).reshape(-1, 3), axis=1)
            owner = part.owner[::3]
            largest[np.unique(owner)] = 0.0
            np.maximum.at(largest, owner, length)
        return largest


class Rows:
    """Rows and structures of the page: the worst ones, and a random choice of the others."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation, self.structures = evaluation, Structures()
        self.data: list[Data] = []
        self.rng = np.random.default_rng(evaluation.seed)
        force = np.nan_to_num(evaluation.largest_force_errors())
        self.by_energy = np.argsort(-np.abs(evaluation.error), kind="stable")
        self.by_force = np.argsort(-force, kind="stable")[: len(force) if force.any() else 0]
        worst = [*self.by_energy[:_WORST], *self.by_force[:_WORST]]
        order = [int(s) for s in dict.fromkeys([*worst, *self.rng.permutation(len(force))])]
        self.rows: Ints = np.sort(np.array(order[:POINTS], dtype=np.int64))
        self.number = self._chosen(order[:POINTS], len(set(worst)))

    def _chosen(self, order: Sequence[int], least: int) -> dict[int, int]:
        """The structures on the page (at least `least`) and their numbers there."""
        sizes = np.cumsum([len(self.evaluation.images[s]) for s in order])
        keys = sorted(order[: max(least, int((sizes <= _ATOMS).sum()))])
        images = [self.evaluation.images[s] for s in keys]
        local = self.evaluation.potential.predict(
            images, forces=False, uncertainty=False, energies_uncertainty=True
        ).energies_uncertainty
        assert local is not None
        return {s: self._add(s, std) for s, std in zip(keys, local, strict=True)}

    def _add(self, s: int, std: Floats) -> int:
        values = {**self.evaluation.lengths(s), "energy σ": std}
        atoms = self.evaluation.images[s]
        label = f"structure {s}, {atoms.get_chemical_formula()}"
        energy = float(self.evaluation.energies.y_true[s]) * len(atoms)
        return self.structures.add(atoms, label, values, energy)

    def add(self, name: str, columns: dict[str, column], owners: Ints) -> None:
        self.data.append(Data(name, columns, [self.number.get(int(s)) for s in owners]))

    def galleries(self) -> list[Section]:
        """The worst energies and the worst forces in 3D."""
        evaluation = self.evaluation
        largest = evaluation.largest_force_errors()
        galleries = []
        for title, order in (("Worst energies", self.by_energy), ("Worst forces", self.by_force)):
            items = []
            for s in list(order)[:_WORST]:
                error = fixed(1e3 * evaluation.error[s], 1, plus=True)
                facts = [("energy", f"{error} ± {1e3 * evaluation.energies.y_std[s]:.1f} meV/atom")]
                if np.isfinite(largest[s]):
                    facts.append(("force, max", f"{largest[s]:.2f} eV/Å"))
                name = evaluation.images[s].get_chemical_formula()
                items.append(sections.item(self.number[int(s)], f"{s}: {name}", facts))
            if items:
                caption = "Prediction minus label, ± σ. Atoms can be coloured by their errors."
                galleries.append(
                    sections.gallery(items, title=title, values=_VALUES, caption=caption)
                )
        return galleries


_UNITS = {"force": ("forces", "eV/Å"), "stress": ("stress", "eV/Å³")}
_GROUPS = {"formula": "composition", "kind": "kind of structure", "size": "number of atoms"}


def evaluation_page(evaluation: Evaluation, title: str, command: str = "", data: str = "") -> str:
    """The page as HTML."""
    shown = Rows(evaluation)
    plots = [_parity(evaluation, shown)]
    plots += [_component_parity(evaluation, kind, shown) for kind in evaluation.parts]
    facts = evaluation.potential.contents().facts
    judged = model_verdict(
        title, data or "test.extxyz", evaluation.energies, evaluation.parts, facts
    )
    parts: list[Section] = [
        sections.verdict(judged.to_dict()),
        _figures(evaluation),
        *(sections.side_by_side(*plots[k : k + 2]) for k in range(0, len(plots), 2)),
        sections.side_by_side(_calibration(evaluation), _scores(evaluation)),
        sections.side_by_side(_sigma(evaluation), _residuals(evaluation)),
        *shown.galleries(),
        *_groups(evaluation),
        sections.table(["", "value"], list(facts.items()), title="The model", folded=True),
    ]
    if command:
        parts.append(sections.code(command, title="Command"))
    return page(
        f"Model {title}", parts, structures=shown.structures, data=shown.data,
        subtitle=f"evaluated on {counted(len(evaluation.images), 'structure')}",
        footer=f"nugget {__version__}",
    )  # fmt: skip


def _figures(evaluation: Evaluation) -> Section:
    labels = {"energies": ("meV/atom", 1e3, np.abs(evaluation.error), evaluation.energies.y_std)}
    for kind, part in evaluation.parts.items():
        name, unit = _UNITS[kind]
        labels[name] = (unit, 1.0, np.abs(part.y_pred - part.y_true), part.y_std)
    items = []
    for name, (unit, factor, error, std) in labels.items():
        note = "mean absolute error" if name == "energies" else "by component"
        shares = [np.mean(error <= k * std) for k in (1, 2)]
        items.append((f"{name}, MAE", f"{factor * error.mean():.3g} {unit}", note))
        percent = f"{shares[0]:.0%}, {shares[1]:.0%}"
        items.append((f"{name} within σ, 2σ", percent, "68%, 95% if calibrated"))
    return sections.figures(items)


def _parity(evaluation: Evaluation, shown: Rows) -> Section:
    rows, energies = shown.rows, evaluation.energies
    images = [evaluation.images[s] for s in rows]
    largest = evaluation.largest_force_errors()[rows]
    error, sigma = 1e3 * evaluation.error[rows], 1e3 * energies.y_std[rows]
    columns = {
        "number": column(rows, "structure"),
        "true": column(energies.y_true[rows], "label", "eV/atom", 4),
        "predicted": column(energies.y_pred[rows], "prediction", "eV/atom", 4),
        "std": column(energies.y_std[rows], "σ", "eV/atom", 4),
        "error": column(error, "error", "meV/atom", 1),
        "size": column(np.abs(error), "|error|", "meV/atom", 1, False),
        "sigma": column(sigma, "σ", "meV/atom", 1, False),
        "composition": column([a.get_chemical_formula() for a in images], "composition"),
        "atoms": column([len(a) for a in images], "atoms"),
        "force": column(largest, "largest force error", "eV/Å", 3),
    }
    shown.add("structures", columns, rows)
    total = len(evaluation.images)
    many = f" {len(rows)} of {total} structures." if len(rows) < total else ""
    colors = ["atoms", "std"]
    if len(set(columns["composition"].values)) <= 8:
        colors = ["composition", *colors]
    return sections.plot(
        "structures", [sections.diagonal(), sections.points("true", "predicted", error="std")],
        title="Energies", x=sections.axis("label, eV/atom"), y=sections.axis("prediction, eV/atom"),
        colors=colors, square=True, caption=f"Bars are σ. Click a point to see it.{many}",
    )  # fmt: skip


def _component_parity(evaluation: Evaluation, kind: str, shown: Rows) -> Section:
    part = evaluation.parts[kind]
    unit = _UNITS[kind][1]
    rows = np.arange(len(part.y_true))
    if len(rows) > POINTS:
        rows = np.sort(shown.rng.choice(len(rows), POINTS, replace=False))
    columns = {
        "true": column(part.y_true[rows], "label", unit, 4),
        "predicted": column(part.y_pred[rows], "prediction", unit, 4),
        "std": column(part.y_std[rows], "σ", unit, 4),
    }
    colors = ["std"]
    if kind == "force":
        columns["element"] = column(component_elements(evaluation.images, part)[rows], "element")
        colors = ["element", *colors]
    shown.add(kind, columns, part.owner[rows])
    many = f" {len(rows)} of {len(part.y_true)} components." if len(rows) < len(part.owner) else ""
    return sections.plot(
        kind, [sections.diagonal(), sections.points("true", "predicted", error="std")],
        title="Forces" if kind == "force" else "Stress", square=True, colors=colors,
        x=sections.axis(f"label, {unit}"), y=sections.axis(f"prediction, {unit}"),
        caption=f"Components, bars are σ.{many}",
    )  # fmt: skip


def _by_label(evaluation: Evaluation) -> dict[str, tuple[Floats, Floats, Floats]]:
    parts: dict[str, Any] = {"energies": evaluation.energies}
    parts |= {_UNITS[kind][0]: part for kind, part in evaluation.parts.items()}
    return {name: (one.y_true, one.y_pred, one.y_std) for name, one in parts.items()}


def _calibration(evaluation: Evaluation) -> Section:
    curves = []
    for name, data in _by_label(evaluation).items():
        expected, observed = calibration_curve(*data)
        curves.append(sections.curve(name, expected, observed))
    return sections.plot(
        "", [sections.diagonal(), *curves], title="Calibration", square=True,
        x=sections.axis("expected share of labels", limits=(0, 1)),
        y=sections.axis("observed share", limits=(0, 1)),
        caption="Share of labels below each quantile of the prediction. Calibrated error bars lie "
        "on the diagonal.",
    )  # fmt: skip


def _scores(evaluation: Evaluation) -> Section:
    """The distribution of error/σ beside the normal distribution."""
    middle = np.linspace(-5, 5, 101)
    curves = []
    for name, (true, predicted, std) in _by_label(evaluation).items():
        scores = (predicted - true)[std > 0] / std[std > 0]
        bins = int(np.clip(2 * len(scores) ** 0.5, 10, 40))  # fewer points need wider bins
        edges = np.linspace(-5, 5, bins + 1)
        density = np.histogram(np.clip(scores, -5, 5), edges, density=True)[0]
        curves.append(sections.curve(name, 0.5 * (edges[1:] + edges[:-1]), density))
    normal = np.exp(-0.5 * middle**2) / np.sqrt(2 * np.pi)
    return sections.plot(
        "", [*curves, sections.curve("normal distribution", middle, normal)],
        title="Errors in units of σ", x=sections.axis("error / σ"),
        y=sections.axis("density", limits=(0, None)),
        caption="If the distribution is narrower than the normal one, σ is too large; if it is "
        "wider, σ is too small. The outermost bins contain all values beyond.",
    )  # fmt: skip


def _sigma(evaluation: Evaluation) -> Section:
    """|error| against σ, by structure, with the root mean square in bins of equal count."""
    energies = evaluation.energies
    bins = sigma_bins(energies.y_true, energies.y_pred, energies.y_std)
    rms = sections.curve("root mean square", (1e3 * bins.rmv), (1e3 * bins.rmse))
    return sections.plot(
        "structures", [sections.points("sigma", "size"), sections.diagonal(), rms],
        title="Energy errors and σ",
        x=sections.axis("σ, meV/atom", scale="log", limits=_room(1e3 * energies.y_std)),
        y=sections.axis("|error|, meV/atom", scale="log", robust=True),
        colors=["atoms"],
        caption="If σ is calibrated, two thirds of the points lie below the diagonal, and the root "
        "mean square of the errors follows it.",
    )  # fmt: skip


def _residuals(evaluation: Evaluation) -> Section:
    """Errors against labels, which show systematic errors that a parity plot hides."""
    return sections.plot(
        "structures", [sections.level(0.0), sections.points("true", "error", error="sigma")],
        title="Residuals", x=sections.axis("label, eV/atom"), colors=["atoms", "composition"],
        y=sections.axis("prediction − label, meV/atom", robust=True),
        axes=["true", "error", "std", "atoms", "force", "number"],
        caption="Bars are σ. Trends show errors that depend on the energy or the size.",
    )  # fmt: skip


def _groups(evaluation: Evaluation) -> list[Section]:
    tables = []
    if "force" in evaluation.parts:
        of = element_errors(evaluation.images, evaluation.parts["force"])
        rows = []
        for symbol, one in of.items():
            shares = [_share(one["within_1"]), _share(one["within_2"])]
            rows.append(
                [symbol, int(one["atoms"]), _round(one["mae"]), _round(one["rmse"]), *shares]
            )
        heads = ["element", "atoms", "force MAE, eV/Å", "RMSE, eV/Å", "in σ", "in 2σ"]
        tables.append(sections.table(heads, rows, title="Errors by element"))
    names = _GROUPS if evaluation.by in _GROUPS else {evaluation.by: evaluation.by, **_GROUPS}
    earlier: list[list[list[int]]] = []
    for key, name in names.items():
        groups = grouped_by(evaluation.images, key)
        if len(groups) > 1 and list(groups.values()) not in earlier:
            earlier.append(list(groups.values()))
            tables.append(_group_table(evaluation, name, groups))
    return tables


def _group_table(evaluation: Evaluation, name: str, groups: Mapping[str, Sequence[int]]) -> Section:
    heads = [name, "structures", "energy MAE, meV/atom", "in σ", "in 2σ"]
    kinds = list(evaluation.parts)
    heads += [text for kind in kinds for text in (f"{kind} MAE, {_UNITS[kind][1]}", "in 2σ")]
    rows = []
    for group, members in list(groups.items())[:100]:
        one = group_errors(evaluation.energies, evaluation.parts, members)
        row: list[Any] = [group, len(members), round(1e3 * one["energy_mae"], 2)]
        row += [_share(one["within_1"]), _share(one["within_2"])]
        for kind in kinds:
            row += [_round(one.get(f"{kind}_mae")), _share(one.get(f"{kind}_within_2"))]
        rows.append(row)
    caption = f"The 100 largest of {len(groups)} groups." if len(groups) > 100 else ""
    return sections.table(heads, rows, title=f"Errors by {name}", caption=caption)


def _room(values: Floats) -> tuple[float, float]:
    """Limits of a logarithmic axis with a factor of two on either side."""
    positive = values[values > 0] if (values > 0).any() else np.ones(1)
    return float(positive.min()) / 2, float(positive.max()) * 2


def _round(value: float | None) -> float | None:
    return None if value is None else float(f"{value:.3g}")


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.0%}"
