"""A package of another author: its parts are fitted, saved, loaded and used in a search."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster
from typer.testing import CliRunner

from nugget import Potential, registry
from nugget.cli.main import app
from nugget.potential.gradient_check import check_gradients
from nugget.search import Search, make_config
from nugget.structures.io import write_images

PARTS = [
    ("kernel", "Matern52"),
    ("kernel", "GAP"),
    ("descriptor", "RadialShells"),
    ("descriptor", "gap-features"),
    ("uncertainty", "Distance"),
    ("prior", "springs"),
    ("acquisition", "greedy-after"),
    ("generator", "swing"),
]
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


# A GAP-like surrogate: SOAP of unit length, dot product to the power ζ, plus pairs.
GAP_MODEL = {
    "descriptor": "gap-features",
    "descriptor_options": {"shells": 5},
    "cutoff": 5.5,
    "kernel": "GAP",
    "kernel_options": {"zeta": 4, "many_body": 10.0, "pair": 1.0, "pair_features": 5},
    "uncertainty": "ProjectedProcess",
    "use_forces": True,
}
GAP_SETTINGS = {
    **{name: SETTINGS[name] for name in ("system", "engine")},
    "model": GAP_MODEL,
    "search": {"budget": 8, "initial": 4, "candidates": 4, "relax_steps": 30},
}


@pytest.mark.parametrize(("kind", "name"), PARTS)
def test_entry_points_are_found(kind: str, name: str) -> None:
    assert name in registry.names(kind)
    assert registry.find(kind, name).__module__.startswith("nugget_example.")


def labelled(n: int, seed: int):
    atoms = gold_cluster(n, seed)
    atoms.calc = EMT()
    results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


def example_potential() -> Potential:
    return Potential(
        registry.make("descriptor", "RadialShells", species=("Au",)),
        registry.make("kernel", "Matern52", length_scale=3.0),
        uncertainty=registry.make("uncertainty", "Distance"),
        prior=[registry.make("prior", "species"), registry.make("prior", "springs")],
    )


def gap_potential(uncertainty: str) -> Potential:
    return Potential(
        registry.make("descriptor", "gap-features", species=("Au",)),
        registry.make("kernel", "GAP", many_body=10.0, pair=1.0),
        uncertainty=registry.make("uncertainty", uncertainty),
    )


@pytest.mark.parametrize(
    "potential",
    [
        pytest.param(example_potential(), id="example"),
        pytest.param(gap_potential("ProjectedProcess"), id="gap-projected"),
        pytest.param(gap_potential("LabelNoise"), id="gap-label-noise"),
    ],
)
def test_fitted_with_forces_saved_and_loaded(potential: Potential, tmp_path: Path) -> None:
    images = [labelled(7, seed) for seed in range(8)]
    potential.fit(images[:6], use_forces=True)
    for check in check_gradients(potential, images[6:]):
        assert check.passed, check
    potential.save(tmp_path / "model")
    again = Potential.load(tmp_path / "model").update(images[6:7])
    potential.update(images[6:7])
    ours, theirs = (p.predict(images[7:], forces_uncertainty=True) for p in (potential, again))
    for name in ("energy", "energy_uncertainty", "forces", "forces_uncertainty"):
        np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))


def test_gap_learns_forces() -> None:
    """Forces of the training set are reproduced, and those of others are better than none."""
    images = [labelled(7, seed) for seed in range(12)]
    potential = gap_potential("ProjectedProcess").fit(images[:10], use_forces=True)
    for some, share in ((images[:10], 0.3), (images[10:], 0.7)):
        true = np.concatenate([atoms.get_forces() for atoms in some])
        error = np.concatenate(potential.predict(some).forces) - true
        assert np.sqrt(np.mean(error**2)) < share * np.sqrt(np.mean(true**2))


def test_search_with_gap(tmp_path: Path) -> None:
    result = Search.create(make_config(GAP_SETTINGS), tmp_path / "run").run()
    assert (result.evaluations, result.failures) == (8, 0)
    assert Search.replay(tmp_path / "run").same


def test_search_with_all_of_them(tmp_path: Path) -> None:
    result = Search.create(make_config(SETTINGS), tmp_path / "run").run()
    assert result.evaluations == 8
    assert result.failures == 0
    made = {record.generator for record in Search.resume(tmp_path / "run").store.records()}
    assert "swing" in made
    assert Search.replay(tmp_path / "run").same


def test_fit_takes_parts_of_other_packages_by_name(tmp_path: Path) -> None:
    """`nugget fit` selects plug-in parts as it selects built-in ones."""
    write_images(tmp_path / "train.extxyz", [labelled(6, s) for s in range(8)])
    command = [
        "fit", str(tmp_path / "train.extxyz"), "-o", str(tmp_path / "a.model"), "--json",
        "--descriptor", "RadialShells", "--descriptor-option", "shells=5", "--cutoff", "5.5",
        "--kernel", "matern52", "--uncertainty", "Distance", "--uncertainty-option", "level=0.3",
        "--prior", "species", "--prior", "springs", "--noise", "0.01", "--force-noise", "0.1",
    ]  # fmt: skip
    result = CliRunner().invoke(app, command)
    assert result.exit_code == 0, result.output
    potential = Potential.load(tmp_path / "a.model")
    names = [type(part).__name__ for part in (potential.descriptor, potential.kernel)]
    assert names == ["RadialShells", "Matern52"]
    assert potential.descriptor.cutoff == 5.5
    assert potential.uncertainty.level == 0.3
    assert [part.name for part in potential.prior.parts] == ["species", "springs"]
