"""Verdicts about runs that were made here, from the first evaluation to the end, with known truth.

The truth is known without the search: an optimiser relaxes the tetrahedron of four gold atoms and
the icosahedron of thirteen. Errors, σ and failures are compared with those in the database.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.cluster import Icosahedron
from ase.io import read, write
from ase.optimize import BFGS
from test_onthefly_pages import dynamics, path  # noqa: F401  fixtures

from nugget import RBF, SOAP, LabelNoise, Potential
from nugget.calibration import Residuals
from nugget.campaign.campaign import Campaign
from nugget.engines.engine_settings import EngineConfig
from nugget.errors import NuggetError
from nugget.onthefly.molecular_dynamics import MDRun
from nugget.onthefly.run_settings import MDConfig
from nugget.report.onthefly_runs import read_dynamics, read_path
from nugget.report.run_verdicts import campaign_verdict, md_verdict, model_verdict, path_verdict
from nugget.report.search_verdict import read_search_verdict
from nugget.report.verdict import Level, Verdict
from nugget.search import Search, make_config
from nugget.search.store import Store

GOOD, WARNING, BAD = Level
HERE = Path(__file__).parent


def configured(formula: str, engine: str = "emt", **sections: Any):
    search = {"budget": 12, "candidates": 4, "relax_steps": 20, "initial": 4, "polish": 1}
    given = dict(sections)
    return make_config(
        {
            "system": {"formula": formula, **given.pop("system", {})},
            "engine": {"name": engine},
            "search": {**search, **given.pop("search", {})},
            **given,
        }
    )


def judged(place: Path, formula: str, engine: str = "emt", **sections: Any) -> Verdict:
    """The verdict about a search that has been run to its end."""
    Search.create(configured(formula, engine, **sections), place).run()
    return read_search_verdict(place)


def minimum(atoms: Atoms) -> float:
    """The energy of a local minimum of EMT by ASE's optimiser."""
    atoms.calc = EMT()
    BFGS(atoms, logfile=None).run(0.01, 200)
    return float(atoms.get_potential_energy())


def tetrahedron() -> Atoms:
    return Atoms("Au4", 0.95 * np.array([[1, 1, 1], [1, -1, -1], [-1, 1, -1], [-1, -1, 1]]))


@pytest.mark.parametrize("seed", [0, 1])
def test_right_and_sure(tmp_path, seed):
    verdict = judged(tmp_path / "run", "Au4", search={"budget": 14, "seed": seed})
    truth = minimum(tetrahedron())
    assert "(Td) has an energy of" in verdict.text
    found = read(tmp_path / "run" / "best.extxyz").get_potential_energy()
    assert found == pytest.approx(truth, abs=2e-3)
    assert f"{found:.4f} eV" in verdict.text
    assert verdict.badge("confidence").level is GOOD
    assert verdict.badge("fmax").level is GOOD
    assert "Confidence is high" in verdict.text
    z = [
        (r.energy - r.predicted) / (r.scale * r.std)
        for r in Store(tmp_path / "run").records()
        if r.ok and r.predicted is not None
    ]
    assert verdict.badge("error/σ").value == f"{np.sqrt(np.mean(np.square(z))):.2f}"


def test_wrong_and_known_to_be(tmp_path):
    """Five random candidates do not find the icosahedron, which is the reference."""
    reference = Icosahedron("Au", 2)
    reference.set_cell(None)
    truth = minimum(reference)
    write(tmp_path / "known.extxyz", reference)
    settings = {
        "budget": 5, "polish": 0, "generators": {"random_cluster": 1.0}, "walkers": 0,
        "reference": str(tmp_path / "known.extxyz"),
    }  # fmt: skip
    verdict = judged(tmp_path / "run", "Au13", search=settings)
    assert read(tmp_path / "run" / "best.extxyz").get_potential_energy() > truth + 0.05
    assert verdict.badge("reference").level is BAD
    assert "The reference structure was not found." in verdict.sentences
    assert verdict.level is BAD


