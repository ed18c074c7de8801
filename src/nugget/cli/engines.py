"""`nugget engines`: which calculators there are, how to get them, and whether one works."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from nugget.cli._common import emit, facts
from nugget.cli._options import Json, Trust

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.evaluation.outcome import Outcome


def engines(
    name: Annotated[
        str | None,
        typer.Argument(help="Show this engine only, or module:factory; --try: or settings.toml."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Argument(help="With --try: evaluate the last structure of this file."),
    ] = None,
    trial: Annotated[
        bool, typer.Option("--try", help="Run one evaluation and say what came back.")
    ] = False,
    option: Annotated[
        list[str] | None,
        typer.Option(help="With --try: for the engine, as xc=PBE (repeat for more)."),
    ] = None,
    charge: Annotated[int | None, typer.Option(help="With --try: total charge, e.")] = None,
    spin: Annotated[
        int | None, typer.Option(help="With --try: multiplicity 2S + 1.", min=1)
    ] = None,
    vacuum: Annotated[
        float | None, typer.Option(help="With --try: Å around a structure without a cell.")
    ] = None,
    time_limit: Annotated[
        float | None, typer.Option(help="With --try: seconds. Default: 600.")
    ] = None,
    trust: Trust = False,
    json: Json = False,
) -> None:
    """List the engines: what they are, whether they are installed, how to install them.

    [bold]Examples[/bold]

        nugget engines
        nugget engines vasp
        nugget engines --try gfn1-xtb
        nugget engines --try settings.toml slab.xyz
        nugget engines --try my_module:my_factory slab.xyz --option k=4
        nugget search Au20 --engine gpaw

    An engine gives energies and forces to a search. Besides these names, module:factory stands for
    any function that returns an ASE calculator; its module is looked for among the installed ones
    and in the current directory. --try evaluates FILE, or a small structure, as a search would: in
    a process and a directory of its own. It takes the name of an engine, or a settings file, whose
    section [engine] it uses; without FILE the structure is one that its search might begin with.
    The exit code is 1 if that fails.
    """
    from nugget.errors import NuggetError

    if trial:
        if name is None:
            raise NuggetError("Say which engine to try, as `nugget engines --try emt`.")
        given = {"charge": charge, "spin": spin, "vacuum": vacuum, "time_limit": time_limit}
        engine = _engine(name, option or [], given, trust)
        _try(*engine, _structure(name, file), json, "" if file else name)
    elif name is not None:
        _show(name, json)
    else:
        _list(json)


def _list(json: bool) -> None:
    from dataclasses import asdict

    from nugget.evaluation.engines import describe_engines

    found = describe_engines()
    if json:
        emit({"engines": [asdict(engine) for engine in found]})
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Engines", title_justify="left", title_style="bold", show_lines=True)
    table.add_column("name", style="cyan", no_wrap=True)
    table.add_column("what it is", overflow="fold")
    table.add_column("installed", overflow="fold")
    for engine in found:
        name = f"{engine.name} (default)" if engine.default else engine.name
        state = Text("yes", style="green")
        if not engine.installed:
            state = Text(f"no: {engine.how_to_install or 'see its authors'}", style="yellow")
        table.add_row(Text(name), Text(engine.description), state)
    console = Console()
    console.print(table)
    console.print("Any other ASE calculator: --engine module:factory", markup=False)
    console.print("Its settings: nugget engines NAME. Does it work? nugget engines --try NAME")


def _show(name: str, json: bool) -> None:
    from nugget.evaluation.engines import get_engine

    engine = get_engine(name)
    missing = engine.missing()
    if json:
        told = {"name": name, "description": engine.description, "installed": missing is None}
        more = {"missing": missing, "how_to_install": engine.how_to_install}
        emit({**told, **more, "settings": engine.settings, "vacuum": engine.vacuum})
        return
    rows: list[tuple[str, object]] = [("what it is", engine.description)]
    rows.append(("installed", "yes" if missing is None else f"no: {missing}"))
    if engine.how_to_install:
        rows.append(("to install it", engine.how_to_install))
    rows.append(("options", engine.settings or "those of its function"))
    if engine.vacuum is not None:
        rows.append(("vacuum", f"{engine.vacuum:g} Å around structures without a cell"))
    facts(f"Engine {name}", rows)


def _engine(
    name: str, option: list[str], given: dict[str, Any], trust: bool
) -> tuple[str, dict[str, Any], dict[str, Any]]:
    """Name, options and further settings of the engine; a file's own, changed by what is given."""
    from nugget.cli._values import engine_options

    settings = {key: value for key, value in given.items() if value is not None}
    options = engine_options(option)
    if not name.endswith(".toml"):
        return name, options, settings
    from nugget.evaluation.trust import engine_code, require_trust
    from nugget.search.config import read_config

    engine = read_config(Path(name)).engine
    require_trust(engine_code(engine.name, engine.options), name, trust)
    own = engine.model_dump(include={"charge", "spin", "magmoms", "vacuum", "time_limit"})
    return engine.name, {**engine.options, **options}, {**own, **settings}


def _structure(name: str, file: Path | None) -> Atoms:
    """What is evaluated: of the file, else of the system of the settings, else a small one."""
    from nugget.search.config import read_config
    from nugget.search.prepare import first_structure
    from nugget.structures.io import read_images

    if file is not None:
        return read_images(file, -1)[0]
    if name.endswith(".toml"):
        return first_structure(read_config(Path(name)), Path(name).parent)
    return _small(name)


def _try(
    name: str,
    options: dict[str, Any],
    settings: dict[str, Any],
    atoms: Atoms,
    json: bool,
    hint: str = "",
) -> None:
    """Evaluate and tell; `hint` is what --try was given, if it was given no structure."""
    from nugget.evaluation.evaluator import Evaluator

    with Evaluator(name, options, retries=0, **settings) as evaluator:
        outcome = evaluator.evaluate(atoms)
    report = _report(name, atoms, outcome)
    if json:
        emit(report)
    elif outcome.ok:
        rows = [("energy", f"{report['energy']:.6f} eV")]
        rows.append(("largest force", f"{report['fmax']:.4g} eV/Å"))
        if report["stress"] is not None:
            rows.append(("stress", " ".join(f"{s:.4g}" for s in report["stress"]) + " eV/Å³"))
        rows.append(("time", f"{outcome.seconds:.2f} s, the start of the process included"))
        facts(f"{name} on {report['formula']}", rows)
    else:
        text = f"{name} on {report['formula']} failed ({outcome.failure}): {outcome.reason}"
        typer.echo(
            f"{text.rstrip('.')}. Another structure: --try {hint} FILE." if hint else text, err=True
        )
    if not outcome.ok:
        raise typer.Exit(1)


def _small(name: str) -> Atoms:
    """A small structure: six gold atoms, or a crystal of silicon for an engine without gold."""
    from ase.build import bulk
    from ase.cluster import Octahedron

    return bulk("Si", cubic=True) if name == "tersoff" else Octahedron("Au", 2)


def _report(name: str, atoms: Atoms, outcome: Outcome) -> dict[str, Any]:
    import numpy as np

    results = outcome.atoms.calc.results if outcome.ok else {}
    return {
        "engine": name,
        "formula": atoms.get_chemical_formula(),
        "ok": outcome.ok,
        "energy": results.get("energy"),
        "fmax": float(np.linalg.norm(results["forces"], axis=1).max()) if outcome.ok else None,
        "stress": results.get("stress"),
        "seconds": outcome.seconds,
        "failure": outcome.failure,
        "reason": outcome.reason or None,
    }
