"""Arguments and options as types, each described once for all commands."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal

from typer import Argument, Option


def _in_panel(panel: str) -> Callable[..., Any]:
    """`Option` in this panel of the help."""

    def option(*names: str, **more: Any) -> Any:
        return Option(*names, rich_help_panel=panel, **more)

    return option


_run, _model, _crystal, _vary, _output, _soap, _process, _std = map(
    _in_panel,
    (
        "Run", "Model", "Crystal", "Varying numbers of atoms", "Output", "Descriptor (SOAP)",
        "Gaussian process", "Uncertainty",
    ),
)  # fmt: skip

# --------------------------------------------------------------------------- models and data

Json = Annotated[bool, _output("--json", help="Print one JSON object instead of tables.")]
Threads = Annotated[int, _run("--threads", min=0, help="Cores to use; 0 means all.")]
Index = Annotated[str, Option("--index", "-i", help="Structures of DATA: '0:100', '::10', '-1'.")]
ModelFile = Annotated[Path, Argument(help="Model written by `nugget fit`.", metavar="MODEL")]
DataFile = Annotated[Path, Argument(help="Structures in any format of ASE.", metavar="DATA")]
Trust = Annotated[
    bool, _run("--trust", help="Run code named by a file or directory (module:factory, …).")
]
AllowTraining = Annotated[
    bool, Option("--allow-training", help="Accept training structures among DATA.")
]
EnergyKey = Annotated[
    str | None, Option(help="Name of the energy in DATA, if not 'energy': 'REF_energy', ...")
]
ForcesKey = Annotated[str | None, Option(help="Name of the forces in DATA, if not 'forces'.")]
StressKey = Annotated[str | None, Option(help="Name of the stress in DATA, if not 'stress'.")]
VirialKey = Annotated[
    str | None, Option(help="Name of the virial (eV) in DATA; the stress is −virial/volume.")
]
WeightKey = Annotated[
    str | None, Option(help="Name of the weight of a structure in DATA: 'config_weight', ...")
]
NoiseBy = Annotated[
    list[str] | None,
    Option(
        "--noise-by", metavar="KEY=GROUP:E[:F],…",
        help="Noise (eV/atom, eV/Å) of groups of structures: 'group=surface:0.02,liquid:0.05:0.3'.",
    ),
]  # fmt: skip
IsolatedAtoms = Annotated[
    str | None,
    Option(
        "--e0", metavar="FILE|Cu:E,…",
        help="Energies of isolated atoms (eV), as text, JSON or structures of one atom. Default: "
        "those of structures with one atom in DATA, if any.",
    ),
]  # fmt: skip
Resamples = Annotated[int, Option(help="Bootstrap samples for intervals; 0 means none.", min=0)]
RandomSeed = Annotated[int, Option(help="Seed of all random choices.")]


# --------------------------------------------------------------------------- searches

Target = Annotated[
    str | None,
    Argument(help="Formula (Au20), molecules (H2O*4) or a TOML file.", metavar="FORMULA|CONFIG"),
]
Engine = Annotated[
    str | None,
    _run("--engine", "-e", help="A name of `nugget engines` or module:factory. Default: gfn1-xtb."),
]
Budget = Annotated[int | None, _run(min=1, help="Evaluations per search. Default: 150.")]
Seed = Annotated[int | None, _run(help="Seed of the (first) search. Default: 0.")]
RunSeed = Annotated[int | None, _run(help="Seed of all random numbers of the run. Default: 0.")]
InFlight = Annotated[int | None, _run(help="Simultaneous evaluations. Default: 1.")]
Reference = Annotated[str | None, _run(metavar="FILE", help="Stop when this structure is found.")]
Start = Annotated[str | None, _run(metavar="FILE", help="Structures to evaluate first.")]
Learn = Annotated[
    str | None,
    _run(metavar="FILE|RUN", help="Training data: labelled structures or another search."),
]
StopWhen = Annotated[
    float | None,
    _run(min=0.01, max=0.9999, help="Stop at this probability of having the lowest structure."),
]
Polish = Annotated[
    int | None, _run(min=0, help="Lowest structures relaxed with the engine. Default: 3.")
]
FinalFmax = Annotated[
    float | None, _run(min=1e-6, help="Largest force of these relaxations, eV/Å. Default: 0.05.")
]
Resume = Annotated[Path | None, _run(metavar="DIR", help="Continue the run in this directory.")]
Replay = Annotated[
    Path | None, _run(metavar="DIR", help="Repeat all proposals of a search and compare them.")
]
Mean = Annotated[
    str | None,
    _model(
        "--mean", metavar="ENGINE",
        help="Mean function: an engine such as sevennet, chgnet or gfn1-xtb, whose error is "
        "learnt.",
    ),
]  # fmt: skip
MeanOption = Annotated[
    list[str] | None, _model(metavar="KEY=VALUE", help="Option of the engine of --mean; repeat.")
]
Settings = Annotated[
    list[str] | None,
    _run("--set", metavar="KEY=VALUE", help="Any other setting, as search.initial=8; repeatable."),
]
EngineSettings = Annotated[
    list[str] | None,
    _run(
        "--set", metavar="KEY=VALUE", help="Setting of the engine, as engine.charge=1; repeatable."
    ),
]
Workers = Annotated[
    int | None, _run("--workers", "-j", min=1, help="Parallel searches. Default: one per core.")
]
Kappa = Annotated[float | None, _model(help="κ of E − κσ, which is minimised. Default: 2.")]
Candidates = Annotated[int | None, _model(help="Candidates relaxed per evaluation. Default: 30.")]
LearnForces = Annotated[
    bool | None, _model("--forces/--no-forces", help="Train on forces too. Default: yes.")
]
Crystal = Annotated[
    bool, _crystal("--crystal", help="Search for atoms and cell of a crystal together.")
]
Units = Annotated[
    str | None, _crystal(help="Formula units in the cell, as 2 or 1-4. Default: 1-4.")
]
Compositions = Annotated[
    str | None,
    _crystal(metavar="A-B", help="All compositions of these elements and their convex hull."),
]
MaxAtoms = Annotated[
    int | None, _crystal(min=1, help="With --compositions: atoms per cell. Default: 8.")
]
Vary = Annotated[
    str | None,
    _vary(metavar="O:0-6,…", help="Ranges of numbers of atoms, for a phase diagram."),
]
ChemicalPotential = Annotated[
    str | None,
    _vary(metavar="O=-3:-0.5", help="Ranges in eV, relative to the reservoirs. Default: all."),
]
Reservoirs = Annotated[
    str | None,
    _vary(metavar="O=1/2 O2", help="Species that supply atoms, as O=H2O - H2 or Pt=Pt(bulk)."),
]
Temperature = Annotated[
    str | None, _vary(metavar="300:1200", help="Temperature in K; gases give the potentials.")
]
PartialPressures = Annotated[
    str | None, _vary(metavar="O2=1e-10:1", help="Pressures of the gases in bar.")
]
Template = Annotated[str | None, _run(metavar="FILE", help="A slab on which the atoms are placed.")]
Pressure = Annotated[float | None, _crystal(help="Pressure in GPa. Default: 0.")]
Out = Annotated[Path | None, _output("--out", "-o", metavar="DIR", help="Directory to write.")]
Live = Annotated[bool, _output("--live/--no-live", help="Live view or plain lines.")]


# --------------------------------------------------------------------------- fitting


Species = Annotated[str | None, _soap(help="Elements, as 'Cu,Au'. Default: those of DATA.")]
Cutoff = Annotated[float | None, _soap(help="Radius of a local environment, Å.")]
NMax = Annotated[int | None, _soap(help="Number of radial functions.")]
LMax = Annotated[int | None, _soap(help="Highest angular momentum; use 6 with --n-max 8.")]
Sigma = Annotated[float | None, _soap(help="Width of the Gaussians of SOAP, Å.")]
LengthScale = Annotated[
    float | None, _process(help="Length scale of the kernel in descriptor space.")
]
Amplitude = Annotated[float | None, _process(help="Variance θ₀ of the kernel, eV².")]
Noise = Annotated[float | None, _process(help="Noise of energies, eV/atom.")]
ForceNoise = Annotated[float | None, _process(help="Noise of force components, eV/Å.")]
Points = Annotated[int | None, _process(help="Inducing points at most.")]
Tolerance = Annotated[
    float | None, _process(help="Pivoted Cholesky: residual share of the variance.")
]
Inducing = Annotated[
    str, _process(help="Rule for inducing points: pivoted, cur, random or a plug-in.")
]
Uncertainty = Annotated[str, _std(help="posterior, label-noise, projected or a plug-in.")]
Descriptor = Annotated[str | None, _soap(help="SOAP or a plug-in.")]
Kernel = Annotated[str | None, _process(help="RBF or a plug-in.")]
DescriptorOption = Annotated[list[str] | None, _soap(help="key=value; repeat.")]
KernelOption = Annotated[list[str] | None, _process(help="key=value; repeat.")]
InducingOption = Annotated[list[str] | None, _process(help="key=value; repeat.")]
UncertaintyOption = Annotated[list[str] | None, _std(help="key=value; repeat.")]
Observations = Annotated[
    Literal["structures", "environments"] | None,
    _std(help="Observations of a projected process. Default: structures."),
]
Members = Annotated[int | None, _std(help="Label noise: members. Default: exact.")]
LabelNoise = Annotated[float | None, _std(help="Label noise on energies, eV/atom.")]
PriorNoise = Annotated[float | None, _std(help="Label noise on the mean function, eV/atom.")]
ForceLabelNoise = Annotated[float | None, _std(help="Label noise on forces, eV/Å.")]