def test_reference_found(tmp_path):
    atoms = tetrahedron()
    minimum(atoms)
    write(tmp_path / "known.extxyz", atoms)
    settings = {"budget": 14, "reference": str(tmp_path / "known.extxyz")}
    verdict = judged(tmp_path / "run", "Au4", search=settings)
    assert verdict.badge("reference").level is GOOD
    assert "The reference structure was found." in verdict.sentences


def test_uncertain(tmp_path):
    verdict = judged(tmp_path / "run", "Au9", search={"budget": 5})
    assert verdict.badge("confidence").level is BAD
    assert "no independent candidate reached it again" in verdict.text
    assert "σ cannot be judged from 1 prediction." in verdict.sentences


def test_not_relaxed(tmp_path):
    verdict = judged(tmp_path / "run", "Au4", search={"budget": 8, "polish": 0})
    assert "It was not relaxed with the engine" in verdict.text


@pytest.mark.parametrize(
    ("levels", "words"),
    [
        ({"label": 1e-6, "prior": 1e-6}, "times too small."),
        ({"label": 1.0, "prior": 5.0}, "times too large."),
    ],
)
def test_broken_error_bars(tmp_path, levels, words):
    """σ is set far too small or too large by the first rules, which do not calibrate it."""
    model = {"uncertainty": "label_noise", "uncertainty_options": levels}
    verdict = judged(tmp_path / "run", "Au5", model=model, search={"calibrate": False, "rules": 0})
    assert verdict.badge("error/σ").level is BAD
    assert any(text.startswith("σ is") and text.endswith(words) for text in verdict.sentences)
    assert verdict.level is BAD


@pytest.fixture
def own_engines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(HERE))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))


def test_failures(tmp_path, own_engines):
    verdict = judged(tmp_path / "run", "Au5", "sometimes_engine:third", search={"polish": 0})
    failed = sum(not record.ok for record in Store(tmp_path / "run").records())
    assert failed
    total = len(Store(tmp_path / "run").records())
    assert f"{failed} of {total} evaluations failed." in verdict.sentences
    assert verdict.badge("failures").value == f"{failed} of {total}"
    assert verdict.badge("failures").level is (BAD if failed > 0.2 * total else WARNING)


def test_nothing_succeeds(tmp_path, own_engines):
    search = Search.create(configured("Au5", "sometimes_engine:always"), tmp_path / "run")
    with pytest.raises(NuggetError, match="failed 10 times in a row"):
        search.run()
    verdict = read_search_verdict(tmp_path / "run")
    assert verdict.sentences[0] == "No evaluation has succeeded."
    assert verdict.badge("failures").level is BAD
    assert verdict.badge("end").level is BAD
    assert "The search failed" in verdict.text


def test_interrupted(tmp_path):
    search = Search.create(configured("Au5"), tmp_path / "run")
    search.run(lambda status: search.stop() if status.evaluations >= 3 else None)
    verdict = read_search_verdict(tmp_path / "run")
    assert verdict.badge("end").level is WARNING
    assert "The search was interrupted before its end." in verdict.sentences


def test_slab_with_fixed_atoms(tmp_path):
    from finished_runs import slab

    run = slab(tmp_path / "run")
    assert run.levels["fmax"] == "good"
    assert "not converged" not in run.said
    assert "not relaxed" not in run.said


@pytest.mark.slow
@pytest.mark.parametrize("polish", [3, 0])
def test_hull(tmp_path, polish):
    from finished_runs import hull

    run = hull(tmp_path / "run", polish)
    stable = [phase["formula"] for phase in run.json["phases"] if phase["stable"]]
    if polish:
        assert run.said.startswith(f"The stable phases are {', '.join(stable[:-1])} and")
        assert run.levels["relaxed on the hull"] == "good"
    else:
        assert run.levels["relaxed on the hull"] == "bad"
        assert "relaxed" in run.said


