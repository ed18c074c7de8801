"""Parts of `nugget fit` and related commands: errors, cost estimate, checks and settings."""

from __future__ import annotations

import inspect
import json
import os
import timeit
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import typer

from nugget import registry
from nugget.descriptors.base import refuse_element, species_index
from nugget.display import duration
from nugget.errors import NuggetError
from nugget.gp.inducing import PivotedCholesky
from nugget.gp.labels import ENERGY, FORCE
from nugget.potential.builder import ModelSettings, PartSettings, registered_name
from nugget.potential.fitted import environment_points
from nugget.potential.mean_functions.base import MeanFunction, SpeciesEnergies, SumMeanFunction
from nugget.potential.mean_functions.foundation import engine_mean
from nugget.potential.training import TrainingData
from nugget.presets import Recipe
from nugget.structures.neighbours import find_pairs

if TYPE_CHECKING:
    from ase import Atoms

    from nugget.numerics.arrays import Floats, Ints
    from nugget.potential.potential import Potential
    from nugget.potential.prediction import Prediction

Errors = dict[str, float | None]
_TOO_CLOSE = 0.1  # Å; atoms closer than this are an error in the data


def stored_label(atoms: Atoms, name: str) -> Any:
    """A stored label, or None; nothing is computed."""
    return None if atoms.calc is None else atoms.calc.results.get(name)


def errors_of(images: Sequence[Atoms], prediction: Prediction) -> Errors:
    """MAE and RMSE per atom and per force component, where labels exist; mean σ per atom."""
    sizes = np.array([len(atoms) for atoms in images])
    labels = np.array([stored_label(atoms, "energy") for atoms in images], dtype=float)
    forces = None
    if prediction.forces is not None:
        differences = [
            (mine - stored_label(atoms, "forces")).ravel()
            for atoms, mine in zip(images, prediction.forces, strict=True)
            if stored_label(atoms, "forces") is not None
        ]
        forces = np.concatenate(differences or [np.zeros(0)])
    return _errors(prediction.energy - labels, sizes, forces, prediction.energy_uncertainty)


def training_errors(potential: Potential, images: Sequence[Atoms], step: Any) -> Errors:
    """`errors_of` the training set, from the label rows of the fit where they are available."""
    state = potential.fitted
    regression, fitted = state.regression, state.uncertainty
    with_forces = bool(state.training.has_forces.any())
    if not regression.has_rows or fitted.uses_prior_variance:
        return errors_of(images, potential.predict(images, forces=with_forces, progress=step))
    residual = regression.noise * (regression.whitened @ (regression.upper @ regression.alpha))
    residual -= regression.y
    energies, sizes = regression.kind == ENERGY, state.training.batch.sizes
    noise = regression.noise[energies, None]
    k_sum = noise * (regression.some_rows(energies) @ regression.upper)
    sigma = fitted.std(k_sum, sizes, None)
    forces = residual[regression.kind == FORCE] if with_forces else None
    return _errors(residual[energies], sizes, forces, sigma)


def _errors(energy: Floats, sizes: Ints, forces: Floats | None, sigma: Floats | None) -> Errors:
    """Errors of total energies (NaN without a label), with σ, and of force components."""
    per_atom, labelled = energy / sizes, np.isfinite(energy)
    out: Errors = {"structures_with_energy": int(labelled.sum())}
    out |= _summary("energy", per_atom[labelled])
    if forces is not None:
        out |= _summary("forces", forces)
    if sigma is not None:
        out["sigma_per_atom"] = float(np.mean(sigma / sizes))
        size, bars = np.abs(energy[labelled]), sigma[labelled]
        out["within_one_sigma"] = float(np.mean(size <= bars)) if size.size else None
        out["within_two_sigma"] = float(np.mean(size <= 2 * bars)) if size.size else None
    return out


def _summary(name: str, errors: Floats) -> Errors:
    if errors.size == 0:
        return {f"{name}_mae": None, f"{name}_rmse": None}
    mae, rmse = np.mean(np.abs(errors)), np.sqrt(np.mean(errors**2))
    return {f"{name}_mae": float(mae), f"{name}_rmse": float(rmse)}


