"""Settings become parts: those that a part takes, and an error for those that it does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from nugget import CUR, RBF, SOAP, LabelNoise, PivotedCholesky, ProjectedProcess
from nugget.campaign.campaign import check_settings
from nugget.errors import NuggetError
from nugget.potential.mean_functions.base import SpeciesEnergies, SumPrior
from nugget.potential.mean_functions.pair_terms import PairWell, Repulsion
from nugget.potential.potential import Potential
from nugget.search.search import Search
from nugget.search.search_settings import ModelConfig, make_config
from nugget.search.surrogate import make_potential
from nugget.systems import PlacedAtoms


def made(**settings: Any) -> Potential:
    config = make_config({"model": settings})
    return make_potential(config.model, PlacedAtoms.cluster("Cu2Au3"), 7)


def test_defaults():
    potential = made()
    assert potential.descriptor == SOAP(("Au", "Cu"), 6.0, 4, 3, 0.89)
    assert potential.kernel == RBF(20.0)
    assert potential.inducing == PivotedCholesky(max_points=1000)
    assert potential.uncertainty == LabelNoise(0.02, 0.1, 0.1, None)
    assert (potential.noise, potential.force_noise, potential.seed) == (0.01, 0.2, 7)
    assert isinstance(potential.prior, SumPrior)
    assert potential.prior.parts == (SpeciesEnergies(), PairWell())


@pytest.mark.parametrize(
    ("formula", "width"), [("Au3", 0.91), ("Ti2O4", 0.75), ("Si2C2", 0.62), ("H4O2", 0.6)]
)
def test_the_width_of_the_gaussians_follows_the_shortest_bond(formula: str, width: float):
    """A third of the sum of covalent radii: Au 1.36, Ti 1.60, O 0.66, Si 1.11, C 0.76 Å."""
    model = ModelConfig()
    built = make_potential(model, PlacedAtoms.cluster(formula), 0).descriptor
    assert isinstance(built, SOAP)
    assert built.sigma == width
    fixed = make_potential(ModelConfig(sigma=1.0), PlacedAtoms.cluster(formula), 0).descriptor
    assert isinstance(fixed, SOAP)
    assert fixed.sigma == 1.0


def test_a_run_directory_holds_the_width(tmp_path: Path):
    config = make_config({"system": {"formula": "Au3"}, "engine": {"name": "emt"}})
    search = Search.create(config, tmp_path / "run")
    assert config.model.sigma is None
    assert search.config.model.sigma == 0.91
    check_settings(tmp_path / "run", config)  # a campaign continues it


# The same options by their names of version 0.2, and by those of the parts.
OLD = {
    "n_max": 5, "inducing_options": {"tol": 1e-5}, "max_points": 77, "members": 9,
    "label_noise": 0.3, "prior_noise": 0.4, "force_label_noise": 0.5,
}  # fmt: skip
NEW = {
    "descriptor_options": {"n_max": 5},
    "inducing_options": {"tol": 1e-5, "max_points": 77},
    "uncertainty_options": {"members": 9, "label": 0.3, "prior": 0.4, "force": 0.5},
}


def test_names_of_version_0_2_are_accepted():
    assert make_config({"model": OLD}) == make_config({"model": NEW})
    defaults = {"n_max": 4, "l_max": 3, "max_points": 1000, "label_noise": 0.02, "members": None}
    assert make_config({"model": defaults}) == make_config({})
    both = {"n_max": 5, "descriptor_options": {"n_max": 6}}
    assert make_config({"model": both}).model.descriptor_options == {"n_max": 6}


@pytest.mark.parametrize("options", [OLD, NEW])
def test_settings_and_options_reach_the_parts(options: dict[str, Any]):
    chosen = {"cutoff": 5.0, "length_scale": 10.0, "kernel_options": {"amplitude": 2.0}}
    potential = made(**chosen, baseline="repulsion", **options)
    assert potential.descriptor == SOAP(("Au", "Cu"), 5.0, 5, 3, 0.89)
    assert potential.kernel == RBF(10.0, 2.0)
    assert potential.inducing == PivotedCholesky(1e-5, 77)
    assert potential.uncertainty == LabelNoise(0.3, 0.4, 0.5, 9)
    assert potential.prior.parts[1] == Repulsion()


@pytest.mark.parametrize("name", ["projected-process", "ProjectedProcess"])
def test_two_spellings(name: str):
    potential = made(uncertainty=name, uncertainty_options={"observations": "environments"})
    assert potential.uncertainty == ProjectedProcess("environments")
    assert made(uncertainty="LabelNoise").uncertainty == LabelNoise(0.02, 0.1, 0.1)


def test_another_rule_and_no_baseline():
    potential = made(inducing="CUR", inducing_options={"n_points": 50}, baseline="none")
    assert potential.inducing == CUR(50)
    assert potential.prior.parts == (SpeciesEnergies(),)


@pytest.mark.parametrize(
    ("settings", "hint"),
    [
        ({"inducing": "CUR", "max_points": 50}, "unexpected keyword argument 'max_points'"),
        ({"uncertainty": "projected-process", "members": 5}, "argument 'members'"),
        ({"uncertainty": "projected-process", "label_noise": 0.1}, "it takes observations"),
        ({"descriptor": "SAOP"}, "There is no descriptor 'SAOP'; did you mean 'SOAP'?"),
        ({"baseline": "zlb"}, "There is no prior 'zlb'"),
        ({"baseline": "none", "baseline_options": {"height": 1.0}}, "baseline is 'none'"),
        ({"kernel_options": {"nu": 2.5}}, "unexpected keyword argument 'nu'"),
    ],
)
def test_mistakes_are_named(settings: dict[str, Any], hint: str):
    with pytest.raises(NuggetError) as error:
        made(**settings)
    assert hint in str(error.value)


def test_defaults_that_are_written_out_are_no_mistake():
    """A settings file with every option, as `nugget init` writes it, allows another part."""
    everything = ModelConfig().model_dump() | {"uncertainty": "projected-process"}
    assert made(**everything).uncertainty == ProjectedProcess()
