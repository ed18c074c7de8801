"""The parts of `nugget search`: settings, preparation, running under Ctrl-C, and the end."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, Protocol

import typer

from nugget.cli._common import emit, facts, several
from nugget.cli._hull import show_hull
from nugget.errors import NuggetError
from nugget.evaluation.executors import make_executor
from nugget.evaluation.trust import require_trust
from nugget.report.digest import counted, duration, failures
from nugget.report.live import make_view
from nugget.search.baseline import model_code
from nugget.search.config import Config, make_config, read_config
from nugget.search.goal import make_goal
from nugget.search.loop import Result, Search
from nugget.search.phases import HULL
from nugget.search.prepare import code_of
from nugget.search.stop import Meetings
from nugget.search.store import BEST, DATABASE, MINIMA


def read_settings(
    target: str | None, changed: dict[str, Any], trust: bool = False
) -> tuple[Config, Path, str]:
    """The settings, the directory that their file names are relative to, and a name.

    Code that a file names needs trust; what the command line names is the user's own word.
    """
    base, name = Path(), target or str(changed["system.compositions"])
    if target is None:
        config, target = Config(), "the command line"
    elif target.endswith(".toml") or Path(target).is_file():
        file = Path(target)
        config, base, name = read_config(file), file.parent, file.stem
    else:
        config, name = Config(), target.replace("*", "x")
        changed = {"system.formula": target, **changed}
    # Defaults of crystals differ: for them, only what was given counts.
    tree = config.model_dump(exclude_unset=changed.get("system.kind") == "crystal")
    for key, value in changed.items():
        *sections, option = key.split(".")
        branch = tree
        for section in sections:
            branch = branch.setdefault(section, {})
            if not isinstance(branch, dict):
                raise NuggetError(f"{key} is not an option: {section} is a value, not a section.")
        branch[option] = value
    made = make_config(tree, target)
    # A model's code is the word of whoever fitted it, even if the command line names the file.
    from_file = {*code_of(config, base), *model_code(made, base)}
    require_trust([code for code in code_of(made, base) if code in from_file], target, trust)
    return made, base, name


def begin(config: Config, base: Path, name: str, out: Path | None = None) -> Search:
    """A new search; without --out in runs/NAME-seedN."""
    return Search.create(config, out or Path("runs") / f"{name}-seed{config.search.seed}", base)


def follow(
    search: Search,
    budget: int | None,
    live: bool,
    quiet: bool = False,
    stop_when: float | None = None,
) -> Result | None:
    """Run and show a search; None when it was broken off in the middle of an evaluation."""
    config, directory = search.config, search.store.directory
    total = config.search.budget if budget is None else budget
    title = f"{config.system.title} · {config.engine.name} · {directory}"
    view = None if quiet else make_view(title, total, live)
    try:
        watch = None if view is None else view.watch
        # The search starts local processes itself; a cluster is started here.
        elsewhere = config.execution.kind == "dask"
        with (
            make_executor(config.execution) if elsewhere else nullcontext() as executor,
            view or nullcontext(),
            graceful_stop(search.stop, view, config.search.in_flight > 1),
        ):
            return search.run(watch, total, executor, stop_when)
    except KeyboardInterrupt:
        return None


_ONE = "Stopping after this evaluation. Ctrl-C again breaks it off."
_SEVERAL = "Stopping after the evaluations in flight. Ctrl-C again breaks them off."


class _Notes(Protocol):
    def note(self, text: str) -> None: ...


@contextmanager
def graceful_stop(
    stop: Callable[[], None], view: _Notes | None, several: bool = False
) -> Iterator[None]:
    """Ctrl-C (or SIGTERM, as batch systems send it) stops after the evaluations in flight.

    A second one breaks them off.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread receives signals
        return
    requested = False

    def handle(number: int, frame: object) -> None:
        nonlocal requested
        if requested:
            raise KeyboardInterrupt
        requested = True
        stop()
        if view is not None:
            view.note(_SEVERAL if several else _ONE)

    former = {s: signal.signal(s, handle) for s in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


def compare(directory: Path, json: bool, trust: bool = False) -> None:
    """Replay a search and print the differences; the exit code is 1 if there are any."""
    found = Search.replay(directory, trust)
    if json:
        emit({"proposals": found.proposals, "differences": list(found.differences)})
    else:
        for text in found.differences:
            typer.echo(text)
        made = f"{several(found.proposals, 'proposal')} made again"
        typer.echo(f"{made}: {'all the same, bit for bit' if found.same else 'not the same'}.")
    if not found.same:
        raise typer.Exit(1)


def report_of(search: Search, result: Result | None) -> dict[str, Any]:
    """How a search ended, as plain data."""
    records = search.store.records()
    good = [record for record in records if record.ok]
    goal = make_goal(search.config.system)
    before = search.knowledge().learned
    for record in (*before, *good):
        goal = goal.informed(record.atoms, record.energy)
    value = {record.iteration: goal.value(record.atoms, record.energy) for record in good}
    best = min(good, key=lambda record: goal.order(record.atoms, record.energy), default=None)
    directory = search.store.directory
    steps = search.store.polish_steps()
    minima = () if result is None else result.minima
    sure = Meetings.of(records, before).confidence()
    learned = [goal.value(record.atoms, record.energy) for record in before]
    values = [one.value for one in minima] + learned
    values += [] if best is None else [value[best.iteration]]
    phases = () if result is None else result.phases
    if phases:
        values = [phase.formation for phase in phases]
    return {
        "directory": str(directory),
        "formula": search.config.system.title,
        "engine": search.config.engine.name,
        "seed": search.config.search.seed,
        "in_flight": search.config.search.in_flight,
        "evaluations": len(records),
        "status": "interrupted" if result is None else result.end.status,
        "reason": "broken off" if result is None else result.end.reason,
        "unit": goal.unit,
        "best_energy": min(values, default=None),
        "best_evaluated": None if best is None else value[best.iteration],
        "best_iteration": None if best is None else best.iteration,
        "best_generator": None if best is None else best.generator,
        "best_file": None if best is None else str(directory / BEST),
        "learned": len(learned),
        "best_learned": min(learned, default=None),
        "met_independently": sure.met,
        "lower_predicted": sure.lower,
        "probability_lowest_found": sure.probability,
        "polish_evaluations": len(steps),
        "polish_seconds": sum(step.engine_seconds for step in steps),
        "minima": [
            {
                "energy": one.value,
                "fmax": one.relaxed.fmax,
                "converged": one.relaxed.converged,
                "point_group": one.point_group or None,
                "space_group": one.space_group or None,
                "met": one.met,
                "start": one.start if one.start >= 0 else None,
                "learned": one.start < 0,
            }
            for one in minima
        ],
        "minima_file": str(directory / MINIMA) if minima else None,
        "phases": [phase.row() for phase in phases],
        "hull_file": str(directory / HULL) if phases else None,
        "hull_figure": None,
        "database": str(directory / DATABASE),
        "reference": search.config.search.reference,
        "found": None if not search.references or result is None else result.found,
        "failures": failures(records),
        "engine_seconds": sum(record.engine_seconds for record in records),
        "surrogate_seconds": sum(record.surrogate_seconds for record in records),
    }


def _polished(report: dict[str, Any]) -> list[tuple[str, object]]:
    """The relaxed structures, for the table at the end."""
    minima = report["minima"]
    if not minima:
        return []
    best, *others = minima
    symmetry = best["point_group"] or best["space_group"]
    group, unit = f", {symmetry}" if symmetry else "", report["unit"]
    rows: list[tuple[str, object]] = [
        ("best energy", f"{best['energy']:.4f} {unit}, fmax {best['fmax']:.3f} eV/Å{group}"),
        ("met", f"{best['met']} of {several(report['evaluations'], 'evaluation')}"),
    ]
    if others:
        gap = others[0]["energy"] - best["energy"]
        rows.append(
            ("next minimum", f"+{gap:.4f} {unit} ({len(minima)} in {report['minima_file']})")
        )
    rows.append(
        ("polish", f"{several(report['polish_evaluations'], 'evaluation')} besides the budget")
    )
    if not best["converged"]:
        rows.append(("", "the lowest structure is not converged: nugget relax can go on with it"))
    return rows


def _known(report: dict[str, Any]) -> list[tuple[str, object]]:
    """What was known before, and how sure the end is, for the table at the end."""
    rows: list[tuple[str, object]] = []
    if report["learned"]:
        lowest = f"the lowest {report['best_learned']:.4f} eV"
        rows.append(("learned", f"{report['learned']} known before, {lowest}"))
    if report["minima"] and report["minima"][0]["learned"]:
        rows.append(("", "the best structure comes from these"))
    if (sure := report["probability_lowest_found"]) is not None:
        met = report["met_independently"]
        times = f"{several(met, 'time')} by candidates without parents"
        likely = "more than 99%" if sure > 0.99 else f"{sure:.0%}"  # an estimate is never certain
        rows += [("met again", times), ("lowest found", f"{likely} likely, by these meetings")]
    return rows


def summarise(report: dict[str, Any], broken_off: bool) -> None:
    """The end of a search in one table, and how to continue."""
    rows: list[tuple[str, object]] = [("evaluations", report["evaluations"])]
    if report["phases"]:
        stable = [phase["formula"] for phase in report["phases"] if phase["stable"]]
        rows += [
            ("stable", ", ".join(stable)),
            ("compositions", len(report["phases"])),
            ("polish", f"{report['polish_evaluations']} evaluations besides the budget"),
            ("hull", " and ".join(filter(None, (report["hull_file"], report["hull_figure"])))),
            ("relaxed structures", report["minima_file"]),
            ("all structures", f"ase gui {report['database']}"),
        ]
    elif report["best_energy"] is not None:
        when = f"evaluation {report['best_iteration'] + 1}, {report['best_generator']}"
        rows += [
            ("lowest evaluated", f"{report['best_evaluated']:.4f} {report['unit']} ({when})"),
            *_polished(report),
            *_known(report),
            ("best structure", report["best_file"]),
            ("all structures", f"ase gui {report['database']}"),
        ]
    if report["reference"] is not None and report["found"] is not None:
        rows.append(("reference", "found" if report["found"] else "not found"))
    rows.append(("failures", counted(report["failures"])))
    parts = ["surrogate", "engine"] + ["polish"] * (report["polish_seconds"] > 0)
    rows.append(("time", ", ".join(f"{p} {duration(report[f'{p}_seconds'])}" for p in parts)))
    facts(f"Search {report['status']}: {report['formula']} with {report['engine']}", rows)
    if report["phases"]:
        show_hull(report)
    again = f"nugget search --resume {report['directory']}"
    if broken_off:
        lost = "The evaluation in flight is lost; all others are saved."
        if report["in_flight"] > 1:
            lost = "The evaluations in flight will be done again; all others are saved."
        typer.echo(lost)
    if report["status"] == "failed":
        typer.echo(f"The search failed: {report['reason']}. Repair the engine, then: {again}")
    if report["status"] == "interrupted":
        typer.echo(f"To continue: {again}")
    elif report["status"] == "finished" and "stop_when" in report["reason"]:
        typer.echo(f"Stopped by search.stop_when. To search on: {again} --stop-when 0.99")
    elif report["status"] == "finished":
        typer.echo(f"To search on: {again} --budget {2 * report['evaluations']}")
