"""Bad labels: eleven kinds, each with the message that the user of `nugget fit` sees."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from typer.testing import CliRunner

from nugget import Potential
from nugget.cli.main import app
from nugget.potential.fitting import with_label_rows
from nugget.structures.io import write_images

NUMBER = 24
SMALL = ("--preset", "quick", "--points", "150")
HARTREE = 27.211386


def crystal(seed: int) -> Atoms:
    """Rattled and strained copper of eight atoms, with EMT labels on a large constant."""
    rng = np.random.default_rng(seed)
    atoms = bulk("Cu", "fcc", 3.61) * (2, 2, 2)
    strain = np.eye(3) + 0.015 * rng.normal(size=(3, 3))
    atoms.set_cell(atoms.cell.array @ strain, scale_atoms=True)
    atoms.positions += 0.1 * rng.normal(size=atoms.positions.shape)
    atoms.info["group"] = "hot" if seed % 3 == 0 else "cold"
    return atoms


def labels(atoms: Atoms) -> dict:
    work = atoms.copy()
    work.calc = EMT()
    energy = work.get_potential_energy() - 40.0 * len(atoms)
    return {"energy": energy, "forces": work.get_forces(), "stress": work.get_stress()}


@pytest.fixture(scope="module")
def good() -> list[tuple[Atoms, dict]]:
    images = [crystal(seed) for seed in range(NUMBER)]
    return [(atoms, labels(atoms)) for atoms in images]


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def labelled(good: list, change=lambda s, results: None) -> list[Atoms]:
    """Copies whose results `change(index, results)` may spoil."""
    out = []
    for s, (atoms, results) in enumerate(good):
        copy = atoms.copy()
        own = {name: np.copy(value) for name, value in results.items()}
        own["energy"] = float(own["energy"])
        change(s, own)
        copy.calc = SinglePointCalculator(copy, **own)
        out.append(copy)
    return out


def fit(images: list[Atoms], *options: object, code: int = 0):
    write_images("data.extxyz", images)
    arguments = ["fit", "data.extxyz", "-o", "m.model", "--force", *SMALL, *map(str, options)]
    result = CliRunner().invoke(app, arguments)
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def said(result) -> str:
    """Everything printed, without line breaks."""
    return " ".join((result.stdout + " " + result.stderr).split())


def test_good_labels_are_not_named(good):
    text = said(fit(labelled(good), "--stress"))
    assert "Largest leave-one-out residuals" in text
    for word in ("contradict", "sum to zero", "are equal", "far from what", "probably"):
        assert word not in text


def test_swapped_energies_are_named(good):
    images = labelled(good)
    first, second = images[2].calc.results, images[11].calc.results
    first["energy"], second["energy"] = second["energy"], first["energy"]
    text = said(fit(images))
    warning = text[text.index("far from what the others suggest") :]
    assert "2 (z = " in warning
    assert "11 (z = " in warning


def test_forces_of_the_opposite_sign(good):
    def flip(s, results):
        results["forces"] *= -1

    text = said(fit(labelled(good, flip), code=2))
    assert "The forces contradict the energies" in text
    assert "opposite sign" in text
    assert not Path("m.model").exists()
    assert "The forces contradict the energies" in said(fit(labelled(good, flip), "--anyway"))
    assert Path("m.model").exists()


@pytest.mark.parametrize(
    ("unit", "size"), [("Hartree/Bohr", 51.4221), ("eV/Bohr", 1.88973), ("kcal/mol/Å", 0.0433641)]
)
def test_forces_in_another_unit(good, unit, size):
    def convert(s, results):
        results["forces"] /= size

    text = said(fit(labelled(good, convert), code=2))
    assert f"They have another unit than eV/Å, probably {unit}" in text


def test_one_energy_in_hartree(good):
    def convert(s, results):
        if s == 7:
            results["energy"] /= HARTREE

    text = said(fit(labelled(good, convert), code=2))
    assert "The energy of structure 7 is" in text
    assert "probably in Hartree" in text
    assert "The same holds" not in text


def test_energies_per_atom(good):
    larger = [(atoms * (1, 1, 2), {**results, "energy": 2 * results["energy"]})
              for atoms, results in good[:6]]  # fmt: skip
    images = labelled([*good, *[(a, {"energy": r["energy"]}) for a, r in larger]])
    text = said(fit(images))
    assert "do not grow" not in text
    for atoms in images:
        atoms.calc.results["energy"] /= len(atoms)
    text = said(fit(images, code=2))
    assert "The energies do not grow with the number of atoms" in text


def test_duplicates_with_different_labels(good):
    images = labelled([*good, good[3]])
    images[-1].calc.results["energy"] += 0.4
    text = said(fit(images))
    assert "Structures 3 and 24 are equal, but their energies differ by 50 meV/atom" in text


def test_net_force(good):
    def push(s, results):
        if s == 5:
            results["forces"][:, 2] += 0.4

    text = said(fit(labelled(good, push)))
    assert "Structure 5: the forces do not sum to zero (3.2 eV/Å)" in text


def test_virial_as_stress(good):
    images = labelled(good)
    for atoms in images:
        atoms.info["dft_virial"] = -atoms.calc.results.pop("stress") * atoms.get_volume()
    text = said(fit(images, "--stress-key", "dft_virial", code=2))
    assert "--virial-key" in text
    fit(images, "--virial-key", "dft_virial")
    training = Potential.load("m.model").fitted.training
    for s, (_, results) in enumerate(good):
        np.testing.assert_allclose(training.stress[s], results["stress"], atol=1e-8)


def test_stress_of_the_opposite_sign(good):
    def flip(s, results):
        results["stress"] *= -1

    text = said(fit(labelled(good, flip), "--stress", code=2))
    assert "The stress contradicts the other labels" in text


def test_some_structures_without_stress(good):
    def drop(s, results):
        if s % 2:
            del results["stress"]

    fit(labelled(good, drop), "--stress")
    training = Potential.load("m.model").fitted.training
    assert training.has_stress.sum() == NUMBER / 2
    none = labelled(good, lambda s, results: results.pop("stress"))
    assert "has no stress, nor has any other" in said(fit(none, "--stress", code=2))


def test_forces_under_another_name(good):
    images = labelled(good)
    for atoms in images:
        atoms.info["dft_energy"] = atoms.calc.results["energy"]
        atoms.arrays["dft_forces"] = 1.01 * atoms.calc.results["forces"]
    text = said(fit(images, "--energy-key", "dft_energy", code=2))
    assert "forces under several names ('forces', 'dft_forces')" in text
    for atoms in images:
        atoms.calc = None
    text = said(fit(images, "--energy-key", "dft_energy"))
    assert "DATA holds forces too ('dft_forces')" in text


def test_labels_that_are_no_numbers(good):
    def spoil(s, results):
        if s == 2:
            results["forces"][0, 0] = np.nan

    text = said(fit(labelled(good, spoil), code=2))
    assert "Structure 2: the forces label is not finite" in text


def test_noise_of_an_unknown_group(good):
    text = said(fit(labelled(good), "--noise-by", "group=liquid:0.1", code=2))
    assert "No structure has group=liquid; there is cold, hot." in text
    text = said(fit(labelled(good), "--noise-by", "group=hot:wide", code=2))
    assert "is no group with its noise" in text


# --------------------------------------------------------------------------- data options


def test_noise_by_group_and_weights(good):
    images = labelled(good)
    for s, atoms in enumerate(images):
        atoms.info["config_weight"] = 4.0 if s == 1 else 1.0
    fit(images, "--noise-by", "group=hot:0.02:0.3", "--weight-key", "config_weight")
    potential = Potential.load("m.model")
    regression, training = potential.fitted.regression, potential.fitted.training
    size = 1 + 3 * 8
    level = regression.noise.reshape(NUMBER, size)
    np.testing.assert_allclose(level[0, 0], 0.02 * np.sqrt(8))
    np.testing.assert_allclose(level[0, 1:], 0.3)
    np.testing.assert_allclose(level[2, 0], potential.noise * np.sqrt(8))
    np.testing.assert_allclose(level[1], level[2] / 2)  # a weight of 4 halves the noise
    # The levels survive the model file: label rows that are computed again have them too.
    again = potential.noise_levels
    np.testing.assert_allclose(training.noise_levels(again)[0, :2], [0.02, 0.3])
    np.testing.assert_allclose(training.noise_levels(again)[1, 0], potential.noise / 2)


def test_isolated_atoms_are_recognised_and_exact(good):
    atom = Atoms("Cu", [(0, 0, 0)])
    atom.calc = SinglePointCalculator(atom, energy=-36.49, forces=np.zeros((1, 3)))
    fit([*labelled(good), atom])
    potential = Potential.load("m.model")
    assert potential.predict([atom]).energy[0] == pytest.approx(-36.49, abs=2e-3)
    assert potential.fitted.mean_function.parts[-1].energies == (("Cu", -36.49),)
    for given in ("Cu:-36.49", "e0.json"):
        Path("e0.json").write_text(json.dumps({"Cu": -36.49}))
        fit(labelled(good), "--e0", given)
        mean = Potential.load("m.model").fitted.mean_function
        assert ("Cu", -36.49) in [pair for p in mean.parts for pair in getattr(p, "energies", ())]
    assert "is no element" in said(fit(labelled(good), "--e0", "Xx:1", code=2))


def test_residuals_are_those_of_a_refit(good):
    fit(labelled(good), "--residuals", "r.csv", "--noise", "0.01", "--force-noise", "0.1")
    rows = list(csv.DictReader(Path("r.csv").read_text().splitlines()))
    assert [int(row["index"]) for row in rows] == list(range(NUMBER))
    assert {row["group"] for row in rows} == {"hot", "cold"}
    potential = Potential.load("m.model")
    residuals = potential.leave_one_out()
    images = labelled(good)
    # The same inducing points and mean function, without the labels of structure 6.
    state = potential.fitted
    regression = state.regression
    rest = np.flatnonzero(np.cumsum(regression.kind == 0) - 1 != 6)
    full = with_label_rows(potential.model_parts, state).regression
    b, y = full.whitened[rest], (full.y / full.noise)[rest]
    beta = np.linalg.solve(b.T @ b + np.eye(b.shape[1]), b.T @ y)
    row = np.flatnonzero(regression.kind == 0)[6]
    predicted = full.noise[row] * (full.whitened[row] @ beta)
    expected = (full.y[row] - predicted) / len(images[6])
    assert residuals[6].energy == pytest.approx(expected, rel=1e-4)
    assert float(rows[6]["energy"]) == pytest.approx(expected, rel=1e-4)
    assert ".csv or .json" in said(fit(images, "--residuals", "r.txt", code=2))
