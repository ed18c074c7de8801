"""The page of `nugget evaluate` shows the numbers of the model on these structures."""

from __future__ import annotations

import numpy as np
import pytest
from ase.build import bulk, fcc111
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from page_spec import parts_of, per_atom, spec_of, titled, values_of
from typer.testing import CliRunner

import nugget.report.evaluation_page as rows_module
from nugget import SOAP, Posterior, Potential
from nugget.calibration import components, residuals
from nugget.cli.main import app
from nugget.potential.validation import element_errors, grouped_by
from nugget.report.evaluation_page import Evaluation, evaluation_page
from nugget.structures.io import write_images

HOSTILE = "<img src=x onerror=alert(1)>"


def images(number, seed):
    rng = np.random.default_rng(seed)
    made = []
    for k in range(number):
        atoms = fcc111("Cu", (2, 2, 2), vacuum=6.0) if k % 3 == 2 else bulk("Cu", cubic=True)
        atoms.numbers[: k % 3] = 79
        atoms.positions += rng.normal(0, 0.1, atoms.positions.shape)
        atoms.calc = EMT()
        results = {"energy": atoms.get_potential_energy(), "forces": atoms.get_forces()}
        if atoms.pbc.all():
            results["stress"] = atoms.get_stress()
        atoms.calc = SinglePointCalculator(atoms, **results)
        atoms.info["origin"] = HOSTILE if k % 2 else "plain"
        made.append(atoms)
    return made


@pytest.fixture(scope="module")
def found():
    potential = Potential(SOAP(("Cu", "Au"), 4.0), uncertainty=Posterior())
    potential.fit(images(12, 0), use_stress=True)
    test = images(15, 1)
    parts = {kind: components(potential, test, kind) for kind in ("force", "stress")}
    return Evaluation(potential, test, residuals(potential, test), parts, "origin")


def test_numbers(found):
    spec = spec_of(evaluation_page(found, "a model", "nugget evaluate"))
    error = np.abs(found.error)
    cards = {label: value for label, value, _ in spec["sections"][1]["items"]}
    assert cards["energies, MAE"] == f"{1e3 * error.mean():.3g} meV/atom"
    share = [np.mean(error <= k * found.energies.y_std) for k in (1, 2)]
    assert cards["energies within σ, 2σ"] == f"{share[0]:.0%}, {share[1]:.0%}"
    assert np.allclose(values_of(spec, "structures", "true"), found.energies.y_true, atol=1e-5)
    assert np.allclose(values_of(spec, "structures", "std"), found.energies.y_std, atol=1e-5)
    force = found.parts["force"]
    assert np.allclose(values_of(spec, "force", "predicted"), force.y_pred, atol=1e-5)
    assert spec["data"]["force"]["structures"] == force.owner.tolist()
    stress = found.parts["stress"]
    assert set(spec["data"]["stress"]["structures"]) == set(stress.owner.tolist())
    elements = values_of(spec, "force", "element")
    symbols = [s for atoms in found.images for s in atoms.get_chemical_symbols()]
    assert elements[::3] == symbols


def test_the_worst_and_their_atoms(found):
    spec = spec_of(evaluation_page(found, "a model"))
    gallery = titled(spec, "Worst energies")
    order = np.argsort(-np.abs(found.error))[:6]
    assert [item["structure"] for item in gallery["items"]] == order.tolist()
    worst = int(order[0])
    own = found.parts["force"].of([worst])
    length = np.linalg.norm((own.y_pred - own.y_true).reshape(-1, 3), axis=1)
    assert np.allclose(per_atom(spec, worst, "force error"), length, rtol=1e-5)
    local = found.potential.predict(found.images, energies_uncertainty=True).energies_uncertainty
    assert np.allclose(per_atom(spec, worst, "energy σ"), local[worst], rtol=1e-5)
    forces = titled(spec, "Worst forces")
    assert forces["items"][0]["structure"] == int(np.argmax(found.largest_force_errors()))
    assert set(gallery["values"]) == {"force error", "force σ", "energy σ"}


def test_groups(found):
    spec = spec_of(evaluation_page(found, "a model"))
    table = titled(spec, "Errors by element")
    for symbol, atoms, mae, *_ in table["rows"]:
        one = element_errors(found.images, found.parts["force"])[symbol]
        assert atoms == one["atoms"]
        assert mae == pytest.approx(one["mae"], rel=1e-2)
    kinds = {row[0]: row[1] for row in titled(spec, "Errors by kind of structure")["rows"]}
    assert kinds == {"bulk": 10, "slab": 5}
    own = titled(spec, "Errors by origin")
    assert {row[0] for row in own["rows"]} == {HOSTILE, "plain"}
    for name, members in grouped_by(found.images, "formula").items():
        row = next(r for r in titled(spec, "Errors by composition")["rows"] if r[0] == name)
        mae = 1e3 * np.abs(found.error[members]).mean()
        assert row[1:3] == [len(members), pytest.approx(mae, abs=0.01)]


def test_large_sets_are_cut(found, monkeypatch):
    monkeypatch.setattr(rows_module, "POINTS", 12)
    monkeypatch.setattr(rows_module, "_ATOMS", 40)
    monkeypatch.setattr(rows_module, "_WORST", 2)
    spec = spec_of(evaluation_page(found, "a model"))
    worst = np.argsort(-np.abs(found.error))[:2]
    assert len(values_of(spec, "structures", "true")) == 12
    assert set(worst.tolist()) <= set(values_of(spec, "structures", "number"))
    shown = spec["data"]["structures"]["structures"]
    assert None in shown
    assert len(spec["structures"]["frames"]) == len(shown) - shown.count(None)


def test_energies_alone(found):
    alone = Evaluation(found.potential, found.images, found.energies, {})
    spec = spec_of(evaluation_page(alone, HOSTILE))
    assert all(part.get("title") != "Worst forces" for part in parts_of(spec))
    assert list(spec["data"]) == ["structures"]


def test_command(found, tmp_path):
    model, data, out = tmp_path / "m.model", tmp_path / "d.extxyz", tmp_path / "page.html"
    found.potential.save(model)
    write_images(data, found.images)
    words = ["evaluate", str(model), str(data), "--html", str(out), "--resamples", "0"]
    assert CliRunner().invoke(app, words).exit_code == 0
    spec = spec_of(out.read_text())
    assert spec["title"] == "Model m.model"
    assert f"--html {out}" in titled(spec, "Command")["text"]
    again = CliRunner().invoke(app, words)
    assert again.exit_code != 0
    assert CliRunner().invoke(app, [*words, "--force", "--json"]).exit_code == 0
