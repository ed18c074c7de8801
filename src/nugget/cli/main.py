"""The command `nugget`.

Each command is one function in one file of this folder, and one line in COMMANDS. A command file
imports nothing heavy (numpy, ase, numba, rich) outside its function: `nugget --help` answers at
once.
"""

from __future__ import annotations

import sys
from typing import Any

import typer
from typer.core import TyperGroup

import nugget
from nugget.cli._errors import handled
from nugget.cli._help import PlainCommand, flowing
from nugget.cli._terminal import plain_where_needed
from nugget.cli.calibrate import calibrate
from nugget.cli.campaign import campaign
from nugget.cli.check import check
from nugget.cli.compare import compare
from nugget.cli.dataset import dataset
from nugget.cli.engines import engines
from nugget.cli.evaluate import evaluate
from nugget.cli.export import export
from nugget.cli.fit import fit
from nugget.cli.info import info
from nugget.cli.init import init
from nugget.cli.learn_curve import learn_curve
from nugget.cli.md import md
from nugget.cli.neb import neb
from nugget.cli.predict import predict
from nugget.cli.relax import relax
from nugget.cli.report import report
from nugget.cli.search import search
from nugget.cli.watch import watch

COMMANDS = (
    search,
    relax,
    md,
    neb,
    campaign,
    report,
    watch,
    compare,
    init,
    engines,
    fit,
    predict,
    calibrate,
    evaluate,
    learn_curve,
    export,
    info,
    check,
    dataset,
)
BARE = (init, engines)  # these do their work without arguments; others explain themselves


class _Group(TyperGroup):
    """Reports bad input in one line instead of a traceback, on terminals without σ and Å too."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        plain_where_needed(sys.stdout, sys.stderr)
        return super().main(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with handled():
            return super().invoke(ctx)


app = typer.Typer(
    name="nugget",
    cls=_Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for command in COMMANDS:
    app.command(
        cls=PlainCommand, no_args_is_help=command not in BARE, help=flowing(command.__doc__)
    )(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nugget {nugget.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and leave."
    ),
) -> None:
    """Gaussian-process interatomic potentials that know what they do not know.

    Find the structure of lowest energy, with as few expensive calculations as
    possible:

        nugget search Au20
        nugget init Cu5Au8 -o settings.toml
        nugget engines

    Look at a search, afterwards or while it runs:

        nugget report runs/Au20-seed0
        nugget watch runs/Au20-seed0
        nugget compare runs/Au20-seed0 runs/Au20-seed1

    Relax structures with the same engines, in a third of the usual evaluations:

        nugget relax best.extxyz --engine gfn1-xtb -o relaxed.extxyz

    Simulate, and find barriers, with an engine that is called where it must be:

        nugget md start.xyz --engine emt --temperature 600 --out run
        nugget neb initial.traj final.traj --engine emt --out path

    Many searches at once, and how often and how soon they succeed:

        nugget campaign Au20 --vary kappa=0,2 --reference known.xyz -o kappas

    Fit a potential to structures with energies and forces, predict with error
    bars, and check it:

        nugget fit train.extxyz -o au.model
        nugget predict au.model test.extxyz -o predicted.extxyz
        nugget info au.model
        nugget check au.model test.extxyz

    Make the error bars honest, judge them, and build data sets to do so:

        nugget calibrate au.model validation.extxyz
        nugget evaluate au.model test.extxyz --plot figures
        nugget dataset Au10-Au20 -n 300 --out gold

    Structures come from any file that ASE reads (extxyz, traj, ase.db, ...),
    compressed or not. Energies are in eV, lengths in Å. Every command has
    examples: nugget fit --help.
    """
