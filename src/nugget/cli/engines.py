"""`nugget engines`: lists the engines, their settings and installation, and tests one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from nugget.cli._console import emit, engine_options, facts, given, printable, table
from nugget.cli._options import Json, Trust
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.engines.outcome import Outcome


def engines(
    name: str | None = Argument(
        None, help="Name of an engine, module:factory, or settings.toml with --try."
    ),
    file: Path | None = Argument(None, help="With --try: file whose last structure is evaluated."),
    trial: bool = Option(False, "--try", help="Run one evaluation and print the result."),
    option: list[str] | None = Option(
        None, help="With --try: option of the engine, as xc=PBE; repeatable."
    ),
    charge: int | None = Option(None, help="With --try: total charge, e."),
    spin: int | None = Option(None, help="With --try: multiplicity 2S + 1.", min=1),
    vacuum: float | None = Option(
        None, help="With --try: vacuum around a structure without a cell, Å."
    ),
    time_limit: float | None = Option(None, help="With --try: time limit, s. Default: 600."),
    execution: bool = Option(
        False, "--execution", help="With --try settings.toml: evaluate where [execution] says."
    ),
    dry_run: bool = Option(
        False, "--dry-run", help="With --execution: print the job script, submit nothing."
    ),
    keep: bool = Option(False, "--keep", help="With --try: keep the files of a failed evaluation."),
    options: bool = Option(
        False, "--options", help="Table of the options of all engines, or of NAME."
    ),
    trust: Trust = False,
    json: Json = False,
) -> None:
    """List the engines, whether they are installed and how to install them.

    [bold]Examples[/bold]

        nugget engines
        nugget engines vasp
        nugget engines vasp --options
        nugget engines --try gfn1-xtb
        nugget engines --try settings.toml slab.xyz
        nugget engines --try settings.toml --execution --dry-run
        nugget engines --try my_module:my_factory slab.xyz --option k=4
        nugget search Au20 --engine gpaw

    An engine computes energies and forces for a search. Besides these names, module:factory selects
    any function that returns an ASE calculator; its module is installed or in the current
    directory. --try evaluates FILE, or a small structure, as in a search: in a separate process
    and directory. It accepts the name of an engine or a settings file, whose section [engine] it
    uses; without FILE it evaluates an initial structure of that search. The exit code is 1 if the
    evaluation fails; its last output is printed, and --keep keeps its files. --execution submits
    the evaluation to the queue that [execution] of the settings file names, and prints the job
    script; with --dry-run only the script.

    --options lists what each option may do. In a file that names options of the kinds `code` and
    `writes files`, or options that are not listed, nugget asks for --trust.
    """
    if trial:
        if name is None:
            raise NuggetError("Name the engine to try, as `nugget engines --try emt`.")
        settings = given(charge=charge, spin=spin, vacuum=vacuum, time_limit=time_limit)
        engine = _engine(name, option or [], settings, trust)
        if execution:
            try_execution(name, engine, file, dry_run, json, trust)
            return
        _try(*engine, _structure(name, file), json, "" if file else name, keep)
    elif options:
        _options(name, json)
    elif name is not None:
        _show(name, json)
    else:
        _list(json)


def _list(json: bool) -> None:
    from dataclasses import asdict

    from nugget.engines.engine import describe_engines

    listed = describe_engines()
    if json:
        emit({"engines": [asdict(engine) for engine in listed]})
        return
    from rich.text import Text

    rows: list[tuple[object, ...]] = []
    for engine in listed:
        name = f"{engine.name} (default)" if engine.default else engine.name
        state = Text("yes", style="green")
        if not engine.installed:
            state = Text(f"no: {engine.how_to_install or 'see its authors'}", style="yellow")
        rows.append((Text(name, style="cyan"), engine.description, state))
    table("Engines", ("name", "description", "installed"), rows, show_lines=True, left=True)
    typer.echo("Any other ASE calculator: --engine module:factory")
    typer.echo("Settings: nugget engines NAME. Test: nugget engines --try NAME")


def _options(name: str | None, json: bool) -> None:
    """The table of options: plain, code or writes files."""
    from nugget.engines.engine import describe_options

    rows = describe_options(name)
    if json:
        names = ("engine", "option", "use", "type")
        emit({"options": [dict(zip(names, row, strict=True)) for row in rows]})
    else:
        table("Options of engines", ("engine", "option", "may", "type"), rows)


def _show(name: str, json: bool) -> None:
    from nugget.engines.engine import get_engine

    engine = get_engine(name)
    missing = engine.missing()
    if json:
        names = ("description", "how_to_install", "settings", "vacuum")
        known = {name: getattr(engine, name) for name in names}
        emit({"name": name, "installed": missing is None, "missing": missing, **known})
        return
    rows: list[tuple[str, object]] = [("description", engine.description)]
    rows.append(("installed", "yes" if missing is None else f"no: {missing}"))
    if engine.how_to_install:
        rows.append(("installation", engine.how_to_install))
    rows.append(("options", engine.settings or "those of its function"))
    if engine.vacuum is not None:
        rows.append(("vacuum", f"{engine.vacuum:g} Å around structures without a cell"))
    facts(f"Engine {name}", rows)


def _engine(
    name: str, option: list[str], settings: dict[str, Any], trust: bool
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Name, options and other settings of the engine; options override those of a file."""
    options = engine_options(option)
    if not name.endswith(".toml"):
        return name, options, settings
    from nugget.engines.engine_settings import engine_code, require_trust
    from nugget.search.search_settings import read_config

    engine = read_config(Path(name)).engine
    require_trust(engine_code(engine.name, engine.options), name, trust)
    own = engine.model_dump(include={"charge", "spin", "magmoms", "vacuum", "time_limit"})
    return engine.name, {**engine.options, **options}, {**own, **settings}


