"""The settings of a search: one validated tree, read from and written to TOML.

Each option is documented once, here; `nugget init` writes these texts as comments.
"""

from __future__ import annotations

import difflib
import tomllib
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel, Field, ValidationError, model_validator

from nugget.errors import NuggetError
from nugget.evaluation.config import EngineConfig, ExecutionConfig, Section
from nugget.search._toml import toml_key, toml_value
from nugget.search.system import DEFAULT_GENERATORS, SystemConfig, with_crystal_defaults

Options = dict[str, Any]


def _options(of: str) -> Any:
    return Field(default_factory=dict, description=f"further options of the {of}")


class ModelConfig(Section):
    """The surrogate."""

    cutoff: float = Field(6.0, gt=1, description="radius of an atomic environment, Å")
    n_max: int = Field(4, ge=1, le=20, description="radial functions of SOAP")
    l_max: int = Field(3, ge=0, le=20, description="angular momenta of SOAP")
    sigma: float = Field(1.0, gt=0, description="width of an atom in SOAP, Å")
    length_scale: float = Field(20.0, gt=0, description="kernel length in feature space")
    length_factor: float | None = Field(
        None,
        gt=0,
        description="kernel length as so many times the median distance between the environments "
        "that were evaluated, measured after 5, 10, 20, ...; none: length_scale",
    )
    noise: float = Field(0.01, gt=0, description="misfit of energies, eV/atom")
    force_noise: float = Field(
        0.2, gt=0, description="misfit of forces, eV/Å; smaller makes the search overconfident"
    )
    use_forces: bool = Field(True, description="learn from forces too, where the engine has them")
    max_points: int = Field(1000, ge=10, description="inducing points at the most")
    members: int | None = Field(None, ge=1, description="sampled members; none: the exact limit")
    label_noise: float = Field(0.02, ge=0, description="label noise of the committee, eV/atom")
    prior_noise: float = Field(0.1, ge=0, description="prior noise of the committee, eV/atom")
    force_label_noise: float = Field(0.1, ge=0, description="label noise on forces, eV/Å")
    descriptor: str = Field("SOAP", description="class of the descriptor")
    descriptor_options: Options = _options("descriptor")
    kernel: str = Field("RBF", description="class of the kernel")
    kernel_options: Options = _options("kernel")
    inducing: str = Field("PivotedCholesky", description="rule that picks inducing points")
    inducing_options: Options = _options("rule")
    uncertainty: str = Field(
        "label-noise", description="label-noise: a committee; projected-process: the closed form"
    )
    uncertainty_options: Options = _options("uncertainty")
    baseline: str = Field(
        "pair-well",
        description="energy before any data: pair-well, repulsion, none, ...; engine:gfn1-xtb or "
        "engine:module:factory, a cheaper engine; NAME.model, a model of one",
    )
    baseline_options: Options = _options("baseline")


