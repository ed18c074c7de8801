"""The page of a search with varying numbers of atoms: its phase diagram (phase_diagram.json)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from nugget.errors import NuggetError
from nugget.report.digest import fixed
from nugget.report.page import Data, Structures, column, sections
from nugget.report.page.sections import Section
from nugget.report.verdict import Badge, Level, listed
from nugget.search.phase_diagram import DIAGRAM, PHASES
from nugget.structures.io import read_images
from nugget.systems.grand_potential import Envelope

_GALLERY = 9
_TITLE = "Phases of the diagram"
_UNLIKELY = 0.1  # probabilities of errors up to this are not mentioned
_POINTS = 60  # of a line over the chemical potential

PHASE_COLUMNS = ["phase", "above, meV", "stable between, eV", "P(stable)", "relaxed"]
BOUNDARY_COLUMNS = ["phases", "Δμ, eV", "90 % interval, eV"]
SUGGESTION_COLUMNS = ["structure", "calculation", "predicted, eV", "expected gain, meV"]

Row = Mapping[str, Any]


def diagram_parts(
    directory: Path, structures: Structures, live: bool = False
) -> tuple[list[Data], list[Section]]:
    """The columns and sections of the diagram; none without one, and on live pages."""
    file = directory / DIAGRAM
    if live or not file.exists():
        return [], []
    diagram = read_diagram(file)
    phases = diagram["phases"]
    images = read_images(directory / PHASES) if (directory / PHASES).exists() else []
    numbers: list[int | None] = [
        structures.add(atoms, phase["formula"])
        for phase, atoms in zip(phases, images, strict=False)
    ]
    numbers += [None] * (len(phases) - len(numbers))
    columns = {
        "formula": column([p["formula"] for p in phases], "phase"),
        "above": column([1e3 * p["above"] for p in phases], "Ω above the envelope", "meV", 1),
        "probability": column([p["probability"] for p in phases], "P(stable)", "", 2),
    }
    parts: list[Section] = [_lines(diagram)] if len(diagram["elements"]) == 1 else []
    parts += [
        sections.table(
            PHASE_COLUMNS, phase_rows(phases), title=_TITLE, structures=numbers
        ),
        sections.table(BOUNDARY_COLUMNS, boundary_rows(diagram["boundaries"]), title="Boundaries"),
        sections.table(
            SUGGESTION_COLUMNS, suggestion_rows(diagram["suggestions"]),
            title="Calculations that would change the diagram most",
            empty="There was no surrogate.",
        ),
        _gallery(phases, numbers),
    ]  # fmt: skip
    return [Data("diagram", columns, numbers)], parts


def read_diagram(file: Path) -> dict[str, Any]:
    """The contents of phase_diagram.json."""
    try:
        diagram: dict[str, Any] = json.loads(file.read_text(encoding="utf-8"))
        for key in (
            "elements",
            "phases",
            "boundaries",
            "suggestions",
            "chemical_potential",
            "unevaluated",
        ):
            diagram[key]
        energies = [float(phase["energy"]) for phase in diagram["phases"]]
        if not energies or not np.isfinite(energies).all():
            raise ValueError("no phases with energies")
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise NuggetError(
            f"{file} is damaged ({error}); remove it, and the search writes it again at its end."
        ) from None
    return diagram


def phase_rows(phases: Sequence[Row]) -> list[list[Any]]:
    """The rows of a table with PHASE_COLUMNS."""
    rows = []
    for phase in phases:
        above = "stable" if phase["stable"] else f"+{1e3 * phase['above']:.1f}"
        likely = "–" if phase["probability"] is None else f"{phase['probability']:.2f}"
        relaxed = "yes" if phase["relaxed"] else "no"
        rows.append([phase["formula"], above, _region(phase["range"]), likely, relaxed])
    return rows


def _region(region: Mapping[str, Sequence[float]] | None) -> str:
    if region is None:
        return "–"
    several = len(region) > 1
    return ", ".join(
        f"{f'{element} ' if several else ''}{fixed(low, 2)} to {fixed(high, 2)}"
        for element, (low, high) in region.items()
    )


def boundary_rows(boundaries: Sequence[Row]) -> list[list[Any]]:
    """The rows of a table with BOUNDARY_COLUMNS."""
    rows = []
    for one in boundaries:
        where = one["position"]
        if where is None:
            terms = " ".join(f"{n:+d} Δμ({s})" for s, n in one["atoms"].items())
            position = f"{terms.removeprefix('+')} = {fixed(one['energy'], 3)}"
        else:
            position = fixed(where, 3)
        interval = "–"
        if one["low"] is not None:
            interval = f"{fixed(one['low'], 3)} to {fixed(one['high'], 3)}"
        rows.append([" | ".join(one["phases"]), position, interval])
    return rows


def suggestion_rows(suggestions: Sequence[Row]) -> list[list[Any]]:
    """The rows of a table with SUGGESTION_COLUMNS."""
    rows = []
    for one in suggestions:
        what = "evaluate a new structure"
        if one["action"] == "relax":
            given = one["start"] < 0
            what = "relax one of --learn" if given else f"relax evaluation {one['start'] + 1}"
        predicted = f"{fixed(one['predicted'], 3)} ± {one['std']:.3f}"
        rows.append([one["formula"], what, predicted, f"{1e3 * one['gain']:.1f}"])
    return rows


def diagram_statements(directory: Path) -> tuple[list[str], list[Badge]]:
    """The diagram in words and badges: stable phases, and those that are uncertain."""
    file = directory / DIAGRAM
    if not file.exists():
        return ["The phase diagram is not final; its phases have not been relaxed."], []
    diagram = read_diagram(file)
    stable = [phase for phase in diagram["phases"] if phase["stable"]]
    names = listed([phase["formula"] for phase in stable])
    verb = "phases in the range of chemical potentials are" if len(stable) > 1 else (
        "phase in the range of chemical potentials is"
    )  # fmt: skip
    sentences = [f"The stable {verb} {names}."]
    places = [
        fixed(one["position"], 3) for one in diagram["boundaries"] if one["position"] is not None
    ]
    if places and len(diagram["elements"]) == 1:
        name = f"Δμ({diagram['elements'][0]})"
        sentences.append(f"They meet at {name} = {listed(places)} eV.")
    sentences += [
        f"{phase['formula']} is stable with a probability of {phase['probability']:.0%}."
        for phase in diagram["phases"]
        if _doubtful(phase)
    ]
    sentences += [
        f"{name} was not evaluated; it is stable with a probability of {probability:.0%}."
        for name, probability in diagram["unevaluated"].items()
        if probability > _UNLIKELY
    ]
    relaxed = sum(bool(phase["relaxed"]) for phase in stable)
    level = Level.GOOD if relaxed == len(stable) else Level.BAD
    limits = "good if all stable phases are relaxed with the engine, bad otherwise"
    count = f"{relaxed} of {len(stable)}"
    return sentences, [Badge("relaxed stable phases", count, level, limits, _TITLE)]


def _doubtful(phase: Row) -> bool:
    """A stable phase that may not be, or another that may be."""
    if phase["probability"] is None:
        return False
    wrong = 1 - phase["probability"] if phase["stable"] else phase["probability"]
    return bool(wrong > _UNLIKELY)


def envelope_from(diagram: Mapping[str, Any]) -> tuple[list[str], Envelope]:
    """Names and energies of all phases as an envelope over placed atoms."""
    elements = diagram["elements"]
    low, high = zip(*(diagram["chemical_potential"][s] for s in elements), strict=True)
    references = tuple(diagram["reference_energies"][s] for s in elements)
    points = {
        tuple(int(phase["counts"][s]) for s in elements): float(phase["energy"])
        for phase in diagram["phases"]
    }
    empty = Envelope(tuple(range(len(elements))), references, low, high, points)
    return [phase["formula"] for phase in diagram["phases"]], empty


def omega_lines(diagram: Mapping[str, Any]) -> tuple[Any, list[tuple[str, bool, Any]]]:
    """Δμ, and Ω of each phase relative to the one with the fewest atoms, for one element."""
    names, envelope = envelope_from(diagram)
    delta = np.linspace(envelope.lowest[0], envelope.highest[0], _POINTS)
    planes = [envelope.omega(c, e, delta[:, None]) for c, e in envelope.points.items()]
    stable = [phase["stable"] for phase in diagram["phases"]]
    lines = [plane - planes[0] for plane in planes]
    return delta, list(zip(names, stable, lines, strict=True))


def _lines(diagram: Mapping[str, Any]) -> Section:
    delta, lines = omega_lines(diagram)
    lowest = np.min([line for _, _, line in lines], axis=0)
    highest = float(max(lowest.max(), 0.0)) + 1.0
    layers = [
        sections.curve(name, delta.tolist(), line.tolist())
        for name, stable, line in lines
        if stable
    ]
    element, source = diagram["elements"][0], diagram["reservoirs"]
    return sections.plot(
        "", layers, title="Phase diagram",
        x=sections.axis(f"Δμ({element}) relative to {source[element]}, eV"),
        y=sections.axis("Ω, eV", limits=(float(lowest.min()) - 0.2, highest)),
        caption="The grand potential of the stable phases relative to the phase with the fewest "
        "atoms. The lowest line is stable.",
    )  # fmt: skip


def _gallery(phases: Sequence[Row], numbers: Sequence[int | None]) -> Section:
    items: list[Section] = []
    for phase, number in zip(phases, numbers, strict=True):
        if phase["stable"] and number is not None and len(items) < _GALLERY:
            facts = [("stable between, eV", _region(phase["range"]))]
            items.append(sections.item(number, phase["formula"], facts))
    return sections.gallery(items, title="Stable phases", empty="None of this search.")
