"""The builder: parts by name or as objects, defaults of the classes, errors that name a part."""

from __future__ import annotations

import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster

from nugget import CUR, RBF, SOAP, NuggetError, PivotedCholesky, Posterior
from nugget.potential import Noise
from nugget.potential.builder import ModelSettings, PartSettings, registered_name
from nugget.potential.mean_functions.base import SpeciesEnergies, SumMeanFunction
from nugget.potential.mean_functions.zbl import ZBL
from nugget.potential.training import TrainingData


def test_defaults_are_those_of_the_classes() -> None:
    potential = ModelSettings().build(["Au"])
    assert potential.descriptor == SOAP(("Au",))
    assert potential.kernel == RBF()
    assert potential.inducing == PivotedCholesky()
    assert potential.uncertainty == Posterior()
    assert potential.prior == SumMeanFunction((SpeciesEnergies(), ZBL()))
    assert potential.domain
    assert potential.noise_levels == Noise()


def test_parts_by_name_and_as_objects() -> None:
    settings = ModelSettings(
        PartSettings("soap", {"cutoff": 5.0}),
        RBF(3.0),
        PartSettings("cur", {"n_points": 7}),
        PartSettings("posterior"),
        noise=Noise(0.02, 0.3, 0.001),
        seed=4,
    )
    potential = settings.build(["Au"])
    assert potential.descriptor == SOAP(("Au",), 5.0)
    assert potential.kernel == RBF(3.0)
    assert potential.inducing == CUR(7)
    assert potential.uncertainty == Posterior()
    assert (potential.noise, potential.force_noise, potential.seed) == (0.02, 0.3, 4)
    assert potential.noise_levels.stress_level == 0.001


@pytest.mark.parametrize(
    ("kind", "name", "registered"),
    [
        ("uncertainty", "label-noise", "LabelNoise"),
        ("inducing", "pivoted", "PivotedCholesky"),
        ("inducing", "cur", "CUR"),
        ("prior", "pair-well", "pair-well"),
        ("kernel", "unknown", "unknown"),
    ],
)
def test_names(kind: str, name: str, registered: str) -> None:
    assert registered_name(kind, name) == registered


def test_unknown_names_and_options_are_errors() -> None:
    with pytest.raises(NuggetError, match="no kernel 'cubic'"):
        ModelSettings(kernel=PartSettings("cubic")).build(["Au"])
    with pytest.raises(NuggetError, match=r"'RBF'.*length_scale"):
        ModelSettings(kernel=PartSettings("RBF", {"length": 1.0})).build(["Au"])


def test_noise_levels_are_checked_and_scaled() -> None:
    with pytest.raises(NuggetError, match="noise is -1"):
        Noise(-1)
    assert Noise(0.01, 0.25).stress_level == 0.01
    assert Noise(0.01, 0.2, 0.5).scaled(2.0, 3.0) == Noise(0.02, 0.2 * 3.0, 1.5)


def test_features_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    images = [gold_cluster(6, s) for s in range(6)]
    for s, atoms in enumerate(images):
        atoms.calc = SinglePointCalculator(atoms, energy=float(s))
    calls = []
    compute = SOAP.compute
    monkeypatch.setattr(
        SOAP, "compute", lambda *args, **kw: calls.append(1) or compute(*args, **kw)
    )
    data = TrainingData.read(images, False, False)
    soap = SOAP(("Au",))
    data.environments(soap)
    potential = ModelSettings(soap, uncertainty=PartSettings("posterior")).build()
    potential.fit_data(data, calibrate="loo")
    assert len(calls) == 1
