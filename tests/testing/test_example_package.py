"""A package of another author: its parts are fitted, saved, loaded and used in a search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from systems import gold_cluster

from nugget import Potential, registry
from nugget.potential.gradient_check import check_gradients
from nugget.search import Search, make_config

PARTS = {
    "kernel": "Matern52",
    "descriptor": "RadialShells",
    "uncertainty": "Distance",
    "prior": "springs",
    "acquisition": "greedy-after",
    "generator": "swing",
}
SETTINGS = {
    "system": {"formula": "Au6"},
    "engine": {"name": "emt"},
    "model": {
        "descriptor": "RadialShells",
        "descriptor_options": {"shells": 5},
        "cutoff": 5.5,
        "kernel": "Matern52",
        "length_scale": 3.0,
        "uncertainty": "Distance",
        "uncertainty_options": {"level": 0.3},
        "baseline": "springs",
        "use_forces": True,
    },
    "search": {
        "budget": 8,
        "initial": 4,
        "candidates": 4,
        "relax_steps": 30,
        "acquisition": "greedy-after",
        "generators": {"random_cluster": 1.0, "swing": 2.0},
        "generator_options": {"swing": {"largest": 1.0}},
    },
}


@pytest.mark.parametrize(("kind", "name"), PARTS.items())
def test_entry_points_are_found(kind: str, name: str) -> None:
    assert name in registry.names(kind)
    assert registry.find(kind, name).__module__.startswith("nugget_example.")


def labelled(n: int, seed: int):
    atoms = gold_cluster(n, seed)
    atoms.calc = EMT()
    results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def test_fitted_with_forces_saved_and_loaded(tmp_path: Path) -> None:
    images = [labelled(7, seed) for seed in range(8)]
    potential = Potential(
        registry.make("descriptor", "RadialShells", species=("Au",)),
        registry.make("kernel", "Matern52", length_scale=3.0),
        uncertainty=registry.make("uncertainty", "Distance"),
        prior=[registry.make("prior", "species"), registry.make("prior", "springs")],
    ).fit(images[:6], use_forces=True)
    for check in check_gradients(potential, images[6:]):
        assert check.passed, check
    potential.save(tmp_path / "model")
    again = Potential.load(tmp_path / "model").update(images[6:7])
    potential.update(images[6:7])
    ours, theirs = (p.predict(images[7:], forces_uncertainty=True) for p in (potential, again))
    for name in ("energy", "energy_uncertainty", "forces", "forces_uncertainty"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_search_with_all_of_them(tmp_path: Path) -> None:
    result = Search.create(make_config(SETTINGS), tmp_path / "run").run()
    assert result.evaluations == 8
    assert result.failures == 0
    made = {record.generator for record in Search.resume(tmp_path / "run").store.records()}
    assert "swing" in made
    assert Search.replay(tmp_path / "run").same
