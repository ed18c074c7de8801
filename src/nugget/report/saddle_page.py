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
from nugget.report.onthefly_runs import calls_data, calls_plot
from nugget.report.page import Data, Structures, as_html, page_spec, sections
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
from nugget.structures.io import read_images

BAKER = (
    "J. Baker, An algorithm for the location of transition states, J. Comput. Chem. 7, 385 (1986)."
)
VINEYARD = (
    "G. H. Vineyard, Frequency factors and isotope effects in solid state rate processes, J. Phys. "
    "Chem. Solids 3, 121 (1957)."
)
_ERROR = (0.02, 0.1)  # eV
_SWING, _FRAMES = 0.4, 16  # Å: displacement of the atom that moves most; frames of one oscillation
_MINIMUM = "Minimum, saddles and products"
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
    """The verdict about a saddle search, or about the ways out of a minimum."""
    config, result, place = run.config, run.result, run.directory
    failed, total = sum(not one.ok for one in run.outcomes), len(run.outcomes)
    sentences: list[str] = []
    badges: list[Badge] = []
    if result is None:
        sentences.append("The search has no result yet.")
    elif config.explore:
        sentences += _ways_out(result, config.explore)
        badges += _ways_badges(result, config.explore)
    else:
        sentences += [_outcome(result), _barriers(result)]
        badges += _badges(result, config.fmax)
    sentences.append(failure_sentence(failed, total))
    badges.append(failure_badge(failed, total, "Evaluations"))
    engine = config.engine.name
    file, what = (WAYS, "read the ways out") if config.explore else (SADDLE, "read the saddle")
    uses = (
        Use(what, f'ase.io.read("{place / file}", ":")'),
        Use("go on", f"nugget saddle --resume {place}"),
        Use("write the page", f"nugget report {place}"),
    )
    text = (
        "Saddle points were searched by partitioned rational-function steps along the lowest mode "
        "of a local Gaussian process in inverse distances, trained on "
        f"{counted(total, 'evaluation')} with {engine}, until the largest force of {engine} was "
        f"below {config.fmax:g} eV/Å."
    )
    references = [PAPER, BAKER]
    if config.explore:
        text += (
            " Starts were saddles of a potential that learned all evaluations. Rates are those of "
            "harmonic transition-state theory with Vineyard's prefactor."
        )
        references.append(VINEYARD)
    return Verdict(joined(*sentences), tuple(badges), uses, text, cited(engine, *references))


def _outcome(result: dict[str, Any]) -> str:
    calls = counted(result["search_calls"], "evaluation")
    if result["converged"]:
        modes = result["engine_modes"] or result["model_modes"]
        by = "the engine" if result["engine_modes"] else "the model"
        return (
            f"A saddle with exactly one negative mode ({fixed(modes[0], 2)} eV/Å², by {by}) was "
            f"found in {calls}."
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
        _error_badge("error of the energy", result["error"], "Evaluations"),
    ]  # fmt: skip
    modes = result["engine_modes"] or result["model_modes"]
    if modes:
        negative = sum(value < -NEGATIVE for value in modes)
        level = Level.GOOD if negative == 1 else Level.BAD
        limits = "a saddle of first order has one"
        badges.append(Badge("negative modes", str(negative), level, limits, "The mode"))
    return badges


def _error_badge(label: str, error: float, evidence: str) -> Badge:
    limits = f"good up to {_ERROR[0]:g} eV, bad above {_ERROR[1]:g} eV"
    return Badge(label, f"{error:.3f} eV", graded(error, _ERROR), limits, evidence)


def _ways_out(result: dict[str, Any], asked: int) -> list[str]:
    ways = result["ways"]
    searches = counted(result["searches"], "search", "searches")
    cost = f"{counted(result['calls'], 'evaluation')} and {searches}"
    if not ways:
        sentences = [f"No way out of the minimum was found in {cost}."]
    else:
        first, *others = ways
        sentences = [
            f"The lowest barrier is {fixed(first['barrier'], 3)} ± {first['error']:.3f} eV.",
            f"Its rate at {result['temperature']:g} K is {power(first['rate'])} per second "
            f"({power(first['rate_low'])} to {power(first['rate_high'])})."
            if power(first["rate"]) != "–"
            else "Its rate is not known, because the modes of the model do not fit.",
        ]
        if others:
            top = fixed(max(way["barrier"] for way in others), 3)
            more = (
                f"Another way out has a barrier of {top} eV"
                if len(others) == 1 else f"{len(others)} more ways out have barriers up to {top} eV"
            )  # fmt: skip
            sentences.append(f"{more}; {cost} were used.")
        else:
            sentences.append(f"It was found in {cost}.")
    if len(ways) < asked:
        sentences.append(f"Only {len(ways)} of the {asked} ways asked for were found.")
    if not result["complete"]:
        sentences.append("All permitted evaluations were used, so a lower way may be missing.")
    return sentences


