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
from ase.calculators.singlepoint import SinglePointCalculator
from ase.cluster import Icosahedron
from ase.constraints import FixCartesian
from ase.io import read, write
from ase.optimize import BFGS
from nugget_example.engine import PairModel
from test_onthefly_pages import dynamics, path  # noqa: F401  fixtures

from nugget import RBF, SOAP, LabelNoise, Potential
from nugget.calibration import Residuals
from nugget.campaign.campaign import Campaign
from nugget.engines.batched import BatchedCalculator
from nugget.engines.engine_settings import EngineConfig
from nugget.errors import NuggetError
from nugget.onthefly.molecular_dynamics import MDRun
from nugget.onthefly.run_directory import read_outcomes
from nugget.onthefly.run_settings import MDConfig, SaddleConfig
from nugget.onthefly.saddle_run import SaddleRun
from nugget.report.digest import rounded
from nugget.report.onthefly_runs import read_dynamics, read_path
from nugget.report.run_verdicts import campaign_verdict, md_verdict, model_verdict, path_verdict
from nugget.report.saddle_page import read_saddle, saddle_verdict
from nugget.report.search_verdict import read_search_verdict
from nugget.report.verdict import Level, Verdict
from nugget.search import Search, make_config
from nugget.search.store import Store
from nugget.structures.geometry import free_mask

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
    assert "no estimate of confidence, because" in verdict.text
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


# --------------------------------------------------------------------------- saddles


def hop() -> tuple[float, float]:
    """The barriers across a bridge and across an atom of Al(100), by symmetry and an optimiser."""
    from finished_runs import hop_start

    heights = []
    for x, y in ((0.0, 0.0), (0.25, 0.0), (0.25, 0.25)):
        atoms = hop_start()
        atoms.positions[-1] += [x * atoms.cell[0, 0], y * atoms.cell[1, 1], 0.5]
        atoms.set_constraint(
            [*atoms.constraints, FixCartesian(len(atoms) - 1, (True, True, False))]
        )
        atoms.calc = EMT()
        BFGS(atoms, logfile=None).run(0.002, 300)
        heights.append(float(atoms.get_potential_energy()))
    return heights[1] - heights[0], heights[2] - heights[0]


def test_saddle(tmp_path):
    from finished_runs import saddle

    run = saddle(tmp_path / "run", "--connect", "--check-modes")
    barrier, _ = hop()
    assert run.json["barriers"] == pytest.approx([barrier, barrier], abs=5e-3)
    there, back = (f"{value:.3f}" for value in run.json["barriers"])
    assert f"The barriers are {there} and {back} eV" in run.said
    assert "exactly one negative mode" in run.said
    assert "by the engine" in run.said
    assert set(run.levels.values()) == {"good"}
    assert run.levels["negative modes"] == "good"
    assert negative_modes(read(tmp_path / "run" / "saddle.extxyz", "1")) == 1


def test_saddle_that_is_not_found(tmp_path):
    from finished_runs import saddle

    run = saddle(tmp_path / "run", "--max-calls", 2, shift=(0.1, 0.06), code=1)
    assert run.said.startswith("No saddle was found in 2 evaluations")
    assert run.levels["converged"] == "bad"
    assert run.levels["largest force"] == "bad"
    assert "barriers" not in run.said


@pytest.mark.slow
def test_search_from_a_saddle_of_second_order(tmp_path):
    """Above an atom two modes are negative, so that this point must not be reported."""
    from finished_runs import saddle

    run = saddle(tmp_path / "run", "--connect", shift=(0.25, 0.25), height=0.4, code=None)
    barrier, top = hop()
    assert top > barrier + 0.1
    if run.json["converged"]:
        assert run.json["barriers"] == pytest.approx([barrier, barrier], abs=5e-3)
        assert run.levels["negative modes"] == "good"
    else:
        assert run.levels["converged"] == "bad"
        assert run.said.startswith("No saddle was found")


def test_saddle_with_failures(tmp_path, own_engines):
    from finished_runs import hop_start

    start = hop_start()
    start.positions[-1, 0] += 0.19 * start.cell[0, 0]
    while int(1e4 * abs(start.positions).sum()) % 3 == 0:  # the start itself must not fail
        start.positions[-1, 0] += 0.002
    engine = EngineConfig(name="sometimes_engine:third")
    SaddleRun.create(start, SaddleConfig(engine=engine, max_calls=20), tmp_path / "run").run()
    verdict = saddle_verdict(read_saddle(tmp_path / "run"))
    outcomes = read_outcomes(tmp_path / "run" / "calls.jsonl")
    failed = sum(not one.ok for one in outcomes)
    assert failed
    assert f"{failed} of {len(outcomes)} evaluations failed." in verdict.sentences
    assert verdict.badge("failures").level is (BAD if failed > 0.2 * len(outcomes) else WARNING)