def _structure(name: str, file: Path | None) -> Atoms:
    """The structure of the file, else of the settings, else six gold atoms (a silicon crystal)."""
    from ase.build import bulk
    from ase.cluster import Octahedron

    from nugget.search.prepare import first_structure
    from nugget.search.search_settings import read_config
    from nugget.structures.io import read_images

    if file is not None:
        return read_images(file, -1)[0]
    if name.endswith(".toml"):
        return first_structure(read_config(Path(name)), Path(name).parent)
    return bulk("Si", cubic=True) if name == "tersoff" else Octahedron("Au", 2)


def _try(
    name: str,
    options: dict[str, Any],
    settings: dict[str, Any],
    atoms: Atoms,
    json: bool,
    hint: str = "",
    keep: bool = False,
) -> None:
    """Evaluate and print; `hint` is the value of --try if no structure was given."""
    from tempfile import TemporaryDirectory

    from nugget.engines.runner import Evaluator
    from nugget.engines.task import Task

    try:
        task = Task(name=name, options=options, retries=0, **settings)
    except ValueError as error:
        raise NuggetError(f"engine settings: {error}") from None
    output = ""
    if keep:
        with Evaluator(task) as evaluator:
            outcome = evaluator.evaluate(atoms)
    else:
        with TemporaryDirectory(prefix="nugget-try-") as scratch:
            task = task.model_copy(update={"scratch": scratch})
            with Evaluator(task) as evaluator:
                outcome = evaluator.evaluate(atoms)
            output = _last_lines(Path(scratch))
        outcome = replace(outcome, reason=outcome.reason.partition(" (files in ")[0])
    _show_outcome(name, atoms, outcome, json, hint, output)


def _show_outcome(
    name: str, atoms: Atoms, outcome: Outcome, json: bool, hint: str = "", output: str = ""
) -> None:
    """Print the result of a trial; the exit code is 1 after a failure."""
    report = _report(name, atoms, outcome)
    if json:
        emit(report)
    elif outcome.ok:
        rows = [("energy", f"{report['energy']:.6f} eV")]
        rows.append(("largest force", f"{report['fmax']:.4g} eV/Å"))
        if report["stress"] is not None:
            rows.append(("stress", " ".join(f"{s:.4g}" for s in report["stress"]) + " eV/Å³"))
        rows.append(("time", f"{outcome.seconds:.2f} s, including the start of the process"))
        facts(f"{name} on {report['formula']}", rows)
    else:
        text = f"{name} on {report['formula']} failed ({outcome.failure}): {outcome.reason}"
        more = f". Another structure: --try {hint} FILE."
        typer.echo(text.rstrip(".") + more if hint else text, err=True)
        if output:
            typer.echo(f"The last output of the engine (--keep keeps all its files):\n{output}")
    if not outcome.ok:
        raise typer.Exit(1)


def try_execution(
    name: str,
    engine: tuple[str, dict[str, Any], dict[str, Any]],
    file: Path | None,
    dry_run: bool,
    json: bool,
    trust: bool,
) -> None:
    """Evaluate one structure through the executor of a settings file."""
    from nugget.engines.engine_settings import EngineConfig, execution_code, require_trust
    from nugget.engines.execution import make_executor, script_of
    from nugget.engines.queue import EvaluationQueue
    from nugget.engines.task import Task
    from nugget.search.search_settings import read_config

    if not name.endswith(".toml"):
        raise NuggetError(
            "--execution needs a settings file with a section [execution], as "
            "`nugget engines --try settings.toml --execution`."
        )
    where = read_config(Path(name)).execution
    require_trust(execution_code(where), name, trust)
    program, options, settings = engine
    config = EngineConfig(name=program, options=options, retries=0, **settings)
    Task.of(config).check(where)
    directory = Path.cwd()
    if not json:
        typer.echo(script_of(where, directory))
    if dry_run:
        return
    atoms = _structure(name, file)
    with (
        make_executor(where, directory) as executor,
        EvaluationQueue(config, 1, executor, directory=directory) as queue,
    ):
        queue.submit(0, atoms)
        _, outcome = queue.next()
    _show_outcome(program, atoms, outcome, json)


def _last_lines(scratch: Path, number: int = 10) -> str:
    """The end of the output of a failed evaluation, if any."""
    from nugget.engines.runner import OUTPUT

    texts = [file.read_text(errors="replace") for file in scratch.glob(f"*/{OUTPUT}")]
    return printable("\n".join("".join(texts).splitlines()[-number:]))


def _report(name: str, atoms: Atoms, outcome: Outcome) -> dict[str, Any]:
    from nugget.structures.geometry import largest_force

    results = outcome.atoms.calc.results if outcome.ok else {}
    return {
        "engine": name,
        "formula": atoms.get_chemical_formula(),
        "ok": outcome.ok,
        "energy": results.get("energy"),
        "fmax": largest_force(outcome.atoms) if outcome.ok else None,
        "stress": results.get("stress"),
        "seconds": outcome.seconds,
        "failure": outcome.failure,
        "reason": outcome.reason or None,
    }