def error_rows(errors: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    """Table rows: energies in meV/atom, forces in eV/Å."""
    rows = []
    for name, unit, factor in (("energy", "meV/atom", 1e3), ("forces", "eV/Å", 1.0)):
        if errors.get(f"{name}_mae") is not None:
            mae, rmse = (factor * errors[f"{name}_{kind}"] for kind in ("mae", "rmse"))
            rows.append((name, f"{mae:.4g}", f"{rmse:.4g}", unit))
    return rows


def refuse_training(potential: Potential, images: list[Atoms], allowed: bool) -> None:
    """Refuse training structures, whose errors are smaller than those of new structures."""
    number = int(potential.fitted.training.contains(images).sum())
    if number and not allowed:
        raise NuggetError(
            f"{number} of {len(images)} structures are in the training set of the model, where "
            "errors are smaller than elsewhere: leave them out (see --index), or add "
            "--allow-training."
        )


# --------------------------------------------------------------------------- memory and time

# The number of inducing points for a tolerance grows like n^0.3 with the environments (0.22 for a
# small basis and 0.34 for a large one, measured on gold clusters).
_GROWTH = 0.3
_SAMPLE = 1000  # environments that are examined
_COPIES = 4.5  # of the label rows at the peak of memory
_STREAMED = 2 * 2048  # label rows that a streamed fit holds


@dataclass(frozen=True)
class FitSize:
    """The numbers that determine the cost of a fit."""

    environments: int
    pairs: int  # each once
    labels: int
    features: int
    points: int  # inducing
    members: int = 0
    greedy: bool = True  # pivoted Cholesky, which keeps a factor of all environments
    largest_pairs: int = 0  # of one structure
    structures: int = 0
    stream: bool = False  # label rows are computed and dropped in parts


@dataclass(frozen=True)
class Estimate:
    bytes: float
    seconds: float


def estimate_fit(size: FitSize, gflops: float = 20.0) -> Estimate:
    """Peak memory (on top of the program itself) and time of one thread.

    Rows of p labels for m points: 8 p m bytes, several times over; their QR takes 2 p m²
    operations, and the slopes of all pairs with f features 12 P f m.
    """
    n, p, f, m = size.environments, size.labels, size.features, size.points
    with_forces = p > 0 and size.largest_pairs > 0
    held, seen = (min(p, _STREAMED), min(n, 10 * m)) if size.stream else (p, n)
    floats = (
        _COPIES * held * m
        + 8.0 * m * m
        + 6.0 * seen * f
        + (seen * m if size.greedy else 0)
        + (float(size.structures) * m if size.stream else 0)  # rows of energies are kept
        + 3.0 * p * size.members
        + (6.0 * size.largest_pairs * (2 * f + m) if with_forces else 0)
    )
    # Measured shares of the speed of a plain matrix product: QR 0.3, slopes 0.5, committee 0.3.
    work = 2.0 * p * m * m / 0.3 + 10.0 * m**3 / 0.3
    seconds = work / (gflops * 1e9)
    if with_forces:
        seconds += 12.0 * size.pairs * f * m / 0.5 / (gflops * 1e9)
        seconds += size.pairs * (4e-8 * m + 1.5e-7 * f)  # loops, bound by memory
    else:
        seconds += 5e-9 * n * m
    if size.greedy:
        seconds += 1.2e-9 * n * m * m  # bound by memory, not by arithmetic
    return Estimate(8.0 * floats, seconds)


def measure(
    potential: Potential, data: TrainingData, forces: bool, stream: bool = False,
    most_points: bool = False,
) -> FitSize:  # fmt: skip
    """The size of a fit, from a sample of the structures.

    With `most_points` the number of inducing points is the limit of their rule, which takes no
    selection on the sample.
    """
    batch = data.batch
    n = len(batch.positions)
    step = max(n // _SAMPLE, 1)
    chosen = np.arange(0, len(batch), step)
    env = data.sample(potential.descriptor, chosen)
    share = len(env.values) / n
    rule = potential.inducing
    if isinstance(rule, PivotedCholesky):
        m = min(rule.max_points or n, n)
        if not most_points:
            rng = np.random.default_rng(0)
            sampled = len(rule.select(environment_points(env), potential.kernel, rng))
            m = min(int(sampled * (1.0 / share) ** _GROWTH), m)
    else:
        m = min(int(getattr(rule, "n_points", n)), n)
    pairs, labels = int(len(env.pairs.i) / share), len(batch) + (3 * n if forces else 0)
    return FitSize(
        n, pairs, labels, int(env.values.shape[1]), m, structures=len(batch), stream=stream,
        members=int(getattr(potential.uncertainty, "members", None) or 0),
        greedy=isinstance(rule, PivotedCholesky),
        largest_pairs=int(np.diff(env.pairs.offsets).max()) if forces else 0,
    )  # fmt: skip


def points_that_fit(size: FitSize, limit: float) -> int:
    """The largest number of inducing points whose fit stays within `limit` bytes (0: none)."""
    low, high = 0, size.points
    while low < high:
        middle = (low + high + 1) // 2
        tried = replace(size, points=middle)
        low, high = (middle, high) if estimate_fit(tried).bytes <= limit else (low, middle - 1)
    return low


def speed() -> float:
    """10⁹ operations per second of a plain matrix product, here and now."""
    a = np.ones((512, 512))
    return 2.0 * 512**3 / min(timeit.repeat(lambda: a @ a, number=1, repeat=3)) / 1e9


def available_memory() -> float:
    """Bytes that this process may still take: the machine's, or a container's if that is less."""
    limits = [float(os.sysconf("SC_PAGE_SIZE")) * os.sysconf("SC_PHYS_PAGES")]
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
        limits.append(1024.0 * float(lines["MemAvailable"].split()[0]))
    group = Path("/sys/fs/cgroup")
    try:
        limit = float((group / "memory.max").read_text())  # "max" where there is none
        used = float((group / "memory.current").read_text())
        stat = dict(line.split() for line in (group / "memory.stat").read_text().splitlines())
        limits.append(limit - used + float(stat.get("inactive_file", 0)))  # caches give way
    except (OSError, ValueError):
        pass
    return min(limits)


# --------------------------------------------------------------------------- checks before a fit

_LONG, _LARGE = 20.0, 1e9  # a fit that needs more seconds or bytes than this is announced
_FEW = 5  # fewer different structures give a warning


def check_energies(images: list[Atoms]) -> None:
    """Raise an error that names the energies in a file that has no `energy`."""
    for s, atoms in enumerate(images):
        names = [key for key in atoms.info if "energy" in key.lower()]
        if stored_label(atoms, "energy") is None and names:
            forces = [key for key in atoms.arrays if "force" in key.lower()]
            more = f" --forces-key {forces[0]}" if forces else ""
            raise NuggetError(
                f"Structure {s} ({atoms.get_chemical_formula()}) has no energy, but it has "
                f"{', '.join([*names, *forces])}: try --energy-key {names[0]}{more}."
            )


def check_structures(data: TrainingData, elements: list[str]) -> None:
    """Report unknown elements and coincident atoms by their number in DATA, not in a sample."""
    batch = data.batch
    unknown = np.flatnonzero(species_index(elements)[batch.numbers] < 0)
    if len(unknown):
        refuse_element(batch, int(unknown[0]), elements)
    pairs = find_pairs(batch, _TOO_CLOSE)
    for i, j, distance in zip(pairs.i, pairs.j, pairs.distances(batch), strict=True):
        if distance < _TOO_CLOSE:
            s = int(batch.owner[i])
            start = batch.offsets[s]
            raise NuggetError(
                f"Structure {s}: atoms {i - start} and {j - start} are {distance:.3g} Å apart "
                f"(less than {_TOO_CLOSE} Å); move them apart or remove the structure."
            )


def warn_if_few(images: list[Atoms]) -> None:
    different = {(atoms.numbers.tobytes(), atoms.positions.tobytes()) for atoms in images}
    if len(different) < _FEW:
        warnings.warn(
            f"the training set holds only {len(different)} different structure(s); "
            "error bars are only as good as the variety of the data.",
            stacklevel=2,
        )


def announce(potential: Potential, data: TrainingData, anyway: bool, stream: bool = False) -> None:
    """Print the cost of a large fit; refuse one that exceeds the memory."""
    with_forces, gflops = bool(data.training.has_forces.any()), speed()
    most = estimate_fit(measure(potential, data, with_forces, stream, most_points=True), gflops)
    memory = available_memory()
    if most.bytes <= min(memory, _LARGE) and most.seconds <= _LONG:
        return
    size = measure(potential, data, with_forces, stream)
    cost = estimate_fit(size, gflops)
    what = (
        f"{size.labels} labels with about {size.points} inducing points need about "
        f"{cost.bytes / 1e9:.2g} GB and {duration(cost.seconds)}"
    )
    if cost.bytes > memory and not anyway:
        few = points_that_fit(size, 0.9 * memory)
        hint = f"--points {few}" if few >= 10 else "fewer structures"
        also = ", --no-forces" if with_forces else ""
        also += "" if stream else ", --stream"
        raise NuggetError(
            f"{what}, but only {memory / 1e9:.2g} GB are free: try {hint}{also}, or --anyway."
        )
    if cost.seconds > _LONG or cost.bytes > _LARGE:
        typer.echo(f"{what}.", err=True)


# --------------------------------------------------------------------------- the potential

Tell = Callable[[str], None]
_OWN = "balanced"  # range, basis and amplitude of a descriptor or kernel without a preset
_POINTS = 1000  # inducing points of rules that need a number
_INDUCING, _UNCERTAINTY = PartSettings("pivoted"), PartSettings("posterior")


@dataclass(frozen=True)
class Settings:
    """Options as given; None leaves the choice to the preset or to the data."""

    preset: str
    species: Sequence[str]
    descriptor: PartSettings | None = None
    kernel: PartSettings | None = None
    inducing: PartSettings = _INDUCING
    uncertainty: PartSettings = _UNCERTAINTY
    mean_functions: Sequence[str] | None = None  # None: species, and zbl with a domain
    amplitude: float | None = None
    noise: float | None = None
    force_noise: float | None = None
    seed: int = 0
    optimise: bool = False
    domain: bool = True
    isolated_atoms: dict[str, float] = field(default_factory=dict)  # energies by element, eV
    engine_mean: MeanFunction | None = None  # with its own zero, to which atoms are fitted

    @property
    def cohesion(self) -> bool:
        """Whether a mean function of cohesion may be used."""
        return self.mean_functions is None and self.domain and self.engine_mean is None

    @property
    def mean_function_names(self) -> Sequence[str]:
        """The mean functions beside an engine."""
        if self.mean_functions is not None:
            return self.mean_functions
        return ("species", "zbl") if self.domain else ("species",)

    @property
    def points_are_free(self) -> bool:
        """Whether the number of inducing points is chosen by data."""
        given = {"max_points", "tol"} & set(self.inducing.options)
        return self.preset == "auto" and not self.own_parts and not given and not self.optimise

    @property
    def noise_is_free(self) -> bool:
        """Whether the noise levels are chosen by data."""
        return self.noise is None and self.force_noise is None and not self.optimise

    @property
    def own_parts(self) -> bool:
        """Whether descriptor or kernel are given, so that the preset is not used."""
        return self.descriptor is not None or self.kernel is not None


def make_potential(
    s: Settings, images: list[Atoms], data: TrainingData, forces: bool | None, tell: Tell
) -> Potential:
    """The potential, ready to be fitted."""
    from nugget import presets

    isolated_atoms = s.isolated_atoms if s.engine_mean is None else {}
    parts = [mean_function(name, isolated_atoms) for name in s.mean_function_names]
    parts += [] if s.engine_mean is None else [s.engine_mean]
    mean: MeanFunction = SumMeanFunction(tuple(parts))
    if s.own_parts:
        potential = _own_settings(s, data).build()
    elif s.preset == "auto":
        potential = presets.auto(
            s.species, images, use_forces=forces, seed=s.seed, single=s.optimise, data=data,
            tell=tell, mean_function=mean, cohesion=s.cohesion,
        )  # fmt: skip
        mean = potential.prior
    else:
        potential = presets.PRESETS[s.preset](s.species, data)
    if s.amplitude is not None:
        kernel: Any = potential.kernel
        if not hasattr(kernel, "length_scale"):
            raise NuggetError(
                "--amplitude is for one range: give --cutoff, or --preset quick or balanced."
            )
        potential.kernel = replace(kernel, amplitude=s.amplitude)
    potential.inducing = _inducing_rule(s, potential.inducing)
    potential.uncertainty = s.uncertainty.build("uncertainty")
    potential.prior = mean
    potential.seed, potential.domain = s.seed, s.domain
    chosen = {"preset": "own" if s.own_parts else s.preset}
    potential.choices = chosen | (potential.choices or {})
    if s.optimise:
        tell("likelihood")
        potential.optimise(data)
    if s.noise is not None:
        potential.noise = s.noise
    if s.force_noise is not None:
        potential.force_noise = s.force_noise
    return potential


def _own_settings(s: Settings, data: TrainingData) -> ModelSettings:
    """The given descriptor and kernel; the rest is as in a preset with one range."""
    from nugget.presets import RECIPES, basis, length_scale

    recipe = RECIPES[_OWN]
    own = s.descriptor or PartSettings("SOAP")
    options = dict(own.options)
    if registered_name("descriptor", own.name) == "SOAP":
        n_max, l_max = basis(len(set(s.species)))
        cutoff = recipe.ranges[0].cutoff
        options = {"cutoff": cutoff, "n_max": n_max, "l_max": l_max, **options}
    descriptor = PartSettings(own.name, options).build("descriptor", species=tuple(s.species))
    kernel = s.kernel or PartSettings("RBF")
    takes = inspect.signature(registry.find("kernel", registered_name("kernel", kernel.name)))
    options = dict(kernel.options)
    if "amplitude" in takes.parameters:
        options = {"amplitude": recipe.ranges[0].amplitude, **options}
    if "length_scale" in takes.parameters and "length_scale" not in options:
        options["length_scale"] = length_scale(descriptor, data)
    rule = PartSettings("PivotedCholesky", {"tol": Recipe.tol, "max_points": Recipe.points})
    return ModelSettings(descriptor, PartSettings(kernel.name, options), rule)


def _inducing_rule(s: Settings, preset: Any) -> Any:
    """The given rule; a pivoted Cholesky takes missing options from the preset."""
    name = registered_name("inducing", s.inducing.name)
    options = dict(s.inducing.options)
    if name == "PivotedCholesky":
        return replace(preset, **options)
    takes = inspect.signature(registry.find("inducing", name)).parameters
    if "n_points" in takes:
        points = options.pop("max_points", _POINTS)
        options = {"n_points": points, **options}
    options.pop("tol", None)
    return PartSettings(name, options).build("inducing")


def mean_function(name: str, isolated_atoms: dict[str, float] | None = None) -> MeanFunction:
    """A mean function by its registered name, or an engine.

    Energies of isolated atoms replace species energies that are fitted.
    """
    if isolated_atoms and name == SpeciesEnergies.name:
        return SpeciesEnergies(tuple(isolated_atoms.items()))
    if name in registry.names("prior"):
        return PartSettings(name).build("prior")
    return engine_mean(name)  # an unknown name is an error


def given_options(texts: Sequence[str] | None) -> dict[str, Any]:
    """Options key=value; values are numbers, true, false or text."""
    options: dict[str, Any] = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not key or not equals:
            raise NuggetError(f"{text!r} is no option of a part; write key=value.")
        try:
            options[key.replace("-", "_")] = json.loads(value)
        except ValueError:
            options[key.replace("-", "_")] = value
    return options


# --------------------------------------------------------------------------- tables

_UNITS = {"energy": ("meV/atom", 1e3), "force": ("eV/Å", 1.0), "stress": ("meV/Å³", 1e3)}


def choice_rows(choices: dict[str, Any] | None) -> list[tuple[str, object]]:
    """Preset, range and noise levels, with the errors of all ranges."""
    chosen = choices or {}
    rows: list[tuple[str, object]] = [(n, chosen[n]) for n in ("preset", "range") if n in chosen]
    for name, (energy, force) in chosen.get("left_out_mae", {}).items():
        forces = "" if force != force else f", {force:.3g} eV/Å"
        rows.append((f"tried {name}", f"{1e3 * energy:.3g} meV/atom{forces}"))
    if "mean" in chosen:
        rows += mean_rows(chosen["mean"])
    if "noise" in chosen:
        rows.append(("noise", f"{chosen['noise']:.3g} eV/atom, {chosen['force_noise']:.3g} eV/Å"))
    if "log_marginal_likelihood" in chosen:
        rows.append(("log marginal likelihood", f"{chosen['log_marginal_likelihood']:.4g}"))
        rows.append(("length scale", f"{chosen['length_scale']:.4g}"))
        rows.append(("amplitude", f"{chosen['amplitude']:.4g} eV²"))
    return rows


def mean_rows(record: dict[str, Any]) -> list[tuple[str, object]]:
    """The weight of an engine as mean function, and the errors that decided it."""
    rows: list[tuple[str, object]] = [
        ("mean function", f"{record['engine']}, weight {record['weight']:g}"),
        (f"{record['engine']} alone", error_text(record["alone"])),
    ]
    for one in record["trials"]:
        texts = error_text(one["leave_one_out"]), error_text(one["leave_group_out"])
        rows.append((f"weight {one['weight']:g}", f"{texts[0]}; in groups {texts[1]}"))
    return rows


def error_text(errors: dict[str, float | None]) -> str:
    """Mean absolute errors of energies and forces."""
    force = "" if errors["force"] is None else f", {errors['force']:.3g} eV/Å"
    return f"{1e3 * (errors['energy'] or 0.0):.3g} meV/atom{force}"


def leave_one_out_rows(calibration: dict[str, Any]) -> list[tuple[str, str, str, str, str]]:
    """Leave-one-out errors and coverage, one row per kind of label."""
    rows = []
    for name, error in calibration.get("mae", {}).items():
        unit, factor = _UNITS[name]
        one, two = calibration["within"][name]
        rows.append((name, f"{factor * error:.4g}", unit, f"{one:.0%}", f"{two:.0%}"))
    return rows