def emt(atoms: Atoms) -> float:
    copy = atoms.copy()
    copy.calc = EMT()
    return float(copy.get_potential_energy())


def negative_modes(atoms: Atoms) -> int:
    """Of the Hessian of EMT by central differences, over free atoms."""
    step, rows = 0.01, []
    free = free_mask(atoms).ravel()
    for k in np.flatnonzero(free):
        forces = []
        for sign in (1, -1):
            moved = Atoms(atoms.symbols, atoms.positions, cell=atoms.cell, pbc=atoms.pbc)
            moved.positions[k // 3, k % 3] += sign * step
            moved.calc = EMT()
            forces.append(moved.get_forces().ravel()[free])
        rows.append((forces[1] - forces[0]) / (2 * step))
    matrix = np.array(rows)
    return int(np.sum(np.linalg.eigvalsh(0.5 * (matrix + matrix.T)) < -0.05))


@pytest.mark.slow
def test_ways_out_of_a_minimum(tmp_path):
    from finished_runs import saddle

    run = saddle(tmp_path / "all", "--explore", 1, shift=(0.0, 0.0))
    lowest = run.json["ways"][0]["barrier"]
    minimum, top = read(tmp_path / "all" / "ways.extxyz", ":2")
    assert lowest == pytest.approx(emt(top) - emt(minimum), abs=1e-4)
    assert lowest < hop()[0] + 5e-3  # the atom may also change places with one of the surface
    assert negative_modes(top) == 1
    assert run.said.startswith(f"The lowest barrier is {lowest:.3f} ±")
    assert set(run.levels.values()) == {"good"}
    short = saddle(tmp_path / "few", "--explore", 3, "--max-calls", 12, shift=(0, 0), code=1)
    assert len(short.json["ways"]) < 3
    assert f"Only {len(short.json['ways'])} of the 3 ways asked for were found." in short.said
    assert "a lower way may be missing" in short.said
    assert short.levels["complete"] == "warning"
    assert short.levels["ways out"] in ("warning", "bad")


# --------------------------------------------------------------------------- models and engines


def alone(images: list[Atoms], engine: Any) -> float:
    """The error of an engine after a fit of one energy per element, eV/atom."""
    labels = np.array([atoms.get_potential_energy() for atoms in images])
    values = []
    for atoms in images:
        copy = atoms.copy()
        copy.calc = engine
        values.append(copy.get_potential_energy())
    sizes = np.array([len(atoms) for atoms in images])
    shift = np.linalg.lstsq(np.ones((len(images), 1)), (labels - values) / sizes, rcond=None)[0]
    return float(np.abs((labels - values) / sizes - shift).mean())


def test_engine_that_made_the_labels(tmp_path):
    from finished_runs import judge

    run = judge(tmp_path / "run", labelled(16, 0.1, 0), "emt")
    assert run.said.startswith("emt is wrong by 0 ± 0 meV/atom and 0 eV/Å on these 16 structures.")
    assert run.levels["emt alone"] == run.levels["best model"] == "good"
    assert "The best model uses emt with weight 1" in run.said


@pytest.mark.parametrize(("depth", "level"), [(0.4, None), (20.0, BAD)])
def test_engine_that_is_wrong(tmp_path, depth, level):
    from finished_runs import judge

    images = labelled(16, 0.1, 0)
    run = judge(tmp_path / "run", images, "pair-model", "--option", f"depth={depth}")
    error = alone(images, BatchedCalculator(PairModel(depth)))
    assert run.json["alone"]["energy"] == pytest.approx(error, rel=1e-3)
    assert run.said.startswith(f"pair-model is wrong by {rounded(1e3 * error, 3)} ± ")
    if level is not None:
        assert run.levels["pair-model alone"] == level
        assert "The model is better without pair-model." in run.said
        assert "--mean" not in run.verdict["uses"][0]["command"]


def test_labels_with_noise(tmp_path):
    """The engine is right; no model can be better than the noise, which the engine shows."""
    from finished_runs import judge

    rng, images = np.random.default_rng(5), labelled(24, 0.1, 0)
    for atoms in images:
        noisy = 4 * rng.normal(0, 0.06) + atoms.get_potential_energy()
        atoms.calc = SinglePointCalculator(atoms, energy=noisy)
    run = judge(tmp_path / "run", images, "emt")
    error = alone(images, EMT())
    assert 0.03 < error < 0.1
    assert run.levels["emt alone"] == "warning"
    assert run.said.startswith(f"emt is wrong by {rounded(1e3 * error, 3)} ± ")


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
