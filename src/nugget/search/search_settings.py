"""The settings of a search: one validated tree that is read from and written to TOML.

Each option is documented once, here; `nugget init` writes these texts as comments. Quantities that
nobody needs to change are named constants of the modules that use them. `_REMOVED` lists options of
version 0.2 that became such constants.
"""

from __future__ import annotations

import difflib
import inspect
import json
import re
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import numpy as np
from pydantic import BaseModel, Field, ValidationError, model_validator

from nugget import registry
from nugget.descriptors.soap import SOAP
from nugget.engines.engine_settings import EngineConfig, ExecutionConfig
from nugget.errors import NuggetError
from nugget.gp.kernels import RBF
from nugget.numerics.arrays import Ints
from nugget.potential.builder import registered_name
from nugget.potential.training import Noise
from nugget.settings import Section
from nugget.structures.geometry import bond_length
from nugget.systems.system_settings import (
    DEFAULT_GENERATORS,
    SystemConfig,
    kind_of,
    with_kind_defaults,
)


def toml_key(name: str) -> str:
    """A key as TOML writes it, in quotes if necessary."""
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else toml_value(name)


def toml_value(value: Any) -> str:
    """A value as TOML writes it."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, str):
        # JSON's escapes are TOML's, except for DEL, which JSON does not escape.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list | tuple):
        return "[" + ", ".join(toml_value(v) for v in value) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()) + "}"
    raise NuggetError(f"{value!r} cannot be written to a TOML file.")


Options = dict[str, Any]


def _options(of: str) -> Any:
    return Field(default_factory=dict, description=f"further options of the {of}")


#: Options of parts that searches set, for parts that take them: (part, option) and default. The
#: names are those of version 0.2, in which they were options of the model.
PART_OPTIONS: dict[str, tuple[str, str, Any]] = {
    "n_max": ("descriptor", "n_max", 4),
    "l_max": ("descriptor", "l_max", 3),
    "max_points": ("inducing", "max_points", 1000),
    "members": ("uncertainty", "members", None),
    "label_noise": ("uncertainty", "label", 0.02),
    "prior_noise": ("uncertainty", "prior", 0.1),
    "force_label_noise": ("uncertainty", "force", 0.1),
}


class ModelConfig(Section):
    """The surrogate."""

    cutoff: float = Field(SOAP.cutoff, gt=1, description="radius of an atomic environment, Å")
    sigma: float | None = Field(
        None,
        gt=0,
        description="width of SOAP's Gaussians, Å; none: a third of the shortest sum of covalent "
        "radii, but at least 0.6",
    )
    length_scale: float = Field(
        RBF.length_scale, gt=0, description="kernel length in feature space"
    )
    length_factor: float | None = Field(
        None,
        gt=0,
        description="kernel length in units of the median distance between the environments of "
        "evaluated structures, measured after 5, 10, 20, ... of them; none: length_scale",
    )
    noise: float = Field(Noise.energy, gt=0, description="noise of energies, eV/atom")
    force_noise: float = Field(
        0.2, gt=0, description="noise of forces, eV/Å; a smaller value makes σ too small"
    )
    use_forces: bool = Field(True, description="learn from forces too, if the engine computes them")
    descriptor: str = Field("SOAP", description="class of the descriptor")
    descriptor_options: Options = _options("descriptor, as n_max = 4, l_max = 3 of SOAP")
    kernel: str = Field("RBF", description="class of the kernel")
    kernel_options: Options = _options("kernel")
    inducing: str = Field("PivotedCholesky", description="rule that selects inducing points")
    inducing_options: Options = _options("rule, as max_points = 1000")
    uncertainty: str = Field(
        "label-noise", description="label-noise: an ensemble; projected-process: a closed form"
    )
    uncertainty_options: Options = _options(
        "uncertainty, as label = 0.02, prior = 0.1 (eV/atom), force = 0.1 (eV/Å) and members of "
        "the ensemble"
    )
    baseline: str = Field(
        "pair-well",
        description="mean function: pair-well, repulsion, none, ...; a cheaper engine, as "
        "sevennet, gfn1-xtb or engine:module:factory; a fitted model, NAME.model",
    )
    baseline_options: Options = _options("mean function")

    @model_validator(mode="before")
    @classmethod
    def _moved(cls, settings: Any) -> Any:
        """Accept options of parts by their names of version 0.2; defaults need not be written."""
        if not isinstance(settings, dict):
            return settings
        kept = {key: value for key, value in settings.items() if key not in PART_OPTIONS}
        for name, (part, option, default) in PART_OPTIONS.items():
            table = f"{part}_options"
            options = kept.get(table, {})
            if settings.get(name, default) != default and isinstance(options, dict):
                kept[table] = {option: settings[name], **options}
        return kept


#: The present version of the rules by which proposals are made. Version 0 is that of run
#: directories that do not name one; there, the search learns nothing from rejected results.
RULES = 1


class SearchConfig(Section):
    """The search itself."""

    budget: int = Field(150, ge=1, description="evaluations with the engine")
    initial: int = Field(5, ge=1, description="evaluations before the first model")
    in_flight: int = Field(1, ge=1, description="evaluations at the same time")
    candidates: int = Field(
        30, ge=1, description="structures relaxed on the surrogate per evaluation"
    )
    kappa: float = Field(2.0, ge=0, description="exploration: E - kappa*std is minimised")
    acquisition: str = Field(
        "auto",
        description="lcb: lower confidence bound, thompson: Thompson sampling, ei: expected "
        "improvement; auto: lcb one at a time, thompson with several in flight",
    )
    acquisition_options: Options = _options("acquisition")
    explore: int = Field(
        4,
        ge=0,
        description="rounds of candidates before the search explores, when none is expected to be "
        "lower than the best; 0: never explore",
    )
    calibrate: bool = Field(
        True, description="calibrate the std with the past errors of the search"
    )
    relax_steps: int = Field(100, ge=0, description="relaxation steps on the surrogate")
    walkers: int = Field(
        20, ge=0, description="walkers that maximise the expected improvement; 0: none"
    )
    walk: Literal["auto", "exploring", "always"] = Field(
        "auto",
        description="when walkers run: exploring, when no candidate is expected to be lower; "
        "always, before every evaluation; auto, always unless the engine is cheap",
    )
    n_parents: int = Field(
        8, ge=2, description="low and dissimilar structures that new candidates are made from"
    )
    generators: dict[str, float] = Field(
        default_factory=lambda: dict(DEFAULT_GENERATORS),
        description="weights of the generators; those not listed are not used",
    )
    generator_options: dict[str, Options] = Field(
        default_factory=dict, description="further options of generators, by name"
    )
    seed: int = Field(0, ge=0, description="the same seed gives the same search")
    reference: str | None = Field(
        None, description="file with one or more structures; the search stops when it finds one"
    )
    reference_tolerance: float | None = Field(
        0.05,
        ge=0,
        description="a reference counts as found within this energy, eV (crystals: enthalpy, "
        "eV/atom); 0: the same bonds suffice",
    )
    start: str | None = Field(
        None, description="file with structures to evaluate first, in this order"
    )
    learn: str | None = Field(
        None,
        description="labelled structures to learn from before the first evaluation: a file, or "
        "the directory of another search with the same engine",
    )
    stop_when: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="stop when the estimated probability that the lowest is found reaches this",
    )
    polish: int = Field(
        3, ge=0, description="lowest structures relaxed with the engine at the end; 0: none"
    )
    polish_calls: int | None = Field(
        None,
        ge=1,
        description="most evaluations for these final relaxations; none: as many as the budget, "
        "and at least 30 for each structure",
    )
    final_fmax: float = Field(
        0.05, gt=0, description="largest force at which a final relaxation ends, eV/Å"
    )

    rules: int = Field(
        RULES,
        ge=0,
        le=RULES,
        description="version of the rules for proposals; a search keeps the one it began with",
    )

    @model_validator(mode="after")
    def _some_generator(self) -> SearchConfig:
        weights = self.generators
        if not weights or min(weights.values()) < 0 or max(weights.values()) == 0:
            raise ValueError("generators need weights of 0 or more, at least one above 0")
        if stray := [name for name in self.generator_options if name not in weights]:
            raise ValueError(f"generator_options are given for {stray[0]}, which has no weight")
        if self.acquisition == "auto" and self.acquisition_options:
            raise ValueError("acquisition_options need an acquisition by name, not auto")
        return self


#: σ of SOAP in units of the shortest bond length, and its lower bound in Å. Searches for Au20
#: succeed with 0.75 to 1 Å, but not with 0.6 Å. Those for Ti4O8 reach −1168.57 eV with 0.5 to
#: 0.75 Å, but not with 1 Å. Three water molecules need less than 1 Å, and the differences between
#: 0.5 and 0.75 Å are small (few seeds each).
BOND_SHARE, NARROWEST = 1 / 3, 0.6


def gaussian_width(numbers: Ints) -> float:
    """The width of SOAP's Gaussians for a system of these atoms, in Å, to two digits."""
    return round(max(BOND_SHARE * bond_length(numbers), NARROWEST), 2)


