"""`nugget search`: from a formula to the structure of lowest energy."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from nugget.cli import _options as opt
from nugget.cli._console import (
    emit,
    facts,
    given,
    graceful_stop,
    setting,
    show_verdict,
    table,
)
from nugget.display import counted, duration
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from nugget.search.loop import Status
    from nugget.search.search import Result, Search
    from nugget.search.search_settings import Config

INTERRUPTED = 130  # exit code of shells after Ctrl-C
# Settings that --resume may change.
_FREE = {"search.budget", "search.stop_when", "search.polish", "search.final_fmax"}
_PLAIN = str.maketrans({":": "", ",": "-", " ": ""})  # names of directories
_PHASES = 12  # rows of the table of phases, which always contains all stable ones


def search(
    target: opt.Target = None,
    resume: opt.Resume = None,
    replay: opt.Replay = None,
    engine: opt.Engine = None,
    budget: opt.Budget = None,
    kappa: opt.Kappa = None,
    seed: opt.Seed = None,
    candidates: opt.Candidates = None,
    in_flight: opt.InFlight = None,
    forces: opt.LearnForces = None,
    mean: opt.Mean = None,
    reference: opt.Reference = None,
    start: opt.Start = None,
    learn: opt.Learn = None,
    stop_when: opt.StopWhen = None,
    template: opt.Template = None,
    vary: opt.Vary = None,
    chemical_potential: opt.ChemicalPotential = None,
    reservoirs: opt.Reservoirs = None,
    temperature: opt.Temperature = None,
    partial_pressures: opt.PartialPressures = None,
    polish: opt.Polish = None,
    final_fmax: opt.FinalFmax = None,
    crystal: opt.Crystal = False,
    units: opt.Units = None,
    compositions: opt.Compositions = None,
    max_atoms: opt.MaxAtoms = None,
    pressure: opt.Pressure = None,
    settings: opt.Settings = None,
    trust: opt.Trust = False,
    threads: opt.Threads = 1,
    out: opt.Out = None,
    live: opt.Live = True,
    json: opt.Json = False,
) -> None:
    """Search for the structure of lowest energy.

    [bold]Examples[/bold]

        nugget search Au20
        nugget search Cu5Au8 --engine emt --budget 60 --seed 3 --out alloy
        nugget search settings.toml --set engine.relax_steps=5
        nugget search --resume runs/Au20-seed0
        nugget search --resume runs/Au20-seed0 --budget 300
        nugget search Au20 --in-flight 4
        nugget search Au20 --threads 2
        nugget search --replay runs/Au20-seed0
        nugget search Au20 --learn runs/Au20-seed0 --seed 1 --stop-when 0.95
        nugget search Ti4O8 --engine gpaw --mean sevennet
        nugget search SiC --crystal --units 1-4 --engine tersoff
        nugget search --crystal --compositions Cu-Au --max-atoms 8 --engine emt
        nugget search Cu3 --template slab.xyz
        nugget search --vary Pt:8-12,O:0-8 --chemical-potential O=-3:0
        nugget search --vary O:0-6 --template slab.xyz --chemical-potential O=-3:0

    The run directory DIR (default: runs/FORMULA-seedN) contains all structures
    in search.db (`ase gui DIR/search.db`), the best one in best.extxyz, the
    settings and a log. Ctrl-C finishes the evaluations in flight. A search that
    was stopped or killed resumes with bit-identical results.

    --replay needs no engine. It follows the log of a search and exits with code
    1 if the proposals of this version differ in any bit from those in the
    database.

    --vary searches all numbers of atoms in the given ranges. The result is the
    phase diagram over chemical potentials, or over temperature and pressure.

    `nugget init` writes a file with all settings, which searches of bulk
    systems require.
    """
    from nugget import set_threads
    from nugget.report.digest import search_summary
    from nugget.report.search_verdict import read_search_verdict
    from nugget.search.search import Search

    files = given(reference=reference, start=start, learn=learn)
    sections = {
        "engine": given(name=engine),
        "search": given(
            budget=budget, kappa=kappa, seed=seed, candidates=candidates, in_flight=in_flight,
            stop_when=stop_when, polish=polish, final_fmax=final_fmax,
            **{key: str(Path(file).absolute()) for key, file in files.items()},
        ),
        "model": given(use_forces=forces, baseline=mean),
        "system": given(
            kind="crystal" if crystal else "surface" if template is not None else None,
            template=None if template is None else str(Path(template).absolute()),
            units=units, compositions=compositions, max_atoms=max_atoms, pressure=pressure,
            vary=vary, chemical_potential=chemical_potential, reservoirs=reservoirs,
            temperature=temperature, partial_pressures=partial_pressures,
        ),
    }  # fmt: skip
    changed: dict[str, Any] = {
        f"{section}.{name}": value
        for section, options in sections.items()
        for name, value in options.items()
    }
    changed |= dict(setting(text) for text in settings or [])
    set_threads(threads)  # not a setting, because it changes no bit of the search
    if replay is not None:
        if target is not None or resume is not None or out is not None or changed:
            raise NuggetError(
                "--replay DIR follows the log of a search and takes no other options."
            )
        compare_proposals(replay, json, trust)
        return
    if resume is not None:
        if target is not None or out is not None or changed.keys() - _FREE:
            raise NuggetError(
                "--resume continues a search with the settings that it was started with; only "
                "--budget, --stop-when, --polish and --final-fmax can be changed."
            )
        running = Search.resume(resume, trust)
        running.change(given(polish=polish, final_fmax=final_fmax))
    elif target is not None or compositions is not None or vary is not None:
        config, base, name = read_settings(target, changed, trust)
        directory = out or Path("runs") / f"{name}-seed{config.search.seed}"
        running = Search.create(config, directory, base)
    else:
        raise NuggetError(
            "Give a formula (nugget search Au20), --compositions A-B, --vary O:0-6, a TOML file, "
            "--resume DIR or --replay DIR."
        )
    result = follow(running, budget, live, quiet=json, stop_when=stop_when)
    summary = search_summary(running, result)
    draw_hull(summary)
    draw_diagram(summary)
    verdict = read_search_verdict(running.store.directory)
    if json:
        emit({**summary, "verdict": verdict.to_dict()})
    else:
        show(summary, broken_off=result is None)
        show_verdict(verdict)
    if result is None or result.interrupted:
        raise typer.Exit(INTERRUPTED)
    if result.best is None:
        raise typer.Exit(1)


def read_settings(
    target: str | None, changed: dict[str, Any], trust: bool = False
) -> tuple[Config, Path, str]:
    """The settings, the directory that their file names are relative to, and a name.

    Code that a file names needs trust; code that the command line names is trusted.
    """
    from nugget.campaign.grid import plant
    from nugget.engines.engine_settings import require_trust
    from nugget.search.prepare import code_of
    from nugget.search.search_settings import Config, make_config, read_config
    from nugget.search.surrogate import model_code

    several = changed.get("system.compositions") or changed.get("system.vary")
    base, name = Path(), target or str(several).translate(_PLAIN)
    if target is None:
        config, target = Config(), "the command line"
    elif target.endswith(".toml") or Path(target).is_file():
        file = Path(target)
        config, base, name = read_config(file), file.parent, file.stem
    else:
        config, name = Config(), target.replace("*", "x")
        changed = {"system.formula": target, **changed}
    # Crystals and varying numbers of atoms have other defaults; explicit settings alone are kept.
    other = changed.get("system.kind") == "crystal" or "system.vary" in changed
    tree = config.model_dump(exclude_unset=other)
    for key, value in changed.items():
        plant(tree, key, value)
    complete = make_config(tree, target)
    # The code of a model is never trusted, even if the command line names the model.
    from_file = {*code_of(config, base), *model_code(complete, base)}
    require_trust([code for code in code_of(complete, base) if code in from_file], target, trust)
    return complete, base, name


def follow(
    search: Search, budget: int | None, live: bool, quiet: bool, stop_when: float | None
) -> Result | None:
    """Run and show a search; None if it was broken off during an evaluation."""
    from nugget.engines.execution import make_executor
    from nugget.report.terminal import make_view
    from nugget.search.plan import CallPlan

    config, directory = search.config, search.store.directory
    total = config.search.budget if budget is None else budget
    title = f"{config.system.title} · {config.engine.name} · {directory}"
    view = None if quiet else make_view(title, total, live)
    note = None if view is None else view.note
    plan = CallPlan.of(config, search.problem, total)

    def watch(status: Status) -> None:
        assert view is not None
        view.watch(status)
        if status.evaluations == 1 and status.record is not None:
            seconds = status.record.engine_seconds
            view.note(plan.expected_time(seconds, config.search.in_flight))

    if view is not None:
        typer.echo(f"{plan}.")
    try:
        # The search starts local processes itself; a cluster is started here.
        where = config.execution
        with (
            make_executor(where, directory) if where.is_cluster else nullcontext() as executor,
            view or nullcontext(),
            graceful_stop(search.stop, note, config.search.in_flight > 1),
        ):
            return search.run(None if view is None else watch, total, executor, stop_when)
    except KeyboardInterrupt:
        return None


def compare_proposals(directory: Path, json: bool, trust: bool = False) -> None:
    """Replay a search and print the differences; the exit code is 1 if there are any."""
    from nugget.search.search import Search

    replayed = Search.replay(directory, trust)
    if json:
        emit({"proposals": replayed.proposals, "differences": list(replayed.differences)})
    else:
        for text in replayed.differences:
            typer.echo(text)
        verdict = "all bit-identical" if replayed.same else "not identical"
        typer.echo(f"{counted(replayed.proposals, 'proposal')} repeated: {verdict}.")
    if not replayed.same:
        raise typer.Exit(1)


def draw_hull(summary: dict[str, Any]) -> None:
    """Write hull.png beside hull.json for two or three elements, and note it in the summary."""
    from nugget.report.figures import DRAWN, hull_figure
    from nugget.search.polish import FIGURE
    from nugget.storage.files import replacing

    phases = summary["phases"]
    if phases and len(phases[0]["composition"]) in DRAWN:
        path = Path(summary["directory"]) / FIGURE
        with replacing(path) as partial:
            title = f"{summary['formula']}, {summary['engine']}"
            hull_figure(phases, title).savefig(partial, format="png", dpi=160)
        summary["hull_figure"] = str(path)


def draw_diagram(summary: dict[str, Any]) -> None:
    """Write phase_diagram.png for one or two chemical potentials, and note it in the summary."""
    from nugget.report.phase_diagram_figure import DRAWN, diagram_figure
    from nugget.search.phase_diagram import FIGURE
    from nugget.storage.files import replacing

    diagram = summary["phase_diagram"]
    if diagram is not None and len(diagram["elements"]) in DRAWN:
        path = Path(summary["directory"]) / FIGURE
        with replacing(path) as partial:
            title = f"{summary['formula']}, {summary['engine']}"
            diagram_figure(diagram, title).savefig(partial, format="png", dpi=160)
        summary["diagram_figure"] = str(path)


def show(summary: dict[str, Any], broken_off: bool) -> None:
    """Print the result of a search and how to continue it."""
    from nugget.report.digest import failure_counts

    rows: list[tuple[str, object]] = [("evaluations", summary["evaluations"])]
    if summary["phases"]:
        rows += _phase_rows(summary)
    elif summary["phase_diagram"] is not None:
        rows += _diagram_rows(summary)
    elif summary["best_energy"] is not None:
        when = f"evaluation {summary['best_iteration'] + 1}, {summary['best_generator']}"
        rows += [
            ("lowest evaluated", f"{summary['best_evaluated']:.4f} {summary['unit']} ({when})"),
            *_minimum_rows(summary),
            *_confidence_rows(summary),
            ("best structure", summary["best_file"]),
        ]
    if summary["best_energy"] is not None:
        rows.append(("all structures", f"ase gui {summary['database']}"))
        rows.append(("page", f"nugget report {summary['directory']}"))
    if summary["reference"] is not None and summary["found"] is not None:
        rows.append(("reference", "found" if summary["found"] else "not found"))
    rows.append(("failures", failure_counts(summary["failures"])))
    rows += _check_rows(summary)
    rows.append(("engine calls", _calls(summary)))
    parts = ["surrogate", "engine"] + ["polish"] * (summary["polish_seconds"] > 0)
    rows.append(("time", ", ".join(f"{p} {duration(summary[f'{p}_seconds'])}" for p in parts)))
    facts(f"Search {summary['status']}: {summary['formula']} with {summary['engine']}", rows)
    if summary["phases"]:
        _show_hull(summary)
    if summary["phase_diagram"] is not None:
        _show_diagram(summary["phase_diagram"])
    _show_next_command(summary, broken_off)


def _calls(summary: dict[str, Any]) -> str:
    """All calls of the engine by purpose."""
    parts = {
        "search": summary["evaluations"],
        "checks": summary["check_evaluations"],
        "final relaxations": summary["polish_evaluations"],
    }
    return f"{sum(parts.values())} ({', '.join(f'{name} {n}' for name, n in parts.items())})"


def _check_rows(summary: dict[str, Any]) -> list[tuple[str, object]]:
    """The first check of the engine, and evaluations that turned out to be false."""
    rows: list[tuple[str, object]] = []
    if summary["engine_check"] is not None:
        rows.append(("engine check", summary["engine_check"]))
    for kind, number in summary["verdicts"].items():
        rows.append(("checked results", f"{counted(number, 'evaluation')} {kind}"))
    return rows


def _phase_rows(summary: dict[str, Any]) -> list[tuple[str, object]]:
    stable = [phase["formula"] for phase in summary["phases"] if phase["stable"]]
    return [
        ("stable", ", ".join(stable) or "not decided, because no phase was relaxed"),
        ("compositions", len(summary["phases"])),
        ("hull", " and ".join(filter(None, (summary["hull_file"], summary["hull_figure"])))),
        ("relaxed structures", summary["minima_file"]),
    ]


def _minimum_rows(summary: dict[str, Any]) -> list[tuple[str, object]]:
    """The relaxed structures."""
    minima = summary["minima"]
    if not minima:
        return []
    best, *others = minima  # the structure in best.extxyz comes first
    name = summary["quantity"]
    symmetry = best["point_group"] or best["space_group"]
    group, unit = f", {symmetry}" if symmetry else "", summary["unit"]
    rows: list[tuple[str, object]] = [
        (f"best {name}", f"{best['energy']:.4f} {unit}, fmax {best['fmax']:.3f} eV/Å{group}"),
        ("found in", f"{best['met']} of {counted(summary['evaluations'], 'evaluation')}"),
    ]
    if others:
        gap = others[0]["energy"] - best["energy"]
        count = f"{len(minima)} in {summary['minima_file']}"
        label = "next minimum" if gap >= 0 else "lower, not converged"
        rows.append((label, f"{gap:+.4f} {unit} ({count})"))
    if not best["converged"]:
        rows.append(("", "the lowest structure has not converged; continue with nugget relax"))
    return rows


def _confidence_rows(summary: dict[str, Any]) -> list[tuple[str, object]]:
    """Structures given by --learn, and the probability that the lowest structure was found."""
    from nugget.report.digest import likely

    rows: list[tuple[str, object]] = []
    if summary["learned"]:
        lowest = f"the lowest {summary['best_learned']:.4f} eV"
        rows.append(("given by --learn", f"{counted(summary['learned'], 'structure')}, {lowest}"))
    if summary["minima"] and summary["minima"][0]["learned"]:
        rows.append(("", "the best structure was given by --learn"))
    if (probability := summary["probability_lowest_found"]) is not None:
        times = f"{counted(summary['met_independently'], 'time')} from independent starts"
        rows += [("rediscovered", times), ("lowest found", f"{likely(probability)} likely")]
    elif summary["no_estimate"]:
        rows.append(("lowest found", f"no estimate, because {summary['no_estimate']}"))
    return rows


def _show_hull(summary: dict[str, Any]) -> None:
    """The stable phases, and the others closest to the hull."""
    phases = sorted(summary["phases"], key=lambda phase: phase["above_hull"])
    shown = {id(p) for p in phases if p["stable"]} | {id(p) for p in phases[:_PHASES]}
    rows = []
    for phase in summary["phases"]:
        if id(phase) in shown:
            above = "stable" if phase["stable"] else f"+{1e3 * phase['above_hull']:.1f}"
            energies = [f"{1e3 * phase['formation']:.1f}", above]
            relaxed = "yes" if phase["relaxed"] else "no"
            rows.append(
                [phase["formula"], *energies, phase["space_group"], phase["atoms"], relaxed]
            )
    columns = ["phase", "formation, meV/atom", "above the hull", "space group", "atoms", "relaxed"]
    table("Convex hull", columns, rows)


def _diagram_rows(summary: dict[str, Any]) -> list[tuple[str, object]]:
    diagram, directory = summary["phase_diagram"], Path(summary["directory"])
    files = [directory / name for name in ("phase_diagram.json", "phases.extxyz")]
    figure = [summary["diagram_figure"]] if summary["diagram_figure"] else []
    return [
        ("stable", ", ".join(diagram["stable"])),
        ("compositions", len(diagram["phases"])),
        ("final relaxation", f"{summary['polish_evaluations']} evaluations beyond the budget"),
        ("phase diagram", ", ".join(map(str, [*files, *figure]))),
    ]


def _show_diagram(diagram: dict[str, Any]) -> None:
    """The phases, their boundaries, and the calculations that would change them most."""
    from nugget.report.phase_diagram_sections import (
        BOUNDARY_COLUMNS,
        PHASE_COLUMNS,
        SUGGESTION_COLUMNS,
        boundary_rows,
        phase_rows,
        suggestion_rows,
    )

    phases = sorted(diagram["phases"], key=lambda phase: phase["above"])
    shown = {id(p) for p in phases if p["stable"]} | {id(p) for p in phases[:_PHASES]}
    some = [phase for phase in diagram["phases"] if id(phase) in shown]
    table("Phases", PHASE_COLUMNS, phase_rows(some))
    table("Boundaries", BOUNDARY_COLUMNS, boundary_rows(diagram["boundaries"]))
    table("Calculations that would change this most", SUGGESTION_COLUMNS,
          suggestion_rows(diagram["suggestions"]))  # fmt: skip


def _show_next_command(summary: dict[str, Any], broken_off: bool) -> None:
    again = f"nugget search --resume {summary['directory']}"
    if broken_off and summary["in_flight"] > 1:
        typer.echo("The evaluations in flight will be repeated; all others are saved.")
    elif broken_off:
        typer.echo("The evaluation in flight is lost; all others are saved.")
    if summary["status"] == "failed":
        typer.echo(f"The search failed: {summary['reason']}. Repair the engine, then: {again}")
    if summary["status"] == "interrupted":
        typer.echo(f"To continue: {again}")
    elif summary["cause"] == "confidence":
        typer.echo(f"Stopped by search.stop_when. To continue: {again} --stop-when 0.99")
    elif summary["status"] == "finished":
        typer.echo(f"To continue: {again} --budget {2 * summary['evaluations']}")
