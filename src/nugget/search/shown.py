"""How a search and its result show themselves in terminals and notebooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nugget.errors import NuggetError
from nugget.search.goal import make_goal
from nugget.structures.shown import Contents, counted

if TYPE_CHECKING:
    from nugget.search.loop import Result, Search


def search_contents(search: Search) -> Contents:
    """System, engine, how far it is, and the best energy so far."""
    config, goal = search.config, make_goal(search.config.system)
    words = [f"{config.system.formula} with {config.engine.name}"]
    place = str(search.store.directory)
    try:
        records = search.store.records()
    except NuggetError as error:  # a look at an object never fails
        return Contents("Search", [*words, f"in {place}", str(error)])
    good = [record for record in records if record.ok]
    end = search.store.end()
    progress = f"{len(records)} of {counted(config.search.budget, 'evaluation')}"
    facts = {
        "directory": place,
        "system": f"{config.system.formula}, {config.system.kind}",
        "engine": config.engine.name,
        "evaluations": progress,
        "failures": str(len(records) - len(good)),
        "state": f"{end.status}: {end.reason}" if end else "not at its end",
    }
    words.append(progress)
    if good:
        lowest = min(goal.value(record.atoms, record.energy) for record in good)
        facts["best"] = f"{lowest:.4f} {goal.unit}"
        words.append(f"best {facts['best']}")
    return Contents("Search", [*words, f"in {place}"], facts)


def result_contents(result: Result) -> Contents:
    """How it ended, the best energy, and the relaxed minima."""
    end = result.end
    facts = {
        "end": f"{end.status}: {end.reason}",
        "evaluations": f"{end.evaluations} of {end.budget}",
        "failures": str(result.failures),
        "directory": str(result.directory),
    }
    words = [f"{end.status} after {counted(end.evaluations, 'evaluation')}"]
    if result.minima:
        words.append(f"lowest minimum {result.minima[0].energy:.4f} eV")
        facts["relaxing them took"] = counted(result.polish_evaluations, "further evaluation")
    elif result.best is not None:
        words.append(f"best {result.best.energy:.4f} eV")
    if result.confidence is not None and (p := result.confidence.probability) is not None:
        facts["it is the lowest"] = f"with a probability of {p:.0%}"
    crystal = any(minimum.space_group for minimum in result.minima)
    columns = [
        "minimum", "energy, eV", f"above the lowest, {'eV/atom' if crystal else 'eV'}",
        "fmax, eV/Å", "symmetry", "met",
    ]  # fmt: skip
    rows = [
        [
            str(k), f"{minimum.energy:.4f}", f"{minimum.value - result.minima[0].value:.4f}",
            f"{minimum.relaxed.fmax:.3f}{'' if minimum.relaxed.converged else ' (not converged)'}",
            minimum.space_group or minimum.point_group, str(minimum.met),
        ]
        for k, minimum in enumerate(result.minima)
    ]  # fmt: skip
    return Contents("Result", [*words, f"in {result.directory}"], facts, columns, rows)