class Config(Section):
    """A whole search."""

    system: SystemConfig = SystemConfig()
    engine: EngineConfig = EngineConfig()
    model: ModelConfig = ModelConfig()
    search: SearchConfig = SearchConfig()
    execution: ExecutionConfig = ExecutionConfig()

    @model_validator(mode="after")
    def _fits(self) -> Config:
        kind = kind_of(self.system)
        if self.search.walkers and (kind.variable_cell or kind.several_sizes):
            what = "crystals" if kind.variable_cell else "varying numbers of atoms"
            raise ValueError(f"search.walkers are not available for {what}; leave them at 0")
        return self

    @model_validator(mode="before")
    @classmethod
    def _without_removed(cls, settings: Any) -> Any:
        """Drop options of version 0.2 that became constants; this runs after `_of_its_kind`."""
        return without_removed(settings)

    @model_validator(mode="before")
    @classmethod
    def _of_its_kind(cls, settings: Any) -> Any:
        return with_kind_defaults(settings)


def with_width(model: ModelConfig, numbers: Ints) -> ModelConfig:
    """The settings of the model with a width of SOAP's Gaussians, if the descriptor takes one.

    A run directory holds the number, so that a replay does not depend on the rule.
    """
    factory = registry.find("descriptor", registered_name("descriptor", model.descriptor))
    named = inspect.signature(factory).parameters
    if model.sigma is not None or "sigma" not in named or "sigma" in model.descriptor_options:
        return model
    return model.model_copy(update={"sigma": gaussian_width(numbers)})