class SearchConfig(Section):
    """The search itself."""

    budget: int = Field(150, ge=1, description="evaluations with the engine")
    initial: int = Field(5, ge=1, description="evaluations before the first model")
    in_flight: int = Field(1, ge=1, description="evaluations at the same time")
    candidates: int = Field(30, ge=1, description="structures relaxed per evaluation")
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
        description="rounds of candidates before an evaluation is spent on what is unlike the "
        "known structures, when none promises to be lower; 0: never",
    )
    calibrate: bool = Field(True, description="rescale the std by the past errors of the search")
    usual_force: float = Field(
        2.0,
        ge=0,
        description="with calibrate: the first std is multiplied by the rms force on the first "
        "structures, less the baseline's, over this, eV/Å; 0: it is not",
    )
    relax_steps: int = Field(100, ge=0, description="relaxation steps on the surrogate")
    fmax: float = Field(0.05, gt=0, description="force at which a relaxation ends, eV/Å")
    hops: int = Field(0, ge=0, description="rounds of basin hopping on the surrogate")
    molecule_stiffness: float = Field(
        100.0,
        ge=0,
        description="molecules (H2O*4): springs that hold bonds and angles while candidates relax "
        "on the surrogate, eV/Å²; 0: none",
    )
    walkers: int = Field(
        20, ge=0, description="walkers that climb the expected improvement; 0: none"
    )
    walker_hops: int = Field(
        10,
        ge=1,
        description="most hops of a walker per evaluation: one, and one more after each "
        "exploration in vain; all of them where walkers always walk",
    )
    walk: Literal["auto", "exploring", "always"] = Field(
        "auto",
        description="when walkers walk: exploring, when no candidate promises to be lower; always, "
        "before every evaluation; auto, always unless the engine is a cheap one",
    )
    parents: Literal["kmeans", "best", "boltzmann"] = Field(
        "kmeans", description="which known structures new ones are made from"
    )
    n_parents: int = Field(8, ge=2, description="how many of these")
    generators: dict[str, float] = Field(
        default_factory=lambda: dict(DEFAULT_GENERATORS),
        description="weights of the ways to make candidates; what is not listed is not used",
    )
    generator_options: dict[str, Options] = Field(
        default_factory=dict, description="further options of generators, by name"
    )
    seed: int = Field(0, ge=0, description="same seed, same search")
    reference: str | None = Field(
        None, description="file with one or more structures to stop at when one is found"
    )
    reference_tolerance: float | None = Field(
        0.05,
        ge=0,
        description="found only this close to its energy, eV (crystals: enthalpy, eV/atom); 0: its "
        "bonds suffice",
    )
    start: str | None = Field(
        None, description="file with structures that are evaluated first, in order"
    )
    learn: str | None = Field(
        None,
        description="labelled structures that are known before, a file or the directory of "
        "another search with the same engine; nothing of it is evaluated again",
    )
    stop_when: float | None = Field(
        None,
        gt=0,
        lt=1,
        description="stop when the estimated probability that the lowest is found exceeds this",
    )
    polish: int = Field(
        3, ge=0, description="lowest structures relaxed with the engine at the end; 0: none"
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


class Config(Section):
    """A whole search."""

    system: SystemConfig = SystemConfig()
    engine: EngineConfig = EngineConfig()
    model: ModelConfig = ModelConfig()
    search: SearchConfig = SearchConfig()
    execution: ExecutionConfig = ExecutionConfig()

    @model_validator(mode="after")
    def _fits(self) -> Config:
        if self.search.walkers and self.system.kind == "crystal":
            raise ValueError("search.walkers do not walk in crystals yet; leave them at 0")
        return self

    @model_validator(mode="before")
    @classmethod
    def _of_its_kind(cls, settings: Any) -> Any:
        return with_crystal_defaults(settings)


def make_config(settings: dict[str, Any], origin: str = "the settings") -> Config:
    """Validated settings; every mistake is named, with a suggestion for misspelt keys."""
    try:
        return Config.model_validate(settings)
    except ValidationError as error:
        lines = [_explain(problem) for problem in error.errors()]
        raise NuggetError(f"{origin}: " + "; ".join(lines)) from None


# What may change while a search goes on: how far, how long and where, but not what it finds.
_FREE = {
    "engine": {"time_limit", "retries", "max_failures", "scratch", "keep_scratch"},
    "search": {"budget", "polish", "stop_when"},
}


def changed_settings(now: Config, then: Config) -> list[str]:
    """The settings that make another search, in words; budget, limits and execution do not."""
    a, b = (config.model_dump(exclude={"execution"}) for config in (now, then))
    return [
        f"{section}.{key} is {value!r} and was {b[section].get(key)!r}"
        for section, values in a.items()
        for key, value in values.items()
        if value != b[section].get(key) and key not in _FREE.get(section, ())
    ]


def read_config(path: Path) -> Config:
    """Settings from a TOML file, which must at least name a system."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise NuggetError(f"{path} cannot be read: {error.strerror}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise NuggetError(f"{path} is not valid TOML: {error}.") from None
    system = settings.get("system", {})
    if isinstance(system, dict) and not {"formula", "compositions"} & set(system):
        what = "no system.formula" if settings else "no settings"
        raise NuggetError(
            f'{path} holds {what}: say what is searched for, as formula = "Au20" below [system].'
        )
    return make_config(settings, str(path))


def sections_of(option: str) -> list[str]:
    """The sections that have an option of this name."""
    sections = Config.model_fields.items()
    return [name for name, field in sections if option in field.annotation.model_fields]  # type: ignore[union-attr]


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
    """The permitted values of a setting that has a list of them, and limits of numbers."""
    if get_origin(field.annotation) is Literal:
        return f"; one of {', '.join(get_args(field.annotation))}"
    return ""


_RENAMED = {
    "model.label": "label_noise",
    "model.prior": "prior_noise",
    "model.force": "force_label_noise",
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
    known = list(Config.model_fields)
    if parents:
        section = Config.model_fields[parents[0]].annotation
        known = list(section.model_fields)  # type: ignore[union-attr]
    if where in _RENAMED:
        return f"{where} is not an option; did you mean {_RENAMED[where]!r}?"
    near = difflib.get_close_matches(str(key), known, n=1)
    if not parents and (homes := sections_of(str(key))):
        # A bare key, as in `kappa = 4` at the top of the file.
        return f"{where} is not a section; did you mean {key} below [{homes[0]}]?"
    hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}"
    return f"{where} is not an option; {hint}"
