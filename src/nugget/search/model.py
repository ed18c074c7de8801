"""The surrogate that the settings describe."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from ase.data import chemical_symbols

from nugget import registry
from nugget.errors import NuggetError
from nugget.generators import Crystal, Problem
from nugget.potential.potential import Potential
from nugget.potential.priors import Prior, SpeciesEnergies
from nugget.search.config import ModelConfig

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


def make_potential(model: ModelConfig, problem: Problem | Crystal, seed: int) -> Potential:
    """The potential, not yet fitted."""
    species = tuple(sorted({chemical_symbols[z] for z in problem.numbers}))
    return Potential(
        _make("descriptor", model, model.descriptor, model.descriptor_options, species=species),
        kernel=_make("kernel", model, model.kernel, model.kernel_options),
        inducing=_make("inducing", model, model.inducing, model.inducing_options),
        noise=model.noise,
        force_noise=model.force_noise,
        uncertainty=_make("uncertainty", model, model.uncertainty, model.uncertainty_options),
        prior=[SpeciesEnergies(), *_baseline(model)],
        seed=seed,
    )


def _make(
    kind: str, model: ModelConfig, name: str, options: Mapping[str, Any], **given: Any
) -> Any:
    """A part with the settings that it takes; one that was changed and is not taken is an error."""
    name = _spelled(kind, name)
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


def _baseline(model: ModelConfig) -> list[Prior]:
    """What is added to the energies per element.

    A pair well keeps early searches from crushing or boiling structures that no data speak about:
    on Au13 (EMT, two seeds) 5 of 38 evaluations were above 9 eV instead of 27.
    """
    if model.baseline == "none":
        if model.baseline_options:
            raise NuggetError("model.baseline_options are given, but model.baseline is 'none'.")
        return []
    return [registry.make("prior", _spelled("prior", model.baseline), **model.baseline_options)]


def _spelled(kind: str, name: str) -> str:
    """The registered name; label-noise may be written for LabelNoise."""
    camel = "".join(part.capitalize() for part in name.split("-"))
    known = registry.names(kind)
    return camel if name not in known and camel in known else name
