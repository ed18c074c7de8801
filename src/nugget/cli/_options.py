"""Arguments and options, as types: each is described once, whatever commands take it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option

# --------------------------------------------------------------------------- models and data

Json = Annotated[bool, Option("--json", help="Print one JSON object instead of tables.")]
Index = Annotated[str, Option("--index", "-i", help="Structures of DATA: '0:100', '::10', '-1'.")]
ModelFile = Annotated[Path, Argument(help="A model that `nugget fit` wrote.", metavar="MODEL")]
DataFile = Annotated[Path, Argument(help="Structures: any file that ASE reads.", metavar="DATA")]
Trust = Annotated[
    bool, Option("--trust", help="Run code that a file or directory names (module:factory, …).")
]
AllowTraining = Annotated[
    bool, Option("--allow-training", help="Accept training structures among DATA.")
]
EnergyKey = Annotated[
    str | None, Option(help="Name of the energy in DATA, if not 'energy': 'REF_energy', ...")
]
ForcesKey = Annotated[str | None, Option(help="Name of the forces in DATA, if not 'forces'.")]
StressKey = Annotated[str | None, Option(help="Name of the stress in DATA, if not 'stress'.")]
Resamples = Annotated[int, Option(help="Bootstrap samples for intervals; 0: none.", min=0)]
RandomSeed = Annotated[int, Option(help="Seed of all random choices.")]

# --------------------------------------------------------------------------- searches

Engine = Annotated[
    str | None,
    Option("--engine", "-e", help="As `nugget engines`, or module:factory. Default: gfn1-xtb."),
]
Budget = Annotated[int | None, Option(min=1, help="Evaluations per search. Default: 150.")]
Kappa = Annotated[float | None, Option(help="Exploration: E − κσ is minimised. Default: 2.")]
Seed = Annotated[int | None, Option(help="The (first) seed. Same seed, same search. Default: 0.")]
Candidates = Annotated[int | None, Option(help="Structures relaxed per evaluation. Default: 30.")]
InFlight = Annotated[int | None, Option(help="Evaluations at the same time. Default: 1.")]
LearnForces = Annotated[
    bool | None, Option("--forces/--no-forces", help="Learn from forces too. Default: yes.")
]
Reference = Annotated[
    str | None, Option(metavar="FILE", help="A structure: a search stops when it is found.")
]
Start = Annotated[
    str | None, Option(metavar="FILE", help="Structures to evaluate first, in order.")
]
Learn = Annotated[
    str | None,
    Option(metavar="FILE|RUN", help="Labelled structures, or another search: not paid again."),
]
StopWhen = Annotated[
    float | None,
    Option(min=0.01, max=0.9999, help="Stop when the lowest is found with this probability."),
]
Settings = Annotated[
    list[str] | None,
    Option("--set", metavar="KEY=VALUE", help="Another setting, as search.hops=2; repeatable."),
]
Crystal = Annotated[
    bool, Option("--crystal", help="A crystal: atoms and cell are searched for together.")
]
Units = Annotated[
    str | None, Option(help="Crystal: formula units in the cell, as 2 or 1-4. Default: 1-4.")
]
Pressure = Annotated[float | None, Option(help="Crystal: pressure in GPa. Default: 0.")]
Live = Annotated[bool, Option("--live/--no-live", help="A live view, or plain lines.")]
Target = Annotated[
    str | None,
    Argument(
        help="A formula such as Au20, molecules as H2O*4, or a TOML file.",
        metavar="FORMULA|CONFIG",
    ),
]
Resume = Annotated[Path | None, Option(metavar="DIR", help="Continue what is in this directory.")]
Replay = Annotated[
    Path | None, Option(metavar="DIR", help="Make all proposals of a search again and compare.")
]
Out = Annotated[Path | None, Option("--out", "-o", metavar="DIR", help="The directory to write.")]
Workers = Annotated[
    int | None, Option("--workers", "-j", min=1, help="At a time. Default: one per core.")
]

# --------------------------------------------------------------------------- fitting


def _option(name: str, text: str, panel: str) -> Any:
    return Option(name, help=text, rich_help_panel=panel)


def _soap(name: str, text: str) -> Any:
    return _option(name, text, "Descriptor (SOAP)")


def _process(name: str, text: str) -> Any:
    return _option(name, text, "Gaussian process")


def _std(name: str, text: str) -> Any:
    return _option(name, text, "Uncertainty")


Species = Annotated[str | None, _soap("--species", "Elements, as 'Cu,Au'. Default: as in DATA.")]
Cutoff = Annotated[float | None, _soap("--cutoff", "Radius of an environment, Å.")]
NMax = Annotated[int | None, _soap("--n-max", "Radial functions; 8 resolves far more than 3.")]
LMax = Annotated[int | None, _soap("--l-max", "Highest angular momentum; 6 goes with n-max 8.")]
Sigma = Annotated[float | None, _soap("--sigma", "Width of an atom, Å.")]
LengthScale = Annotated[
    float | None, _process("--length-scale", "Of the kernel, in units of features.")
]
Amplitude = Annotated[float | None, _process("--amplitude", "Variance θ₀ of the kernel, eV².")]
Noise = Annotated[float | None, _process("--noise", "Misfit of energies, eV/atom.")]
ForceNoise = Annotated[float | None, _process("--force-noise", "Misfit of force components, eV/Å.")]
Points = Annotated[int | None, _process("--points", "At most so many; 1000 for cur and random.")]
Tolerance = Annotated[
    float | None, _process("--tol", "Pivoted: share of the variance that may be left.")
]
Inducing = Annotated[
    Literal["pivoted", "cur", "random"],
    _process("--inducing", "How inducing points are chosen."),
]
Uncertainty = Annotated[
    Literal["posterior", "label-noise", "projected-process"],
    _std("--uncertainty", "Where error bars come from."),
]
Observations = Annotated[
    Literal["structures", "environments"], _std("--observations", "Projected process: of what.")
]
Members = Annotated[int | None, _std("--members", "Sampled committee; default: the exact limit.")]
LabelNoise = Annotated[
    float | None, _std("--label-noise", "Committee: noise on energies, eV/atom.")
]
PriorNoise = Annotated[
    float | None, _std("--prior-noise", "Committee: noise on the prior, eV/atom.")
]
ForceLabelNoise = Annotated[
    float | None, _std("--force-label-noise", "Committee: noise on forces, eV/Å.")
]
