"""The surrogate that the settings describe."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ase import Atoms
from ase.data import chemical_symbols

from nugget import registry
from nugget.errors import NuggetError
from nugget.generators import Crystal, Problem
from nugget.potential.potential import Potential
from nugget.potential.presets import length_scale
from nugget.potential.priors import SpeciesEnergies
from nugget.search.baseline import make_baseline, spelled
from nugget.search.config import Config, ModelConfig

# Settings that go to a part if it takes such an argument: {setting: argument}.
_SETTINGS: dict[str, dict[str, str]] = {
    "descriptor": {name: name for name in ("cutoff", "n_max", "l_max", "sigma")},
    "kernel": {"length_scale": "length_scale"},
    "inducing": {"max_points": "max_points"},
    "uncertainty": {
        "members": "members",
        "label_noise": "label",
        "prior_noise": "prior",
        "force_label_noise": "force",
    },
}


def make_potential(
    model: ModelConfig, problem: Problem | Crystal, seed: int, directory: Path = Path()
) -> Potential:
    """The potential, not yet fitted; file names are relative to `directory`."""
    species = tuple(sorted({chemical_symbols[z] for z in problem.numbers}))
    return Potential(
        _make("descriptor", model, model.descriptor, model.descriptor_options, species=species),
        kernel=_make("kernel", model, model.kernel, model.kernel_options),
        inducing=_make("inducing", model, model.inducing, model.inducing_options),
        noise=model.noise,
        force_noise=model.force_noise,
        uncertainty=_make("uncertainty", model, model.uncertainty, model.uncertainty_options),
        prior=[SpeciesEnergies(), *make_baseline(model, directory)],
        seed=seed,
    )


def _make(
    kind: str, model: ModelConfig, name: str, options: Mapping[str, Any], **given: Any
) -> Any:
    """A part with the settings that it takes; one that was changed and is not taken is an error."""
    name = spelled(kind, name)
    factory = registry.find(kind, name)
    takes = inspect.signature(factory).parameters
    for setting, argument in _SETTINGS[kind].items():
        value = getattr(model, setting)
        if argument in takes:
            given[argument] = value
        elif value != type(model).model_fields[setting].default:
            raise NuggetError(
                f"model.{setting} is set, but the {kind} {name!r} does not take it; it takes "
                f"{registry.taken(factory)}."
            )
    return registry.make(kind, name, **{**given, **options})


def length_is_due(config: Config, count: int) -> bool:
    """Is it time to measure the kernel's length again? After 2, 4, 8 times the first data."""
    times, rest = divmod(count, config.search.initial)
    return config.model.length_factor is not None and not rest and times & (times - 1) == 0


def measure_length(potential: Potential, model: ModelConfig, images: Sequence[Atoms]) -> None:
    """Set the kernel's length by the structures that were evaluated, if the settings say so."""
    if model.length_factor is not None:
        length = length_scale(potential.descriptor, images, model.length_factor)
        kernel: Any = potential.kernel
        potential.kernel = replace(kernel, length_scale=length)


def fit(potential: Potential, model: ModelConfig, images: Sequence[Atoms], crystal: bool) -> None:
    """A model of all that is labelled; forces are used where they are."""
    measure_length(potential, model, images)
    stress = learns_stress(model, images, crystal)
    potential.fit(images, None if model.use_forces else False, stress)


def learns_stress(model: ModelConfig, images: Sequence[Atoms], crystal: bool) -> bool:
    """Learn from stress? With forces, of crystals, if the engine gives it."""
    wanted = crystal and model.use_forces
    return wanted and all("stress" in atoms.calc.results for atoms in images)