# Options of version 0.2 that became constants, and the only permitted values (...: any).
_REMOVED: dict[str, Any] = {
    "search.hops": 0,  # basin hopping in `learner`; walkers replaced it
    "search.parents": "kmeans",  # `parents`
    "search.fmax": 0.05,  # `learner.CANDIDATE_FMAX`
    "search.molecule_stiffness": 100.0,  # `learner.MOLECULE_STIFFNESS`
    "search.walker_hops": 10,  # `walkers.MAX_HOPS`
    "search.usual_force": 2.0,  # `error_bars.REFERENCE_RMS_FORCE`
    "execution.max_losses": ...,  # `engine_settings.MAX_LOSSES`; no result depends on it
    "execution.heartbeat": ...,  # `engine_settings.HEARTBEAT`; no result depends on it
}

# Crystals had other defaults.
_REMOVED_CRYSTAL = {"search.usual_force": 0.0}


def without_removed(settings: Any) -> Any:
    """Settings without the options that became constants; other values than these are refused."""
    if not isinstance(settings, dict):
        return settings
    system = settings.get("system")
    crystal = isinstance(system, dict) and system.get("kind") == "crystal"
    constants = {**_REMOVED, **_REMOVED_CRYSTAL} if crystal else _REMOVED
    kept, wrong = dict(settings), []
    for name, constant in constants.items():
        section, _, key = name.partition(".")
        table = kept.get(section)
        if not isinstance(table, dict) or key not in table:
            continue
        if constant is not ... and table[key] != constant:
            wrong.append(
                f"{name} is {table[key]!r}, but this setting can no longer be changed from "
                f"{constant!r}"
            )
        kept[section] = {other: value for other, value in table.items() if other != key}
    if wrong:
        raise ValueError("; ".join(wrong) + " (remove it, or use nugget 0.2 for this search)")
    return kept


def make_config(settings: dict[str, Any], origin: str = "the settings") -> Config:
    """Validated settings; the error names every mistake and suggests spellings of keys."""
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise NuggetError(f"{origin}: " + "; ".join(lines)) from None


#: Settings that may change when a search is resumed, because no proposal depends on them.
FREE = {
    "engine": {"time_limit", "retries", "max_failures", "scratch", "keep_scratch", "verify"},
    "search": {"budget", "polish", "polish_calls", "final_fmax", "stop_when"},
}


def differs(section: str, key: str, now: Any, then: Any) -> bool:
    """Whether a setting differs from that of a run; a width that is not given never does."""
    return bool(now != then) and not ((section, key) == ("model", "sigma") and now is None)


def changed_settings(now: Config, then: Config) -> list[str]:
    """The differing settings on which results depend, one sentence each."""
    a, b = (config.model_dump(exclude={"execution"}) for config in (now, then))
    return [
        f"{section}.{key} is {value!r} and was {b[section].get(key)!r}"
        for section, values in a.items()
        for key, value in values.items()
        if differs(section, key, value, b[section].get(key)) and key not in FREE.get(section, ())
    ]


