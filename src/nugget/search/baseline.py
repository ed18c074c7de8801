"""What a search believes before any data: a simple term, a cheaper engine, or a model of one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from ase import Atoms

from nugget import registry
from nugget.errors import NuggetError
from nugget.evaluation.trust import engine_code
from nugget.modelfile.file import code_of_model
from nugget.potential.priors import CalculatorPrior, FixedPrior, ModelPrior, Prior
from nugget.search.config import Config, ModelConfig
from nugget.search.reference import resolve_path

_ENGINE = "engine:"


def baseline_file(model: ModelConfig) -> str | None:
    """The file of the baseline, if it is a model; names of parts have neither dots nor slashes."""
    name = model.baseline
    return name if not name.startswith(_ENGINE) and ("." in name or "/" in name) else None


def make_baseline(model: ModelConfig, directory: Path) -> list[Prior]:
    """What is added to the energies per element; file names are relative to `directory`.

    A pair well keeps early searches from crushing or boiling structures that no data speak about:
    on Au13 (EMT, two seeds) 5 of 38 evaluations were above 9 eV instead of 27.
    """
    options = model.baseline_options
    if (file := baseline_file(model)) is not None or model.baseline == "none":
        if options:
            what = "none" if file is None else "a model"
            raise NuggetError(f"model.baseline_options are given, but model.baseline is {what!r}.")
        # What the file would run was shown to the user before: see `code_of`.
        return [] if file is None else [ModelPrior.trusted(resolve_path(file, directory))]
    if model.baseline.startswith(_ENGINE):
        return [CalculatorPrior(model.baseline.removeprefix(_ENGINE), tuple(options.items()))]
    return [registry.make("prior", spelled("prior", model.baseline), **options)]


def spelled(kind: str, name: str) -> str:
    """The registered name; label-noise may be written for LabelNoise."""
    camel = "".join(part.capitalize() for part in name.split("-"))
    known = registry.names(kind)
    return camel if name not in known and camel in known else name


def knowing(prior: Prior) -> FixedPrior | None:
    """The part of a prior that knows the system: an engine or a model, if there is one."""
    found = [part for part in getattr(prior, "parts", [prior]) if type(part) in _KNOWING]
    return found[0] if found else None


_KNOWING = (CalculatorPrior, ModelPrior)


def has_value(baseline: FixedPrior | None, atoms: Atoms) -> bool:
    """Has the baseline an energy for this structure? An engine may fail."""
    return baseline is None or bool(np.isfinite(baseline([atoms])[0]).all())


def baseline_code(config: Config, directory: Path = Path()) -> list[str]:
    """The code that the model's baseline runs, if it is an engine or a model of that kind."""
    model, options = config.model, config.model.baseline_options
    if model.baseline.startswith(_ENGINE):
        return engine_code(model.baseline.removeprefix(_ENGINE), dict(options))
    if "engine" in options:
        return engine_code(str(options["engine"]), dict(options.get("options", ())))
    return model_code(config, directory)


def model_code(config: Config, directory: Path = Path()) -> list[str]:
    """The code that a model runs which is the baseline; a file that is not there runs none."""
    file = baseline_file(config.model)
    path = None if file is None else resolve_path(file, directory)
    return code_of_model(path) if path is not None and path.is_file() else []
