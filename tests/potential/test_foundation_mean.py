"""A batched engine as mean function: bits, failures, identity of the weights, model files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import alloy_slab, gold_cluster

from nugget import SOAP, Potential
from nugget.errors import NuggetError
from nugget.potential.mean_functions.base import SpeciesEnergies, SumMeanFunction
from nugget.potential.mean_functions.foundation import FoundationMean, engine_mean
from nugget.potential.mean_functions.from_models import CalculatorMean
from nugget.structures.batch import as_batch

MEAN = FoundationMean("pair-model")


def labelled(atoms: Atoms) -> Atoms:
    atoms.calc = EMT()
    results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def clusters(number: int) -> list[Atoms]:
    return [labelled(gold_cluster(8, seed)) for seed in range(number)]


def calls(mean: FoundationMean) -> list[int]:
    """Structures of each call of the model, which this empties."""
    made = mean._handle.model.batches
    values = list(made)
    made.clear()
    return values


def test_a_batch_is_one_call() -> None:
    images = [gold_cluster(8, seed) for seed in range(100, 105)]
    calls(MEAN)
    values = MEAN.evaluate(as_batch(images))
    assert calls(MEAN) == [5]
    singly = MEAN.evaluate_singly(as_batch(images))
    assert calls(MEAN) == [1] * 5
    np.testing.assert_allclose(values.energies, singly.energies, rtol=1e-11)
    assert not np.array_equal(values.energies, singly.energies)  # so that the next test can fail


def test_labels_do_not_depend_on_the_batch(tmp_path: Path) -> None:
    """A model that grew is the one that a resumed run rebuilds."""
    images = clusters(8)
    mean = [SpeciesEnergies(), MEAN]

    def fitted(number: int) -> Potential:
        return Potential(SOAP(["Au"], 4.0), prior=mean).fit(images[:number], calibrate=None)

    whole, part = fitted(8), fitted(5)
    fresh = whole.fitted.training.append(part.fitted.training)
    assert len(fresh.batch) == 13
    fixed = part.fitted.mean_function
    again = Potential(SOAP(["Au"], 4.0), prior=fixed).fit(images, calibrate=None)
    grown = part.update(images[5:])
    assert np.array_equal(grown.fitted.regression.y, again.fitted.regression.y)


def test_structures_on_which_the_model_fails() -> None:
    images = [gold_cluster(6, 1), Atoms("Si2", [(0, 0, 0), (0, 0, 2.3)]), gold_cluster(7, 2)]
    energies, gradients = MEAN(images)
    assert np.isfinite(energies).tolist() == [True, False, True]
    assert "pair-model: NuggetError: the pair model knows copper and gold only" in MEAN.failure
    assert np.isfinite(gradients[2]).all()
    train = [labelled(gold_cluster(6, 1)), Atoms("Si2", [(0, 0, 0), (0, 0, 2.3)])]
    train[1].calc = SinglePointCalculator(train[1], energy=1.0)
    with pytest.raises(NuggetError, match=r"Structure 1 has no energy: .*copper and gold only"):
        Potential(SOAP(["Au", "Si"], 4.0), prior=[SpeciesEnergies(), MEAN]).fit(train, False)


def test_large_batches_are_divided(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(MEAN._handle.model, "atoms_per_call", 20)
    images = [gold_cluster(8, seed) for seed in range(200, 205)] + [gold_cluster(30, 1)]
    calls(MEAN)
    MEAN.evaluate(as_batch(images))
    assert calls(MEAN) == [2, 2, 1, 1]


def test_the_weight_multiplies_everything() -> None:
    batch = as_batch([alloy_slab(), gold_cluster(5, 2)])
    one, half = MEAN.evaluate(batch), MEAN.scaled(0.5).evaluate(batch)
    for name in ("energies", "gradient", "strain"):
        np.testing.assert_allclose(getattr(half, name), 0.5 * getattr(one, name))


def test_other_weights_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "au.model"
    mean = SumMeanFunction((SpeciesEnergies(), FoundationMean("pair-model", (("depth", 0.2),))))
    potential = Potential(SOAP(["Au"], 4.0), prior=mean).fit(clusters(6))
    potential.save(file)
    image = [gold_cluster(8, 50)]
    loaded = Potential.load(file)
    assert np.array_equal(loaded.predict(image).energy, potential.predict(image).energy)
    fitted = next(
        part for part in loaded.fitted.mean_function.parts if isinstance(part, FoundationMean)
    )
    assert (fitted.package, fitted.version) == ("nugget_example", "0.1")
    for other in (replace(fitted, version="0.2"), replace(fitted, sha256="1" * 64)):
        with pytest.raises(NuggetError, match=r"was fitted with nugget_example 0.*fit anew"):
            other.evaluate(as_batch(image))


def test_engines_without_batches_are_called_one_by_one() -> None:
    assert engine_mean("emt") == CalculatorMean("emt")
    assert engine_mean("pair-model") == MEAN
    with pytest.raises(NuggetError, match=r"there is no engine 'sevenet'; did you mean 'sevennet'"):
        engine_mean("sevenet")
