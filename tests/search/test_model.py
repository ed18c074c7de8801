"""Settings become parts: those that a part takes, and an error for those that it does not."""

from __future__ import annotations

from typing import Any

import pytest

from nugget import CUR, RBF, SOAP, LabelNoise, PivotedCholesky, ProjectedProcess
from nugget.errors import NuggetError
from nugget.generators import Problem
from nugget.potential.potential import Potential
from nugget.potential.priors import PairWell, Repulsion, SpeciesEnergies, SumPrior
from nugget.search.config import ModelConfig, make_config
from nugget.search.model import make_potential


def made(**settings: Any) -> Potential:
    config = make_config({"model": settings})
    return make_potential(config.model, Problem.cluster("Cu2Au3"), 7)


def test_defaults():
    potential = made()
    assert potential.descriptor == SOAP(("Au", "Cu"), 6.0, 4, 3, 1.0)
    assert potential.kernel == RBF(20.0)
    assert potential.inducing == PivotedCholesky(max_points=1000)
    assert potential.uncertainty == LabelNoise(0.02, 0.1, 0.1, None)
    assert (potential.noise, potential.force_noise, potential.seed) == (0.01, 0.2, 7)
    assert isinstance(potential.prior, SumPrior)
    assert potential.prior.parts == (SpeciesEnergies(), PairWell())


def test_settings_and_options_reach_the_parts():
    potential = made(
        cutoff=5.0, n_max=5, length_scale=10.0, kernel_options={"amplitude": 2.0},
        inducing_options={"tol": 1e-5}, max_points=77, members=9, label_noise=0.3,
        prior_noise=0.4, force_label_noise=0.5, baseline="repulsion",
    )  # fmt: skip
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
        ({"inducing": "CUR", "max_points": 50}, "model.max_points is set, but the inducing 'CUR'"),
        ({"uncertainty": "projected-process", "members": 5}, "model.members is set"),
        ({"uncertainty": "projected-process", "label_noise": 0.1}, "it takes observations"),
        ({"descriptor": "SAOP"}, "There is no descriptor 'SAOP'; did you mean 'SOAP'?"),
        ({"baseline": "zbl"}, "There is no prior 'zbl'"),
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
