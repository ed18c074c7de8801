"""The page and the verdict of a `nugget saddle` run: energies, forces, the mode, both minima."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms

from nugget import __version__
from nugget.display import counted
from nugget.engines.outcome import Outcome
from nugget.errors import NuggetError
from nugget.onthefly.run_directory import CALLS, read_outcomes, read_run
from nugget.onthefly.run_settings import SaddleConfig
from nugget.onthefly.saddle_run import RESULT, SADDLE, WAYS
from nugget.onthefly.saddle_surface import NEGATIVE
from nugget.report.digest import fixed
from nugget.report.page import Data, Structures, as_html, column, page_spec, sections
from nugget.report.page.sections import Section
from nugget.report.verdict import (
    PAPER,
    Badge,
    Level,
    Use,
    Verdict,
    cited,
    failure_badge,
    failure_sentence,
    graded,
    joined,
)
from nugget.storage.files import read_sealed
from nugget.structures.geometry import largest_force
from nugget.structures.io import read_images

BAKER = (
    "J. Baker, An algorithm for the location of transition states, J. Comput. Chem. 7, 385 (1986)."
)
_ERROR = (0.02, 0.1)  # eV
_SWING, _FRAMES = 0.4, 16  # Å: displacement of the atom that moves most; frames of one oscillation
_VALUES = {"mode": "displacement in the mode", "moved": "distance from the start, Å"}


@dataclass(frozen=True, eq=False)
class SaddleDirectory:
    """A run of `nugget saddle` as read from its directory."""

    directory: Path
    config: SaddleConfig
    start: Atoms
    images: list[Atoms]  # of SADDLE or WAYS; empty before the end
    outcomes: list[Outcome]
    result: dict[str, Any] | None

    @property
    def saddle(self) -> Atoms | None:
        return next((one for one in self.images if "converged" in one.info), None)


def read_saddle(directory: Path) -> SaddleDirectory:
    """Read a run of `nugget saddle`, finished or not; nothing is written."""
    settings, (start, *_) = read_run(directory, "saddle")
    config = SaddleConfig.model_validate(settings)
    path = directory / (WAYS if config.explore else SADDLE)
    try:
        result = read_sealed(directory / RESULT, "continue the run")
    except (FileNotFoundError, NuggetError):  # an unfinished run
        result = None
    return SaddleDirectory(
        directory, config, start,
        read_images(path) if path.exists() else [], read_outcomes(directory / CALLS), result,
    )  # fmt: skip


def saddle_verdict(run: SaddleDirectory) -> Verdict:
    """The verdict about a saddle search."""
    config, result, place = run.config, run.result, run.directory
    failed, total = sum(not one.ok for one in run.outcomes), len(run.outcomes)
    sentences: list[str] = []
    badges: list[Badge] = []
    if result is None:
        sentences.append("The search has no result yet.")
    else:
        sentences += [_outcome(result), _barriers(result)]
        badges += _badges(result, config.fmax)
    sentences.append(failure_sentence(failed, total))
    badges.append(failure_badge(failed, total, "Evaluations"))
    engine = config.engine.name
    uses = (
        Use("read the saddle", f'ase.io.read("{place / SADDLE}", ":")'),
        Use("go on", f"nugget saddle --resume {place}"),
        Use("write the page", f"nugget report {place}"),
    )
    text = (
        "The saddle point was found by partitioned rational-function steps along the lowest mode "
        "of a local Gaussian process in inverse distances, trained on "
        f"{counted(total, 'evaluation')} with {engine}, until the largest force of {engine} was "
        f"below {config.fmax:g} eV/Å."
    )
    return Verdict(joined(*sentences), tuple(badges), uses, text, cited(engine, PAPER, BAKER))


def _outcome(result: dict[str, Any]) -> str:
    calls = counted(result["search_calls"], "evaluation")
    if result["converged"]:
        modes = result["engine_modes"] or result["model_modes"]
        by = "the engine" if result["engine_modes"] else "the model"
        return (
            f"A saddle with exactly one negative mode ({modes[0]:.2f} eV/Å², by {by}) was found in "
            f"{calls}."
        )
    return f"No saddle was found in {calls} ({result['reason']})."


def _barriers(result: dict[str, Any]) -> str:
    if len(result["barriers"]) != 2:
        return ""
    there, back = (fixed(value, 3) for value in result["barriers"])
    return (
        f"The barriers are {there} and {back} eV, ± {result['error']:.3f} eV, from the minima on "
        "both sides."
    )


def _badges(result: dict[str, Any], fmax: float) -> list[Badge]:
    converged = bool(result["converged"])
    level = Level.GOOD if converged else Level.BAD
    badges = [
        Badge("converged", "yes" if converged else "no", level, "bad if not", "Evaluations"),
        Badge(
            "largest force", f"{result['fmax']:.3f} eV/Å", graded(result["fmax"], (fmax, 2 * fmax)),
            f"of the engine; good up to {fmax:g} eV/Å, bad above {2 * fmax:g}", "Evaluations",
        ),
        Badge(
            "error of the energy", f"{result['error']:.3f} eV", graded(result["error"], _ERROR),
            f"good up to {_ERROR[0]:g} eV, bad above {_ERROR[1]:g} eV", "Evaluations",
        ),
    ]  # fmt: skip
    modes = result["engine_modes"] or result["model_modes"]
    if modes:
        negative = sum(value < -NEGATIVE for value in modes)
        level = Level.GOOD if negative == 1 else Level.BAD
        limits = "a saddle of first order has one"
        badges.append(Badge("negative modes", str(negative), level, limits, "The mode"))
    return badges


def saddle_spec(directory: Path) -> dict[str, Any]:
    """The page of a run of `nugget saddle`, as plain data."""
    run = read_saddle(directory)
    if run.config.explore:
        return _ways_spec(run)
    structures = Structures()
    data = _calls_data(run, structures)
    parts = [sections.verdict(saddle_verdict(run).to_dict()), _figures(run)]
    saddle = run.saddle
    if saddle is None:
        parts += [
            sections.text("The saddle is written at the end of the run; continue it with --resume.")
        ]
    else:
        parts.append(sections.side_by_side(_gallery(run, structures), _mode(saddle, structures)))
    parts += [sections.side_by_side(_energies(), _forces(run)), sections.rows("calls")]
    settings = run.config.model_dump_json(indent=1)
    parts.append(sections.code(settings, title="Settings", filename="run.json", folded=True))
    badge = ("no result yet", "plain")
    if run.result is not None:
        badge = ("converged", "good") if run.result["converged"] else ("not converged", "bad")
    return page_spec(
        run.start.get_chemical_formula(), parts, structures=structures, data=[data], badge=badge,
        subtitle=f"saddle search with {run.config.engine.name}, {directory}",
        footer=f"nugget {__version__}", inspector=True,
    )  # fmt: skip


def saddle_page(directory: Path) -> str:
    """The page of a run of `nugget saddle`, as HTML."""
    return as_html(saddle_spec(directory))


def _figures(run: SaddleDirectory) -> Section:
    calls, failed = len(run.outcomes), sum(not outcome.ok for outcome in run.outcomes)
    result = run.result
    if result is None:
        return sections.figures([("engine calls", str(calls), f"{failed} failed")])
    error = f"± {result['error']:.4f} eV"
    items = [("energy", f"{fixed(result['energy'])} {error}", "of the engine, at the saddle")]
    for k, value in enumerate(result["barriers"]):
        items.append(("barrier", f"{fixed(value)} {error}", f"from minimum {k + 1}"))
    items += [
        ("above the start", f"{fixed(result['above_start'], plus=True)} eV", ""),
        ("largest force", f"{result['fmax']:.4f} eV/Å", "of the engine"),
        ("engine calls", str(calls), f"{result['search_calls']} for the search, {failed} failed"),
    ]
    for by, key in (("model", "model_modes"), ("engine", "engine_modes")):
        if result[key]:
            values = ", ".join(f"{value:.2f}" for value in result[key])
            items.append(("lowest modes", f"{values} eV/Å²", f"of the {by}"))
    return sections.figures(items)


def _gallery(run: SaddleDirectory, structures: Structures) -> Section:
    names = ["Minimum 1", "Saddle", "Minimum 2"] if len(run.images) == 3 else ["Saddle"]
    saddle = run.saddle
    assert saddle is not None
    items = []
    for name, image in zip(names, run.images, strict=True):
        energy = float(image.get_potential_energy())
        above = energy - float(saddle.get_potential_energy())
        moved = np.linalg.norm(image.positions - run.start.positions, axis=1)
        number = structures.add(image, name, {"moved": moved}, energy)
        items.append(
            sections.item(number, name, [("energy", f"{fixed(energy)} eV"),
                                         ("from the saddle", f"{fixed(above, plus=True)} eV")])
        )  # fmt: skip
    return sections.gallery(items, title="Saddle and minima", values=_VALUES)


def _mode(saddle: Atoms, structures: Structures) -> Section:
    """The saddle oscillating along its mode."""
    mode = saddle.arrays.get("mode")
    if mode is None:
        return sections.text("The search ended before a mode was known.", title="The mode")
    lengths = np.linalg.norm(mode, axis=1)
    numbers = []
    for phase in 2 * np.pi * np.arange(_FRAMES) / _FRAMES:
        moved = saddle.copy()
        moved.positions += _SWING * np.sin(phase) / lengths.max() * mode
        numbers.append(structures.add(moved, "mode", {"mode": lengths / lengths.max()}))
    return sections.film(numbers, title="The mode", values=_VALUES)


def _energies() -> Section:
    return sections.plot(
        "calls", [sections.points("number", "above")], title="Energies",
        x=sections.axis("evaluation"), y=sections.axis("energy above the start, eV"),
        colors=["phase"],
    )  # fmt: skip


def _forces(run: SaddleDirectory) -> Section:
    return sections.plot(
        "calls", [sections.points("number", "force"), sections.level(run.config.fmax, "converged")],
        title="Evaluations", x=sections.axis("evaluation"), colors=["phase"],
        y=sections.axis("largest force, eV/Å", scale="log"),
        caption="The last evaluations of a search are displaced along the lowest modes and "
        "confirm their curvature.",
    )  # fmt: skip


def _calls_data(run: SaddleDirectory, structures: Structures) -> Data:
    outcomes, n = run.outcomes, len(run.outcomes)
    of_search = (run.result or {}).get("search_calls", n)
    energy = [outcome.energy if outcome.ok else None for outcome in outcomes]
    first = next((value for value in energy if value is not None), 0.0)
    failure = ["" if one.ok else f"{one.failure}: {one.reason}" for one in outcomes]
    rows = [
        structures.add(outcomes[k].atoms, f"evaluation {k + 1}", {}, energy[k]) for k in range(n)
    ]
    columns = {
        "number": column(range(1, n + 1), "evaluation"),
        "phase": column(["search" if k < of_search else "checks" for k in range(n)], "phase"),
        "energy": column(energy, "energy", "eV", 4),
        "above": column([None if e is None else e - first for e in energy], "above start", "eV", 4),
        "force": column(
            [largest_force(one.atoms) if one.ok else None for one in outcomes],
            "largest force", "eV/Å", 3,
        ),
        "failure": column(failure, "failure"),
    }  # fmt: skip
    return Data("calls", columns, rows)


# --------------------------------------------------------------------------- ways out


def _ways_spec(run: SaddleDirectory) -> dict[str, Any]:
    """The page of `nugget saddle --explore`."""
    structures = Structures()
    result, calls = run.result, len(run.outcomes)
    parts = []
    badge = ("no result yet", "plain")
    if result is None:
        parts.append(sections.text("The ways out are written at the end of the run; use --resume."))
    else:
        ways, asked = result["ways"], run.config.explore
        badge = ("complete", "good") if result["complete"] else ("all calls used", "plain")
        parts.append(sections.figures([
            ("ways out", f"{len(ways)}", f"{asked} asked for"),
            ("lowest barrier", f"{fixed(ways[0]['barrier'])} eV" if ways else "–", "of the engine"),
            ("engine calls", str(calls), f"{result['searches']} searches"),
        ]))  # fmt: skip
        numbers = [
            structures.add(image, _role(image), {}, float(image.get_potential_energy()))
            for image in run.images
        ]
        items = [
            sections.item(number, _role(image), [("energy above the minimum",
                          f"{image.get_potential_energy() - result['minimum']:.4f} eV")])
            for number, image in zip(numbers, run.images, strict=True)
        ]  # fmt: skip
        heads = ["way", "barrier, eV", "±, eV", "back, eV", "prefactor, 1/s", "rate, 1/s", "found"]
        rows = [
            (str(k), way["barrier"], way["error"], way["barrier_back"], f"{way['prefactor']:.2e}",
             f"{way['rate']:.2e} ({way['rate_low']:.1e} to {way['rate_high']:.1e})", way["count"])
            for k, way in enumerate(ways, start=1)
        ]  # fmt: skip
        title = f"Barriers and harmonic rates at {result['temperature']:g} K"
        digits = (None, 4, 4, 4, None, None, 0)
        parts.append(
            sections.table(heads, rows, title=title, structures=numbers[1::2], digits=digits)
        )
        parts.append(sections.gallery(items, title="Minimum, saddles and products"))
    data = _calls_data(run, structures)
    parts += [sections.side_by_side(_energies(), _forces(run)), sections.rows("calls")]
    settings = run.config.model_dump_json(indent=1)
    parts.append(sections.code(settings, title="Settings", filename="run.json", folded=True))
    return page_spec(
        run.start.get_chemical_formula(), parts, structures=structures, data=[data], badge=badge,
        subtitle=f"ways out of a minimum with {run.config.engine.name}, {run.directory}",
        footer=f"nugget {__version__}", inspector=True,
    )  # fmt: skip


def _role(image: Atoms) -> str:
    role = image.info.get("role")
    return "minimum" if role is None else f"{role} {image.info['way']}"


def draw_ways(report: dict[str, Any], path: Path) -> None:
    """The disconnectivity graph: every product joins the minimum at its lowest saddle."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4))
    axes = figure.subplots()
    ways = report["ways"]
    top = max((way["barrier"] for way in ways), default=0.1)
    axes.plot([0, 0], [0, 1.05 * top], "k-")
    for number, way in enumerate(ways, start=1):
        barrier = way["barrier"]
        axes.plot([0, number, number], [barrier, barrier, barrier - way["barrier_back"]], "k-")
        axes.errorbar([number / 2], [barrier], [way["error"]], fmt="none", ecolor="C3", capsize=3)
        axes.text(number, barrier, f"{way['rate']:.1e}/s", ha="right", va="bottom", fontsize=8)
    names = ["minimum", *(str(k) for k in range(1, len(ways) + 1))]
    axes.set_xticks(range(len(names)), names)
    axes.set_ylabel("energy above the minimum, eV")
    axes.set_title(f"Ways out; rates at {report['temperature']:g} K", fontsize=10)
    figure.savefig(path, dpi=150, bbox_inches="tight")