def stored_config(settings: dict[str, Any], origin: str) -> Config:
    """The settings of a run directory; those of earlier versions name no rules."""
    search = settings.get("search", {})
    if isinstance(search, dict):
        settings = {**settings, "search": {"rules": 0, **search}}
    return make_config(settings, origin)


def read_config(path: Path, stored: bool = False) -> Config:
    """Settings from a TOML file, which must at least name a system; `stored`: a run directory's."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NuggetError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NuggetError(f"{path} is not valid TOML: {error}.") from None
    system = settings.get("system", {})
    if isinstance(system, dict) and not {"formula", "compositions", "vary"} & set(system):
        what = "no system.formula" if settings else "no settings"
        raise NuggetError(
            f'{path} holds {what}: name the system, as formula = "Au20" below [system].'
        )
    return (stored_config if stored else make_config)(settings, str(path))


def sections_of(option: str) -> list[str]:
    """The sections that have an option of this name."""
    sections = Config.model_fields.items()
    homes = [name for name, field in sections if option in field.annotation.model_fields]  # type: ignore[union-attr]
    return ["model"] if option in PART_OPTIONS else homes


def current_name(full: str) -> str:
    """The present name of a setting, such as model.n_max, that may have its name of version 0.2."""
    section, _, name = full.partition(".")
    if section != "model" or name not in PART_OPTIONS:
        return full
    part, option, _ = PART_OPTIONS[name]
    return f"model.{part}_options.{option}"


def may_be_none(full: str) -> bool:
    """Whether a setting, by its present name, takes None."""
    if any(full == current_name(f"model.{name}") for name in PART_OPTIONS):
        return full.endswith(".members")
    section, _, option = full.partition(".")
    fields = Config.model_fields[section].annotation.model_fields  # type: ignore[union-attr]
    return option in fields and type(None) in get_args(fields[option].annotation)


def write_config(config: Config, *, comments: bool = True) -> str:
    """The settings as TOML, each with its description as a comment."""
    blocks = []
    for name, section in Config.model_fields.items():
        block: BaseModel = getattr(config, name)
        lines = [f"# {(section.annotation.__doc__ or '').strip()}"] if comments else []
        lines.append(f"[{name}]")
        tables = []
        for key, field in type(block).model_fields.items():
            value = getattr(block, key)
            note = f"  # {field.description}{_permitted(field)}" if comments else ""
            if isinstance(value, dict) and value:
                entries = [f"{toml_key(k)} = {toml_value(v)}" for k, v in value.items()]
                head = f"# {field.description}\n" if comments else ""
                tables.append("\n".join([f"{head}[{name}.{key}]", *entries]))
            elif value is not None:
                lines.append(f"{key} = {toml_value(value)}{note}")
            elif comments:
                lines.append(f"# {key} ={note}")
        blocks.append("\n".join(lines))
        blocks.extend(tables)
    return "\n\n".join(blocks) + "\n"


def _permitted(field: Any) -> str:
    """The permitted values of a setting that has a list of them."""
    if get_origin(field.annotation) is Literal:
        return f"; one of {', '.join(get_args(field.annotation))}"
    return ""


_RENAMED = {
    "model.label": "uncertainty_options.label",
    "model.prior": "uncertainty_options.prior",
    "model.force": "uncertainty_options.force",
}


def _explain(problem: Any) -> str:
    where = ".".join(str(part) for part in problem["loc"])
    if problem["type"] == "model_type":
        return f"{where} must be a table, [{where}], not {problem['input']!r}"
    if problem["type"] == "value_error":  # our own validators
        return f"{where or 'settings'}: {problem['msg'].removeprefix('Value error, ')}"
    if problem["type"] != "extra_forbidden":
        return f"{where}: {problem['msg']} (got {problem['input']!r})"
    *parents, key = problem["loc"]
    names = list(Config.model_fields)
    if parents:
        section = Config.model_fields[parents[0]].annotation
        names = list(section.model_fields)  # type: ignore[union-attr]
    if where in _RENAMED:
        return f"{where} is not an option; did you mean {_RENAMED[where]!r}?"
    near = difflib.get_close_matches(str(key), names, n=1)
    if not parents and (homes := sections_of(str(key))):
        # A bare key, as in `kappa = 4` at the top of the file.
        return f"{where} is not a section; did you mean {key} below [{homes[0]}]?"
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(names)}"
    return f"{where} is not an option; {hint}"
