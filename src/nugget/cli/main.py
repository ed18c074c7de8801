"""The command `nugget`.

Each command is one function in one file of this folder, and one word in COMMANDS. A command file
imports heavy packages (numpy, ase, numba, rich) inside functions only, so that `nugget --help`
starts at once.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperGroup

import nugget
from nugget.cli._console import PlainCommand, flowing, handled, plain_where_needed

_NAMES = (
    "search relax md neb saddle campaign report watch compare list init engines fit predict "
    "calibrate evaluate judge learn_curve export info check select label dataset lammps ipi"
)
#: The commands in the order of the help; each is the function of the same name in its own module.
COMMANDS = [getattr(import_module(f"nugget.cli.{name}"), name) for name in _NAMES.split()]
BARE = ("init", "engines", "list")  # these run without arguments; the others print their help


class _Group(TyperGroup):
    """Reports bad input in one line instead of a traceback, on ASCII terminals as well."""

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
    show_help = command.__name__ not in BARE
    app.command(cls=PlainCommand, no_args_is_help=show_help, help=flowing(command.__doc__))(command)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"nugget {nugget.__version__}")
        raise typer.Exit


@app.callback()
def main(
    version: bool = typer.Option(
        False, "--version", callback=_version, is_eager=True, help="Print the version and exit."
    ),
) -> None:
    """Gaussian-process interatomic potentials with calibrated uncertainties.

    Find the structure of lowest energy with as few expensive calculations as
    possible:

        nugget search Au20
        nugget init Cu5Au8 -o settings.toml
        nugget engines

    Look at a search, finished or running:

        nugget report runs/Au20-seed0
        nugget watch runs/Au20-seed0
        nugget compare runs/Au20-seed0 runs/Au20-seed1
        nugget list runs

    Relax structures with a third of the evaluations of a standard optimiser:

        nugget relax best.extxyz --engine gfn1-xtb -o relaxed.extxyz

    Run molecular dynamics and find barriers with few calls of the engine:

        nugget md start.xyz --engine emt --temperature 600 --out run
        nugget neb initial.traj final.traj --engine emt --out path
        nugget saddle guess.xyz --engine gfn2-xtb --connect --out ts

    Run many searches and compare their success rates:

        nugget campaign Au20 --vary kappa=0,2 --reference known.xyz -o kappas

    Fit a potential to energies and forces, predict with error bars, and check
    it:

        nugget fit train.extxyz -o au.model
        nugget predict au.model test.extxyz -o predicted.extxyz
        nugget info au.model
        nugget check au.model test.extxyz

    Calibrate the error bars, evaluate them, and build data sets:

        nugget calibrate au.model validation.extxyz
        nugget evaluate au.model test.extxyz --plot figures
        nugget dataset Au10-Au20 -n 300 --out gold

    See how wrong a foundation model is on your structures, and correct it:

        nugget judge train.extxyz --engine sevennet
        nugget fit train.extxyz -o corrected.model --mean sevennet

    Choose which structures to label next, label them, and fit again:

        nugget select pool.extxyz -n 20 --model au.model -o chosen.extxyz
        nugget label chosen.extxyz --engine gfn1-xtb -o labelled.extxyz

    All file formats of ASE are read (extxyz, traj, ase.db, ...), compressed or
    not. Energies are in eV, lengths in Å. The help of every command has
    examples, as nugget fit --help.
    """
