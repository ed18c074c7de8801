"""The surrogate of a search: its mean function, its construction from settings, and its fits.

The mean function is a simple term, a cheaper engine, or a fitted model.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from ase import Atoms
from ase.data import chemical_symbols

from nugget import registry
from nugget.engines.engine import engines
from nugget.engines.engine_settings import engine_code
from nugget.errors import NuggetError
from nugget.gp.uncertainty import ProjectedProcess
from nugget.potential.builder import ModelSettings, PartSettings, registered_name
from nugget.potential.mean_functions.base import FixedPrior, Prior, SpeciesEnergies, SumMeanFunction
from nugget.potential.mean_functions.foundation import FoundationMean, engine_mean
from nugget.potential.mean_functions.from_models import CalculatorPrior, ModelPrior
from nugget.potential.model_file import code_of_model
from nugget.potential.potential import Potential
from nugget.potential.training import Noise
from nugget.presets import length_scale
from nugget.search.search_settings import PART_OPTIONS, Config, ModelConfig, with_width
from nugget.settings import resolve_path
from nugget.systems.base import System

_ENGINE = "engine:"


def baseline_file(model: ModelConfig) -> str | None:
    """The file of the mean function, if it is a model (other names have no dots or slashes)."""
    name = model.baseline
    return name if not name.startswith(_ENGINE) and ("." in name or "/" in name) else None


def baseline_engine(model: ModelConfig) -> str | None:
    """The engine of the mean function, if it is one: `engine:NAME`, or the name of an engine."""
    name = model.baseline
    if name.startswith(_ENGINE):
        return name.removeprefix(_ENGINE)
    if name in registry.names("prior") or baseline_file(model) is not None:
        return None
    return name if name in engines() else None


def make_baseline(model: ModelConfig, directory: Path) -> list[Prior]:
    """Terms besides the energies per element; file names are relative to `directory`.

    A pair well keeps young models from compressing or dispersing structures far from the data: on
    Au13 (EMT, two seeds) 5 of 38 evaluations were above 9 eV instead of 27.
    """
    options = model.baseline_options
    if (file := baseline_file(model)) is not None or model.baseline == "none":
        if options:
            what = "none" if file is None else "a model"
            raise NuggetError(f"model.baseline_options are given, but model.baseline is {what!r}.")
        # The user has trusted the code of this file before: see `code_of`.
        return [] if file is None else [ModelPrior.trusted(resolve_path(file, directory))]
    if (engine := baseline_engine(model)) is not None:
        return [engine_mean(engine, tuple(options.items()))]
    if "parts" in options:
        raise NuggetError("model.baseline is one mean function; options with parts are for sums.")
    return [PartSettings(model.baseline, options).build("prior")]


def knowing(prior: Prior) -> FixedPrior | None:
    """The term of a mean function that describes the system: an engine or a model, if any."""
    parts = getattr(prior, "parts", [prior])
    return next((part for part in parts if type(part) in _KNOWING), None)


_KNOWING = (CalculatorPrior, ModelPrior, FoundationMean)


def has_value(baseline: FixedPrior | None, atoms: Atoms) -> bool:
    """Does the mean function give an energy for this structure? An engine may fail."""
    return baseline is None or bool(np.isfinite(baseline([atoms])[0]).all())


def baseline_code(config: Config, directory: Path = Path()) -> list[str]:
    """Code that the mean function runs, if it is an engine or a model of one."""
    model, options = config.model, config.model.baseline_options
    if (engine := baseline_engine(model)) is not None:
        return engine_code(engine, dict(options))
    if "engine" in options:
        return engine_code(str(options["engine"]), dict(options.get("options", ())))
    return model_code(config, directory)


def model_code(config: Config, directory: Path = Path()) -> list[str]:
    """Code that a model file as mean function runs; none if the file does not exist."""
    file = baseline_file(config.model)
    path = None if file is None else resolve_path(file, directory)
    return code_of_model(path) if path is not None and path.is_file() else []


# The surrogate that the settings describe.


# Settings that go to a part if it takes such an argument.
_SETTINGS = {"descriptor": ("cutoff", "sigma"), "kernel": ("length_scale",)}
_DEFAULTS_0_2 = {"sigma": 1.0}  # written by version 0.2 for every descriptor


def make_potential(
    model: ModelConfig, problem: System, seed: int, directory: Path = Path()
) -> Potential:
    """The potential, not yet fitted; file names are relative to `directory`."""
    species = sorted({chemical_symbols[z] for z in problem.numbers})
    model = with_width(model, problem.numbers)
    baseline = make_baseline(model, directory)
    return ModelSettings(
        _part("descriptor", model, model.descriptor, model.descriptor_options),
        _part("kernel", model, model.kernel, model.kernel_options),
        _part("inducing", model, model.inducing, model.inducing_options),
        _part("uncertainty", model, model.uncertainty, model.uncertainty_options),
        # A sum even without a baseline, as in the model files of earlier searches.
        [SumMeanFunction((SpeciesEnergies(), *baseline))],
        Noise(model.noise, model.force_noise),
        seed,
        # Candidates are relaxed on E − κσ, which σ outside the training domain would lower
        # without bound for compressed structures.
        domain=False,
    ).build(species)


def _part(kind: str, model: ModelConfig, name: str, options: Mapping[str, Any]) -> PartSettings:
    """A part with the settings that it takes; one that was changed and is not taken is an error."""
    name = registered_name(kind, name)
    factory = registry.find(kind, name)
    takes = inspect.signature(factory).parameters
    # `force` is a noise level of ensembles, which take `label` as well; elsewhere it is a factor.
    given = {
        option: default
        for part, option, default in PART_OPTIONS.values()
        if part == kind and option in takes and (option != "force" or "label" in takes)
    }
    for setting in _SETTINGS.get(kind, ()):
        value = getattr(model, setting)
        if setting in takes:
            given[setting] = value
        elif value not in (type(model).model_fields[setting].default, _DEFAULTS_0_2.get(setting)):
            raise NuggetError(
                f"model.{setting} is set, but the {kind} {name!r} does not take it; it takes "
                f"{registry.taken(factory)}."
            )
    return PartSettings(name, {**given, **options})


#: Weight of the projected process in the error bar. For one search each of C8 (crystal), Mg4O4,
#: Ti2O4, Ti4O8, Si8 (crystal) and M13, the rms of error over error bar was 0.95, 1.5, 1.4, 0.8, 0.8
#: and 0.5 with 2, and 1.2, 2.3, 3.2, 0.9, 0.9 and 0.6 with 0.
PROJECTED_WEIGHT = 2.0


def with_projected(potential: Potential, atoms: Atoms, std: float) -> float:
    """σ of a structure, eV, together with that of the projected process.

    The spread of the label-noise ensemble vanishes with the kernel far from all inducing points.
    The projected process contains the prior variance that the inducing points leave open.
    """
    other = potential.copy()
    other.set_uncertainty(ProjectedProcess().fit(potential.fitted.regression))
    outside = other.predict([atoms], forces=False).energy_uncertainty
    assert outside is not None
    return float(np.hypot(std, PROJECTED_WEIGHT * outside[0]))


def length_is_due(config: Config, count: int) -> bool:
    """Is the kernel's length measured again? After 2, 4, 8, … times the initial evaluations."""
    times, rest = divmod(count, config.search.initial)
    return config.model.length_factor is not None and not rest and times & (times - 1) == 0


def measure_length(potential: Potential, model: ModelConfig, images: Sequence[Atoms]) -> None:
    """Set the kernel's length from the evaluated structures, if `length_factor` is set."""
    if model.length_factor is not None:
        length = length_scale(potential.descriptor, images, model.length_factor)
        kernel: Any = potential.kernel
        potential.kernel = replace(kernel, length_scale=length)


def fit(potential: Potential, model: ModelConfig, images: Sequence[Atoms], crystal: bool) -> None:
    """Fit all labelled structures, with forces where they exist."""
    measure_length(potential, model, images)
    stress = learns_stress(model, images, crystal)
    potential.fit(images, None if model.use_forces else False, stress, calibrate=None)


def learns_stress(model: ModelConfig, images: Sequence[Atoms], crystal: bool) -> bool:
    """Is stress used? For crystals, together with forces, if the engine computes it."""
    wanted = crystal and model.use_forces
    with_forces = [atoms for atoms in images if "forces" in atoms.calc.results]
    return wanted and bool(with_forces) and all("stress" in a.calc.results for a in with_forces)