def power(value: float | None) -> str:
    """A rate as 1.2e5; a dash if it is not known."""
    if value is None or not np.isfinite(value):
        return "–"
    mantissa, exponent = f"{value:.1e}".split("e")
    return f"{mantissa}e{int(exponent)}"


def _ways_badges(result: dict[str, Any], asked: int) -> list[Badge]:
    ways, complete = result["ways"], bool(result["complete"])
    enough = Level.GOOD if len(ways) >= asked else Level.WARNING if ways else Level.BAD
    badges = [
        Badge("ways out", f"{len(ways)} of {asked}", enough, "bad if none", _MINIMUM),
        Badge(
            "complete", "yes" if complete else "no", Level.GOOD if complete else Level.WARNING,
            "good if several searches in a row found nothing lower", "Evaluations",
        ),
    ]  # fmt: skip
    if ways:
        badges.append(_error_badge("error of the barrier", ways[0]["error"], _MINIMUM))
    return badges


def saddle_spec(directory: Path) -> dict[str, Any]:
    """The page of a run of `nugget saddle`, as plain data."""
    run = read_saddle(directory)
    structures = Structures()
    data, forces = _calls(run, structures)
    formula = run.start.get_chemical_formula()
    badge, title = ("no result yet", "plain"), f"Saddle point of {formula}"
    parts = [sections.verdict(saddle_verdict(run).to_dict())]
    first, second = _energies(), forces
    if run.config.explore:
        title = f"Ways out of {formula}"
        if run.result is not None:
            badge = ("complete", "good") if run.result["complete"] else ("all calls used", "plain")
            parts += _ways(run, run.result, structures)
    else:
        parts.append(_figures(run))
        if run.result is not None:
            badge = ("converged", "good") if run.result["converged"] else ("not converged", "bad")
        if (saddle := run.saddle) is not None:
            parts.append(_gallery(run, structures))
            first = _mode(saddle, structures)
    if run.result is None:
        parts.append(sections.remark("Structures are shown at the end of the run (--resume)."))
    parts.append(sections.side_by_side(first, second))
    parts += [_energies()] if first["kind"] == "film" else []
    parts.append(sections.rows("calls", title="All evaluations"))
    settings = run.config.model_dump_json(indent=1)
    parts.append(sections.code(settings, title="Settings", filename="run.json", folded=True))
    return page_spec(
        title, parts, structures=structures, data=[data], badge=badge,
        subtitle=f"{run.config.engine.name} · {directory}",
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
        items.append((f"barrier, minimum {k + 1}", f"{fixed(value)} {error}", "to the saddle"))
    items += [
        ("above the start", f"{fixed(result['above_start'], plus=True)} eV", ""),
        ("largest force", f"{result['fmax']:.4f} eV/Å", "of the engine"),
        ("engine calls", str(calls), f"{result['search_calls']} for the search, {failed} failed"),
    ]
    for by, key in (("model", "model_modes"), ("engine", "engine_modes")):
        if result[key]:
            values = ", ".join(fixed(value, 2) for value in result[key])
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
        x=sections.axis("evaluation", integer=True), colors=["phase"],
        y=sections.axis("energy above the start, eV", robust=True),
    )  # fmt: skip


def _calls(run: SaddleDirectory, structures: Structures) -> tuple[Data, Section]:
    """The calls of the engine, and their forces."""
    n, caption = len(run.outcomes), ""
    if run.config.explore:
        phases = ["call"] * n
    else:
        of_search = (run.result or {}).get("search_calls", n)
        phases = ["search" if k < of_search else "checks" for k in range(n)]
        caption = "The last evaluations of a search confirm the curvature along its lowest modes."
    plot = calls_plot(run.config.fmax, caption)
    return calls_data(run.outcomes, phases, structures), plot


# --------------------------------------------------------------------------- ways out


def _ways(run: SaddleDirectory, result: dict[str, Any], structures: Structures) -> list[Section]:
    """The minimum, the ways out of it and their barriers, of `nugget saddle --explore`."""
    numbers = [
        structures.add(image, _role(image), {}, float(image.get_potential_energy()))
        for image in run.images
    ]
    items = []
    for number, image in zip(numbers, run.images, strict=True):
        above = fixed(image.get_potential_energy() - result["minimum"])
        items.append(sections.item(number, _role(image), [("above minimum", f"{above} eV")]))
    heads = ["way", "barrier, eV", "±, eV", "back, eV", "prefactor, 1/s", "rate, 1/s", "found"]
    rows = [
        (str(k), way["barrier"], way["error"], way["barrier_back"], power(way["prefactor"]),
         f"{power(way['rate'])} ({power(way['rate_low'])} to {power(way['rate_high'])})",
         way["count"])
        for k, way in enumerate(result["ways"], start=1)
    ]  # fmt: skip
    title = f"Barriers and harmonic rates at {result['temperature']:g} K"
    digits = (None, 4, 4, 4, None, None, 0)
    return [
        sections.table(heads, rows, title=title, structures=numbers[1::2], digits=digits),
        sections.gallery(items, title=_MINIMUM),
    ]


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
