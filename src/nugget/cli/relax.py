"""`nugget relax`: relax structures with an engine, in as few evaluations as possible."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from typer import Argument, Option

from nugget.cli._console import Force, emit, engine_config, number, progress, refuse_existing, table
from nugget.cli._options import Json, Mean
from nugget.errors import NuggetError

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.engines.outcome import Outcome
    from nugget.relax.engine_relaxation import EngineRelaxation
    from nugget.relax.relaxation import Relaxed


def relax(
    structures: Path = Argument(..., help="Structures to relax.", metavar="FILE"),
    out: Path = Option(..., "--out", "-o", metavar="OUT", help="File for the relaxed structures."),
    engine: str = Option("gfn1-xtb", help="A name from `nugget engines`, or module:factory."),
    fmax: float = Option(0.05, min=1e-6, help="Largest force on a free atom at the end, eV/Å."),
    max_evaluations: int = Option(200, min=1, help="Evaluations per structure at most."),
    jobs: int = Option(1, "--jobs", "-j", min=1, help="Parallel relaxations."),
    probes: int = Option(0, min=0, help="Soft modes to test for saddle points; 0 means none."),
    cell: bool = Option(False, "--cell", help="Relax the cells of crystals as well."),
    pressure: float = Option(0.0, help="Pressure in GPa, with --cell."),
    mean: Mean = None,
    settings: list[str] | None = Option(
        None, "--set", metavar="KEY=VALUE", help="Setting of the engine, as engine.charge=1."
    ),
    force: Force = False,
    json: Json = False,
) -> None:
    """Relax structures with an engine.

    [bold]Examples[/bold]

        nugget relax best.extxyz --engine gfn1-xtb -o relaxed.extxyz
        nugget relax slabs.traj --engine emt -o relaxed.traj -j 4
        nugget relax crystals.cif --engine tersoff --cell --pressure 10 -o out.cif
        nugget relax oxides.traj --engine gpaw --mean sevennet -o relaxed.traj
        nugget relax clusters.xyz --engine my_module:make --fmax 0.01 -o out.xyz

    A local model is trained on every energy and force and proposes the steps; the engine alone
    decides about descent and convergence. This takes at most a third of the evaluations of a
    standard optimiser. With --mean the local model learns the difference between the engine and
    that mean function. Cells are kept; atoms that the file fixes (FixAtoms, FixCartesian) stay.

    With --cell, L-BFGS relaxes atoms and cell at the given pressure with the energies, forces and
    stresses of the engine, without a local model. With --pressure the table shows E + pV; the
    energies in OUT are E.

    The first structure is evaluated twice more, to compare forces with energies; set
    engine.verify=false to omit this.

    The exit code is 1 if a structure has not converged; its lowest geometry is written anyway.
    """
    from ase.units import GPa

    from nugget.engines.engine_check import CheckingQueue
    from nugget.engines.queue import EvaluationQueue
    from nugget.onthefly.saddle_run import CalculatorBaseline
    from nugget.relax.engine_relaxation import CellRelaxation, LearningRelaxation, relax_through
    from nugget.structures.io import read_images, write_images

    refuse_existing(out, force, inputs=(structures,))
    images = [_without_results(atoms) for atoms in read_images(structures)]
    config = engine_config(engine, settings or [])
    if pressure and not cell:
        raise NuggetError("--pressure requires --cell.")
    if mean is not None and cell:
        raise NuggetError("--mean is for relaxations of atoms; remove --cell.")
    if cell:
        config = config.model_copy(update={"stress": True})

    def begin(atoms: Atoms) -> EngineRelaxation:
        if cell:
            return CellRelaxation(atoms, fmax, max_evaluations, pressure * GPa)
        baseline = None if mean is None else CalculatorBaseline(mean, config, atoms)
        return LearningRelaxation(atoms, fmax, max_evaluations, probes, baseline)

    runs = [begin(atoms) for atoms in images]
    with (
        EvaluationQueue(config, min(jobs, max(len(images), 1))) as queue,
        progress("Relaxing", not json) as step,
    ):

        def show_progress(key: int, outcome: Outcome) -> None:
            if step is not None:
                step(sum(run.done for run in runs), len(runs))

        checking = CheckingQueue(queue, config)
        relax_through(checking, dict(enumerate(runs)), show_progress)
    write_images(out, [_described(run.result()) for run in runs])
    rows = [_row(k, run, pressure * GPa, images[k]) for k, run in enumerate(runs)]
    checked = None if checking.report is None else str(checking.report)
    if json:
        evaluations = sum(run.evaluations for run in runs)
        emit({"structures": rows, "evaluations": evaluations, "engine_check": checked})
    else:
        name, unit = ("enthalpy", "E + pV, eV") if pressure else ("energy", "eV")
        columns = ("structure", f"start, {unit}", f"end, {unit}", "fmax, eV/Å", "evaluations", "")
        lines = []
        for row in rows:
            numbers = [number(row[key], 4, "f") for key in (f"start_{name}", name, "fmax")]
            lines.append((row["formula"], *numbers, row["evaluations"], row["reason"]))
        table(f"Relaxed with {engine}: {out}", columns, lines)
        if checked is not None:
            typer.echo(f"engine check: {checked}")
    if not all(run.result().converged for run in runs):
        raise typer.Exit(1)


# What searches, relaxations and predictions write about a structure, which its relaxation changes.
_RESULTS = (
    "fmax", "converged", "start", "met", "point_group", "space_group", "energy_uncertainty",
    "stress_uncertainty", "energy_interval", "reference_energy", "key_value_pairs", "data",
    "unique_id",
)  # fmt: skip

_ATOM_RESULTS = ("energies_uncertainty", "forces_uncertainty", "reference_forces")


def _without_results(atoms: Atoms) -> Atoms:
    """The structure without earlier results that its relaxation would make false."""
    for name in _RESULTS:
        atoms.info.pop(name, None)
    for name in _ATOM_RESULTS:
        atoms.arrays.pop(name, None)
    return atoms


def _described(result: Relaxed) -> Atoms:
    """The relaxed structure with its largest force."""
    atoms = result.atoms
    if atoms.calc is not None:
        atoms.info |= {"fmax": result.fmax, "converged": result.converged}
    return atoms


def _volume(atoms: Atoms) -> float:
    return float(atoms.get_volume()) if atoms.cell.rank == 3 else 0.0


def _row(number: int, run: EngineRelaxation, pressure: float, start: Atoms) -> dict[str, Any]:
    """One structure as plain data; `pressure` in eV/Å³."""
    result = run.result()
    first = run.points[0].energy if run.points else None  # E + pV
    last = result.energy if run.points else None
    before, after = (pressure * _volume(atoms) for atoms in (start, result.atoms))
    return {
        "structure": number,
        "formula": result.atoms.get_chemical_formula(),
        "start_energy": None if first is None else first - before,
        "energy": last,
        "start_enthalpy": first,
        "enthalpy": None if last is None else last + after,
        "fmax": result.fmax if run.points else None,
        "evaluations": result.evaluations,
        "converged": result.converged,
        "reason": result.reason,
    }
