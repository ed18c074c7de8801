"""Verdicts about runs whose truth is known: right, wrong, uncertain, with broken σ or failures."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from page_spec import spec_of
from report_runs import labelled, relaxed, with_results

from nugget.campaign.results import Outcome, Row
from nugget.report.onthefly_runs import Dynamics, ReactionPath
from nugget.report.run_verdicts import campaign_verdict, md_verdict, model_verdict, path_verdict
from nugget.report.search_page import SearchPage
from nugget.report.search_verdict import read_search_verdict
from nugget.report.verdict import Level, Verdict
from nugget.search.record import Check, CheckKind, End, PolishStep, Record
from nugget.search.search_settings import make_config
from nugget.search.stop import short_key
from nugget.search.store import Store

GOOD, WARNING, BAD = Level


def a_search(
    directory: Path, *, z: float = 1.0, met: int = 0, lower: int = 0, failed: int = 0,
    polish: Atoms | None = None, best_at: int = 1, count: int = 12, end: str = "finished",
    error: float = 0.06, reference: bool = False,
) -> Store:  # fmt: skip
    """Evaluations of Au6 with errors of ± `error` eV and σ = error/z; the octahedron is lowest."""
    search: dict[str, Any] = {"budget": count}
    if reference:
        search["reference"] = "known.xyz"
    settings = {"system": {"formula": "Au6"}, "engine": {"name": "emt"}, "search": search}
    store = Store.create(directory, make_config(settings))
    rng, lowest = np.random.default_rng(1), relaxed()
    energy = lowest.get_potential_energy()
    draws = [f"{short_key(lowest)}:{energy}"] * met
    draws += [f"unknown{k}:{energy - 1.0}" for k in range(lower)]
    for k in range(count):
        atoms = lowest if k == best_at - 1 else labelled(rng)
        if k != best_at - 1 and failed:
            failed -= 1
            atoms.calc = None
            store.append(Record(k, atoms, "rattle", "error", "it died"))
            continue
        seen = {}
        if k > 2:
            shift = error * (-1) ** k
            seen = {"predicted": atoms.get_potential_energy() + shift, "std": error / z}
        told = " ".join(draws) if k == count - 1 else ""
        store.append(Record(k, atoms, "rattle", draws=told, **seen))
    store.append_polish(PolishStep(best_at - 1, 1, polish or lowest))
    if end != "killed":
        store.keep_end(End(end, "the budget is used up", count, count))
    return store


def judged(tmp_path: Path, **options: Any) -> Verdict:
    a_search(tmp_path / "run", **options)
    return read_search_verdict(tmp_path / "run")


def test_right_and_sure(tmp_path):
    verdict = judged(tmp_path, met=20)
    assert verdict.level is GOOD
    assert "(Oh) has an energy of 4.0253 eV" in verdict.text
    assert "found at evaluation 1 of 12; 11 later evaluations found nothing lower" in verdict.text
    assert "Confidence is high (95%): 20 independent candidates" in verdict.text
    assert "σ is calibrated" in verdict.text


def test_never_rediscovered(tmp_path):
    verdict = judged(tmp_path)
    assert verdict.badge("confidence").level is BAD
    assert "no estimate of confidence, because" in verdict.text


def test_rediscovered_once(tmp_path):
    verdict = judged(tmp_path, met=1)
    assert verdict.badge("confidence").level is BAD
    assert "Confidence is low (67%): only 1 independent candidate reached it" in verdict.text


def test_moderate(tmp_path):
    assert judged(tmp_path, met=4).badge("confidence").level is WARNING


def test_lower_structures_are_predicted(tmp_path):
    verdict = judged(tmp_path, met=5, lower=5)
    assert verdict.badge("confidence").level is BAD
    assert "5 structures with lower predicted energies were not evaluated" in verdict.text


@pytest.mark.parametrize(
    ("z", "level", "text"),
    [
        (5.04, BAD, "σ is 5.0 times too small."),
        (2.0, WARNING, "σ is 2.0 times too small."),
        (0.5, WARNING, "σ is 2.0 times too large."),
        (0.2, BAD, "σ is 5.0 times too large."),
    ],
)
def test_broken_error_bars(tmp_path, z, level, text):
    verdict = judged(tmp_path, z=z, met=20)
    assert verdict.badge("error/σ").level is level
    assert text in verdict.sentences
    assert verdict.level is level


def test_a_model_that_is_far_off(tmp_path):
    verdict = judged(tmp_path, error=4.5, met=20)
    assert verdict.badge("model error").value == "750.0 meV/atom"
    assert verdict.badge("model error").level is BAD
    assert "misses energies by 750.0 meV/atom" in verdict.text


@pytest.mark.parametrize(("failed", "level"), [(0, GOOD), (2, WARNING), (5, BAD)])
def test_failures(tmp_path, failed, level):
    verdict = judged(tmp_path, failed=failed, met=20)
    assert verdict.badge("failures").level is level
    assert (f"{failed} of 12 evaluations failed." in verdict.sentences) == bool(failed)


def test_found_at_the_very_end(tmp_path):
    verdict = judged(tmp_path, best_at=12)
    assert verdict.badge("found at").level is BAD
    assert "It was found at evaluation 12 of 12." in verdict.sentences


def test_reference_missed_and_found(tmp_path):
    missed = judged(tmp_path, reference=True, met=20)
    assert missed.badge("reference").level is BAD
    assert "The reference structure was not found." in missed.sentences
    a_search(tmp_path / "found", reference=True, met=20, end="found")
    assert read_search_verdict(tmp_path / "found").badge("reference").level is GOOD


def test_killed(tmp_path):
    verdict = judged(tmp_path, end="killed", met=20)
    assert verdict.level is WARNING
    assert "The search was stopped before its end." in verdict.sentences


def test_no_success(tmp_path):
    store = Store.create(tmp_path / "run", make_config({"system": {"formula": "Au6"}}))
    store.append(Record(0, Atoms("Au6", np.eye(6)[:, :3]), "rattle", "error", "it died"))
    verdict = read_search_verdict(tmp_path / "run")
    assert verdict.sentences[0] == "No evaluation has succeeded."
    assert verdict.level is BAD


def test_unconverged(tmp_path):
    atoms = relaxed()
    atoms.calc.results["forces"][0] = [0.0, 0.3, 0.0]
    atoms.calc.results["energy"] -= 1e-3
    verdict = judged(tmp_path, polish=atoms, met=20)
    assert verdict.badge("fmax").value == "0.300 eV/Å"
    assert verdict.badge("fmax").level is BAD
    assert "has not converged (fmax 0.30 eV/Å)" in verdict.text


def test_fixed_atoms_do_not_count(tmp_path):
    """A slab whose fixed atoms feel large forces is converged."""
    slab = fcc111("Cu", (2, 2, 1), vacuum=5.0)
    slab.append("Au")
    slab.positions[-1] = slab.positions[0] + [0, 0, 2.3]
    slab.set_constraint(FixAtoms([0, 1, 2, 3]))
    slab = with_results(slab)
    slab.calc.results["forces"][:4] = 0.5
    slab.calc.results["forces"][4] = [0.0, 0.0, 0.0106]
    store = Store.create(tmp_path / "run", make_config({"system": {"formula": "Cu4Au"}}))
    store.append(Record(0, slab, "rattle"))
    store.append_polish(PolishStep(0, 1, slab))
    badge = read_search_verdict(tmp_path / "run").badge("fmax")
    assert (badge.value, badge.level) == ("0.011 eV/Å", GOOD)


def test_a_result_that_was_not_confirmed(tmp_path):
    store = a_search(tmp_path / "run", met=20)
    store.append_check(Check(CheckKind.UNCONFIRMED, relaxed(), 12, 12, 0))
    verdict = read_search_verdict(tmp_path / "run")
    assert verdict.badge("checked results").level is BAD
    assert "could not be confirmed" in verdict.text


def test_the_page_and_the_files_agree(tmp_path):
    a_search(tmp_path / "run", met=20)
    page = SearchPage(tmp_path / "run")
    page.read()
    shown = spec_of(page.html())["sections"][0]
    found = read_search_verdict(tmp_path / "run")
    assert json.loads(json.dumps(shown["sentences"])) == list(found.sentences)
    assert [one["level"] for one in shown["badges"]] == [one.level for one in found.badges]


# --------------------------------------------------------------------------- other runs


def a_path(**result: Any) -> ReactionPath:
    config = SimpleNamespace(engine=SimpleNamespace(name="emt"), fmax=0.05, images=7)
    full = {
        "barrier": 0.3747, "error": 0.004, "barrier_back": 0.3747, "saddle_fmax": 0.03,
        "converged": True, "reason": "converged", "imaginary_modes": 1, **result,
    }  # fmt: skip
    return ReactionPath(Path("run"), config, [], [], [], full)


def test_a_barrier():
    verdict = path_verdict(a_path())
    assert verdict.level is GOOD
    assert verdict.sentences[0] == "The barrier is 0.375 ± 0.004 eV, 0.375 eV in reverse."


def test_a_path_without_a_saddle():
    verdict = path_verdict(a_path(converged=False, reason="too many calls", imaginary_modes=2))
    assert verdict.badge("converged").level is BAD
    assert "has not converged after 0 engine calls (too many calls)" in verdict.text
    assert "2 imaginary modes instead of one" in verdict.text
    assert (
        path_verdict(replace(a_path(), result=None)).sentences[0] == "The path has no result yet."
    )


def dynamics(within: float, temperature: float = 300.0, drift: float = 0.0, nve: bool = False):
    rng = np.random.default_rng(0)
    steps = np.arange(0.0, 2000.0, 2.0)
    log = {name: np.zeros(len(steps)) for name in ("volume", "std", "kinetic", "calls")}
    log |= {"step": steps, "time": 2.0 * steps, "potential": 1e-6 * drift * 8 * 2.0 * steps}
    log["temperature"] = temperature + rng.normal(0, 20, len(steps))
    call = {
        "reason": "audit",
        "failed": False,
        "within": within,
        "rms": 0.02,
        "step": 1,
        "error": 0.1,
    }
    config = SimpleNamespace(
        engine=SimpleNamespace(name="emt"), ensemble="nve" if nve else "nvt", steps=2000, every=2,
        dt=2.0, temperature=300.0, temperatures=(300.0,), max_force_error=0.1,
    )  # fmt: skip
    return md_verdict(Dynamics(Path("run"), config, Atoms("Cu8"), log, [call] * 4, []))


def test_dynamics():
    verdict = dynamics(0.97)
    assert verdict.level is GOOD
    assert "At 4 random audits 97% of the forces lay within 2σ" in verdict.text
    broken = dynamics(0.5)
    assert broken.badge("audits within 2σ").level is BAD
    assert "σ is too small: at 4 random audits only 50%" in broken.text
    assert dynamics(0.97, temperature=400.0).badge("temperature").level is BAD
    assert dynamics(0.97, drift=20.0, nve=True).badge("drift").value == "+20 meV/atom/ps"
    assert dynamics(0.97, drift=20.0, nve=True).badge("drift").level is BAD


@pytest.mark.parametrize(("scale", "level"), [(1.0, GOOD), (0.2, BAD), (10.0, BAD)])
def test_models(scale, level):
    rng = np.random.default_rng(0)
    true, std = rng.normal(0, 1, 400), rng.uniform(0.005, 0.05, 400)
    predicted = true + std * rng.normal(0, 1, 400)
    verdict = model_verdict(
        "m", "d", SimpleNamespace(y_true=true, y_pred=predicted, y_std=scale * std), {}
    )
    assert verdict.badge("error/σ").level is level
    assert verdict.badge("rank correlation").level is GOOD
    assert ("σ of energies is calibrated" in verdict.text) == (level is GOOD)


def test_campaigns():
    base = SimpleNamespace(
        engine=SimpleNamespace(name="emt"), system=SimpleNamespace(title="Au6", formula="Au6")
    )
    campaign = SimpleNamespace(
        base=base, members=[0] * 40, directory=Path("c"), repeats=20, settings=[0, 1]
    )
    rows = [
        Row({"kappa": str(k)}, seed, Outcome(bool(k), 5 if k else None, evaluations=9))
        for k in (0, 1)
        for seed in range(20)
    ]  # fmt: skip
    verdict = campaign_verdict(campaign, rows, "eV")
    assert "20 of 20 searches with kappa=1 found the reference" in verdict.text
    assert "is significant" in verdict.text
    unfinished = campaign_verdict(campaign, rows[:10], "eV")
    assert "30 of 40 searches have not finished." in unfinished.sentences
    assert unfinished.badge("finished").level is WARNING


def test_every_badge_states_its_limits(tmp_path):
    for badge in judged(tmp_path, met=3, failed=1).badges:
        assert badge.limits
        assert badge.evidence


def test_single_point(tmp_path):
    """Without forces convergence is not known."""
    atoms = relaxed()
    energy = atoms.get_potential_energy()
    atoms.calc = SinglePointCalculator(atoms, energy=energy)
    store = Store.create(tmp_path / "run", make_config({"system": {"formula": "Au6"}}))
    store.append(Record(0, atoms, "rattle"))
    assert "convergence is not known" in read_search_verdict(tmp_path / "run").text
