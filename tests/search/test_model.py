"""Settings become parts: those that a part takes, and an error for those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from nugget import CUR, RBF, SOAP, LabelNoise, PivotedCholesky, ProjectedProcess
from nugget.errors import NuggetError
from nugget.potential.mean_functions.base import SpeciesEnergies, SumPrior
from nugget.potential.mean_functions.pair_terms import PairWell, Repulsion
from nugget.potential.potential import Potential
from nugget.search.search_settings import ModelConfig, make_config
from nugget.search.surrogate import make_potential
from nugget.systems import PlacedAtoms


def made(**settings: Any) -> Potential:
    config = make_config({"model": settings})
    return make_potential(config.model, PlacedAtoms.cluster("Cu2Au3"), 7)


def test_defaults():
    potential = made()
    assert potential.descriptor == SOAP(("Au", "Cu"), 6.0, 4, 3, 1.0)
    assert potential.kernel == RBF(20.0)
    assert potential.inducing == PivotedCholesky(max_points=1000)
    assert potential.uncertainty == LabelNoise(0.02, 0.1, 0.1, None)
    assert (potential.noise, potential.force_noise, potential.seed) == (0.01, 0.2, 7)
    assert isinstance(potential.prior, SumPrior)
    assert potential.prior.parts == (SpeciesEnergies(), PairWell())


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
    assert potential.descriptor == SOAP(("Au", "Cu"), 5.0, 5, 3, 1.0)
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
