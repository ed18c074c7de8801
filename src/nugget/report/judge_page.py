"""The verdict and page of `nugget judge`: an engine, its correction, and a model without it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from ase import Atoms
from scipy.special import erf

from nugget import __version__
from nugget.display import counted
from nugget.numerics.arrays import Floats
from nugget.potential.mean_choice import Errors, MeanChoice
from nugget.report.digest import fixed, rounded
from nugget.report.page import Data, Structures, column, page, sections
from nugget.report.page.sections import Section
from nugget.report.verdict import (
    MODEL_ERROR,
    PAPER,
    SOAP,
    Badge,
    Use,
    Verdict,
    calibration_badge,
    calibration_sentence,
    cited,
    graded,
    joined,
)

_WORST = 6
_ALONE, _ERRORS, _SCORES = "Errors with and without correction", "Errors by weight", "Errors and σ"


@dataclass(frozen=True, eq=False)
class Judged:
    """The errors of an engine on labelled structures.

    Arrays are predictions minus labels of the energy of each structure, eV/atom, from leave-one-out
    for models.
    """

    choice: MeanChoice
    images: Sequence[Atoms]
    data: str
    alone: Floats
    corrected: Floats
    without: Floats
    scores: Floats  # |error|/σ of the chosen model, sorted

    @property
    def rms_z(self) -> float:
        """The rms of leave-one-out errors of energies over their calibrated σ."""
        return float(np.sqrt(np.mean(self.scores**2)))


def judge_verdict(judged: Judged) -> Verdict:
    """What the errors mean for the user."""
    choice, count, data = judged.choice, len(judged.images), judged.data
    name, alone, chosen = choice.engine, choice.alone, choice.chosen.leave_one_out
    sentences = [
        f"{name} is wrong by {errors_text(alone)} on these {count} structures.",
        f"Corrected by a model of them it is wrong by {errors_text(choice.corrected.leave_one_out)}"
        f", and a model without {name} by {errors_text(choice.without.leave_one_out)} "
        "(leave-one-out).",
    ]
    file = "my.model"
    fit = f"nugget fit {data} -o {file}"
    uses = [Use("fit the model", fit if choice.weight == 0.0 else f"{fit} --mean {name}")]
    if choice.weight == 0.0:
        sentences.append(f"The model is better without {name}.")
    else:
        new, old = (_milli(one.leave_group_out.energy) for one in (choice.chosen, choice.without))
        sentences.append(
            f"The best model uses {name} with weight {choice.weight:g}: {errors_text(chosen)}. For "
            f"groups of similar structures that are omitted together its error is {new} meV/atom "
            f"instead of {old} without {name}."
        )
    if _better_alone(alone, chosen):
        sentences.append(f"{name} alone is better than any of these models; more labels may help.")
        uses.append(Use("use the engine alone", f"nugget relax {data} --engine {name} -o out.xyz"))
    z = judged.rms_z
    sentences.append(calibration_sentence(z, count).replace("σ is", "σ of the best model is"))
    uses.append(Use("predict", f"nugget predict {file} structures.extxyz -o predicted.extxyz"))
    good, bad = MODEL_ERROR
    limits = f"good up to {1e3 * good:g}, bad above {1e3 * bad:g} meV/atom"
    badges = tuple(
        Badge(label, errors_text(errors), graded(errors.energy, MODEL_ERROR), limits, evidence)
        for label, errors, evidence in (
            (f"{name} alone", alone, _ALONE), ("best model", chosen, _ERRORS),
        )
    )  # fmt: skip
    text = (
        f"{name} was compared with the labels of {counted(count, 'structure')}. One energy per "
        "element was fitted by least squares, because the zeros of energy differ. Sparse Gaussian "
        f"processes on SOAP descriptors were fitted to the labels and to their differences from "
        f"{name}; their errors are leave-one-out and leave-group-out residuals in closed form."
    )
    return Verdict(
        joined(*sentences), (*badges, calibration_badge(z, count, _SCORES)), tuple(uses), text,
        cited(name, PAPER, SOAP),
    )  # fmt: skip


def _better_alone(alone: Errors, chosen: Errors) -> bool:
    """Whether the engine is better than the model by more than a standard error."""
    better = chosen.energy - alone.energy > max(chosen.energy_error, 1e-4)
    return better and not chosen.force < alone.force  # NaN without forces


def energy_text(errors: Errors) -> str:
    """An error of energies with its standard error."""
    return f"{_milli(errors.energy)} ± {_milli(errors.energy_error)} meV/atom"


def errors_text(errors: Errors) -> str:
    """Errors of energies and, where there are some, of forces."""
    if np.isnan(errors.force):
        return energy_text(errors)
    return f"{energy_text(errors)} and {rounded(errors.force) if errors.force > 1e-5 else '0'} eV/Å"


def _milli(value: float) -> str:
    """In thousandths, with three digits where there are as many."""
    return "0" if 1e3 * value < 5e-4 else rounded(1e3 * value, 3 if 1e3 * value >= 1 else 2)


def judge_page(judged: Judged, command: str) -> str:
    """The page as HTML."""
    name = judged.choice.engine
    structures, order = Structures(), np.argsort(-np.abs(judged.alone), kind="stable")
    numbers = [
        structures.add(atoms, f"structure {s}, {atoms.get_chemical_formula()}")
        for s, atoms in enumerate(judged.images)
    ]
    items = [
        sections.item(
            numbers[s], f"{s}: {judged.images[s].get_chemical_formula()}",
            [("alone", _signed(judged.alone[s])), ("corrected", _signed(judged.corrected[s])),
             ("without", _signed(judged.without[s]))],
        )
        for s in order[:_WORST]
    ]  # fmt: skip
    parts = [
        sections.verdict(judge_verdict(judged).to_dict()),
        sections.side_by_side(_pairs(name), _weights(judged.choice)),
        sections.side_by_side(_trend(name), _scores(judged.scores)),
        sections.gallery(
            items, title=f"Worst energies of {name}", caption="Predictions minus labels, meV/atom."
        ),
        sections.rows("structures", title="All structures"),
        sections.code(command, title="Command"),
    ]
    return page(
        f"{name} judged", parts, structures=structures, data=[_rows(judged, numbers)],
        subtitle=f"{counted(len(judged.images), 'structure')} of {judged.data}",
        footer=f"nugget {__version__}",
    )  # fmt: skip


def _signed(error: float) -> str:
    return fixed(1e3 * error, 1, plus=True)


def _rows(judged: Judged, numbers: Sequence[int]) -> Data:
    images, columns = judged.images, {"number": column(range(len(judged.images)), "structure")}
    for key, label, error in (
        ("alone", f"{judged.choice.engine} alone", judged.alone),
        ("corrected", "corrected", judged.corrected),
        ("without", f"without {judged.choice.engine}", judged.without),
    ):
        columns[key] = column(1e3 * error, label, "meV/atom", 2)
        columns[f"{key}_size"] = column(
            1e3 * np.abs(error), f"|error| {label}", "meV/atom", 2, False
        )
    energies = [atoms.get_potential_energy() / len(atoms) for atoms in images]
    columns["label"] = column(energies, "label", "eV/atom", 4)
    columns["composition"] = column([a.get_chemical_formula() for a in images], "composition")
    columns["atoms"] = column([len(atoms) for atoms in images], "atoms")
    return Data("structures", columns, numbers)


def _pairs(name: str) -> Section:
    size = ["alone_size", "corrected_size", "without_size"]
    return sections.plot(
        "structures", [sections.points("alone_size", "corrected_size"), sections.diagonal()],
        title=_ALONE, square=True, colors=["composition", "atoms"], axes=[*size, "label", "atoms"],
        x=sections.axis(f"|error| of {name} alone, meV/atom", scale="log"),
        y=sections.axis("|error|, corrected, meV/atom", scale="log"),
        caption="Energies, leave-one-out. The correction helps for points below the diagonal.",
    )  # fmt: skip


def _weights(choice: MeanChoice) -> Section:
    def curve(title: str, of: Sequence[Errors]) -> Section:
        middle = 1e3 * np.array([one.energy for one in of])
        half = 1e3 * np.array([one.energy_error for one in of])
        return sections.curve(title, weights, middle, middle - half, middle + half)

    weights = [one.weight for one in choice.trials]
    one_by_one = [one.leave_one_out for one in choice.trials]
    in_groups = [one.leave_group_out for one in choice.trials]
    return sections.plot(
        "", [curve("leave-one-out", one_by_one), curve("leave-group-out", in_groups),
             sections.level(1e3 * choice.alone.energy, f"{choice.engine} alone")],
        title=_ERRORS, x=sections.axis(f"weight of {choice.engine}", limits=(0, 1)),
        y=sections.axis("error of energies, meV/atom", limits=(0, None)),
        caption=f"Bands are standard errors. The best model has weight {choice.weight:g}.",
    )  # fmt: skip


def _trend(name: str) -> Section:
    return sections.plot(
        "structures", [sections.level(0.0), sections.points("label", "alone")],
        title=f"Residuals of {name}", colors=["composition", "atoms"],
        x=sections.axis("label, eV/atom"), y=sections.axis("prediction − label, meV/atom"),
        axes=["label", "alone", "corrected", "without", "atoms", "number"],
        caption="Trends show errors that depend on the energy or the size.",
    )  # fmt: skip


def _scores(scores: Floats) -> Section:
    """The share of structures whose |error|/σ is below a value, beside the normal distribution."""
    share = (np.arange(len(scores)) + 1.0) / len(scores)
    grid = np.linspace(0.0, max(3.0, float(scores.max())), 60)
    return sections.plot(
        "", [sections.curve("best model", [0.0, *scores], [0.0, *share], steps=True),
             sections.curve("calibrated", grid, erf(grid / np.sqrt(2.0)))],
        title=_SCORES, x=sections.axis("|error| / σ", limits=(0, None)),
        y=sections.axis("share of structures below", limits=(0, 1)),
        caption="Energies, leave-one-out. If the steps lie to the right of the curve, σ is too "
        "small; if they lie to the left, it is too large.",
    )  # fmt: skip


def judge_numbers(judged: Judged) -> dict[str, Any]:
    """The numbers of `--json`."""
    return {
        "data": judged.data,
        "structures": len(judged.images),
        **judged.choice.record(),
        "rms_z": judged.rms_z,
        "verdict": judge_verdict(judged).to_dict(),
    }