def test_dynamics(dynamics):  # noqa: F811
    verdict = md_verdict(read_dynamics(dynamics))
    assert verdict.badge("failures").level is GOOD
    assert "audit" in verdict.text
    assert "not finished" not in verdict.text


def test_dynamics_that_were_stopped(tmp_path):
    engine = EngineConfig(name="emt")
    config = MDConfig(engine=engine, steps=100, every=5, preset="quick", seed=3, displaced=4)
    run = MDRun.create(bulk("Cu", cubic=True), config, tmp_path / "md")
    run.run(lambda progress: run.stop() if progress.step >= 20 else None)
    verdict = md_verdict(read_dynamics(tmp_path / "md"))
    assert verdict.badge("steps").value == "20 of 100"
    assert verdict.badge("steps").level is WARNING
    assert "The run has not finished: 20 of 100 steps." in verdict.sentences
    assert "σ was not tested at random steps." in verdict.sentences


def test_reaction_path(path):  # noqa: F811
    """A hop between equal sites has the same barrier in both directions."""
    directory, result = path
    verdict = path_verdict(read_path(directory))
    assert verdict.badge("converged").level is (GOOD if result.converged else BAD)
    barrier = f"{result.barrier:.3f}"
    assert f"The barrier is {barrier} ±" in verdict.text
    assert f", {barrier} eV in reverse" in verdict.text


@pytest.mark.slow
def test_campaigns(tmp_path):
    """One campaign whose searches reach the reference, and one without a reference."""
    from finished_runs import campaign

    atoms = tetrahedron()
    minimum(atoms)
    write(tmp_path / "known.extxyz", atoms)
    found = campaign(tmp_path / "a", "--reference", tmp_path / "known.extxyz", "--set",
                     "search.budget=14")  # fmt: skip
    rows = Campaign.resume(tmp_path / "a", trust=True).collect()
    hits = sum(bool(row.outcome.found) for row in rows)
    assert found.said.startswith(f"{hits} of 2 searches found the reference")
    blind = campaign(tmp_path / "b")
    assert "No reference was given" in blind.said
    verdict = campaign_verdict(Campaign.resume(tmp_path / "b", trust=True), [], "eV")
    assert "2 of 2 searches have not finished." in verdict.sentences


def labelled(count: int, spread: float, seed: int) -> list[Atoms]:
    rng, images = np.random.default_rng(seed), []
    for _ in range(count):
        atoms = bulk("Cu", cubic=True)
        atoms.positions += rng.normal(0, spread, (4, 3))
        atoms.calc = EMT()
        atoms.get_forces()
        images.append(atoms)
    return images


@pytest.mark.parametrize(
    ("spread", "std", "badge", "level"),
    [
        (0.1, None, "relative error", GOOD),
        (0.1, 1e-7, "error/σ", BAD),  # σ far too small
        (0.1, 10.0, "error/σ", BAD),  # σ far too large
        (0.6, None, "relative error", BAD),  # structures unlike those of the training set
    ],
)
def test_models(spread, std, badge, level):
    noise = None if std is None else LabelNoise(std, std, std)
    options = {} if noise is None else {"uncertainty": noise}
    potential = Potential(SOAP(("Cu",), 4.0), RBF(20.0), seed=1, **options)
    potential.fit(labelled(20, 0.1, 0))
    test = labelled(20, spread, 7)
    prediction = potential.predict(test, forces=False)
    true = np.array([atoms.get_potential_energy() for atoms in test]) / 4
    sizes = np.full(len(test), 4)
    found = Residuals(
        true, prediction.energy / 4, prediction.energy_uncertainty / 4, sizes
    )  # fmt: skip
    verdict = model_verdict("cu.model", "test.extxyz", found, {})
    error = np.abs(found.y_pred - found.y_true).mean()
    assert f"{1e3 * error:.3g} meV/atom on average" in verdict.text
    assert verdict.badge(badge).level is level
