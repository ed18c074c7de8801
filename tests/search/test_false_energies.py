"""No false energy of an engine is reported as the best one, and no true one is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from ase.build import fcc111
from ase.constraints import FixAtoms
from ase.io import read
from faulty_engines import lying
from typer.testing import CliRunner

from nugget.cli.main import app
from nugget.engines.plausibility import agree
from nugget.errors import NuggetError
from nugget.search.record import CheckKind
from nugget.search.search import Result, Search
from nugget.search.search_settings import make_config

pytestmark = pytest.mark.usefixtures("engines")

SMALL = {"candidates": 4, "walkers": 0, "explore": 1, "polish": 1, "relax_steps": 20}
SYSTEMS = {
    "Au6": ("emt", {"formula": "Au6"}),
    "Au13": ("emt", {"formula": "Au13"}),
    "LJ13": ("lj", {"formula": "Au13"}),
    "Morse": ("morse", {"formula": "Au8"}),
    "adsorbate": (
        "emt", {"formula": "Cu2", "kind": "surface", "template": "slab.traj", "height": 4.0}
    ),
    "Ti4O8": ("gfn1-xtb", {"formula": "Ti4O8"}),
}  # fmt: skip


def config(directory: Path, engine: dict[str, Any], system: dict[str, Any], **search: Any) -> Any:
    if "template" in system:
        slab = fcc111("Cu", (2, 2, 2), vacuum=7.0)
        slab.set_constraint(FixAtoms(mask=[atom.tag > 1 for atom in slab]))
        slab.write(directory / "slab.traj")
        system = {**system, "template": str(directory / "slab.traj")}
    return make_config(
        {"system": system, "engine": engine, "search": {**SMALL, **search},
         "model": {"cutoff": 4.5, "n_max": 2, "l_max": 2}}
    )  # fmt: skip


def searched(directory: Path, system: str, at: list[int], shift: float, budget: int = 7) -> Search:
    inner, what = SYSTEMS[system]
    options = {"counter": str(directory / "count"), "at": at, "shift": shift, "inner": inner}
    engine = {"name": "faulty_engines:lying", "options": options}
    return Search.create(config(directory, engine, what, budget=budget), directory / "run")


def assert_true(search: Search, result: Result, inner: str) -> None:
    """The reported structure has its true energy, everywhere."""
    best = read(search.store.directory / "best.extxyz")
    check = best.copy()
    check.calc = lying(str(search.store.directory / "other"), [], 0.0, inner)
    true = check.get_potential_energy()
    assert agree(best.get_potential_energy(), true, len(best))
    from nugget.report.digest import search_summary

    summary = search_summary(search, result)
    assert summary["best_energy"] == pytest.approx(best.get_potential_energy(), abs=1e-6)
    # Records that count are true; none is lost.
    for record in search.store.records():
        assert record.ok or record.failure in ("unconverged", "implausible")
        if record.ok and record.energy < summary["best_energy"] - 0.5:
            raise AssertionError(f"evaluation {record.iteration} has a false energy")
    assert Search.replay(search.store.directory, trust=True).same


# Calls 2 and 3 are those of the first check; with a budget of 7, calls from 10 on belong to the
# final relaxation.
QUICK = [("Au6", 1, -20.0), ("Au6", 2, -150.0), ("Au6", 5, -20.0), ("Au6", 12, -1.0),
         ("LJ13", 1, -1000.0), ("Morse", 5, -1000.0)]  # fmt: skip


@pytest.mark.parametrize(("system", "call", "shift"), QUICK)
def test_false_energies_are_not_reported(
    system: str, call: int, shift: float, tmp_path: Path
) -> None:
    search = searched(tmp_path, system, [call], shift)
    assert_true(search, search.run(), SYSTEMS[system][0])


@pytest.mark.slow
@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("call", [1, 2, 5, 15, 22])
@pytest.mark.parametrize("shift", [-1.0, -20.0, -150.0, -1000.0])
def test_false_energies_on_six_systems(
    system: str, call: int, shift: float, tmp_path: Path
) -> None:
    budget = 8 if system == "Ti4O8" else 16
    search = searched(tmp_path, system, [call], shift, budget)
    assert_true(search, search.run(), SYSTEMS[system][0])


@pytest.mark.parametrize("system", ["Au6", "LJ13"])
def test_a_true_search_costs_three_evaluations(system: str, tmp_path: Path) -> None:
    search = searched(tmp_path, system, [], 0.0)
    result = search.run()
    calls = (tmp_path / "count").stat().st_size
    checks = [c for c in search.store.checks() if c.kind is not CheckKind.ATOM]
    assert sum(check.evaluations for check in checks) == 3
    assert calls == result.evaluations + result.polish_evaluations + 3
    assert str(result.engine_check).startswith("forces agree with energies to ")
    # At its end it resumes without the engine.
    assert Search.resume(search.store.directory, trust=True).run().best is not None
    assert (tmp_path / "count").stat().st_size == calls


@pytest.mark.parametrize(
    ("how", "message"),
    [("hartree", r"51\.. times too small: they seem to be in Hartree/Bohr"),
     ("sign", "wrong sign"), ("permuted", "do not belong to its energies")],
)  # fmt: skip
def test_wrong_forces_are_refused(how: str, message: str, tmp_path: Path) -> None:
    engine = {"name": "faulty_engines:wrong_forces", "options": {"how": how}}
    search = Search.create(config(tmp_path, engine, {"formula": "Au6"}, budget=5), tmp_path / "run")
    with pytest.raises(NuggetError, match=message):
        search.run()
    with pytest.raises(NuggetError, match=message):  # also after a resume
        Search.resume(tmp_path / "run", trust=True).run()


def test_an_engine_that_moves_atoms(tmp_path: Path) -> None:
    engine = {"name": "faulty_engines:wrong_forces", "options": {"how": "shifted"}}
    search = Search.create(config(tmp_path, engine, {"formula": "Au6"}, budget=2), tmp_path / "a")
    assert search.run().failures == 0
    engine["options"] = {"how": "moved"}
    search = Search.create(config(tmp_path, engine, {"formula": "Au6"}, budget=1), tmp_path / "b")
    search.run()
    assert "changed the structure" in search.store.records()[0].reason


def test_another_engine_after_a_resume(tmp_path: Path) -> None:
    shift = tmp_path / "shift"
    shift.write_text("0")
    engine = {"name": "faulty_engines:shifted", "options": {"file": str(shift)}}
    Search.create(config(tmp_path, engine, {"formula": "Au6"}, budget=5), tmp_path / "run").run()
    shift.write_text("3")
    with pytest.raises(NuggetError, match=r"recorded with .* the same as now"):
        Search.resume(tmp_path / "run", trust=True).run(budget=7)
    assert len(Search.resume(tmp_path / "run", trust=True).store.records()) == 5
    shift.write_text("0")
    assert Search.resume(tmp_path / "run", trust=True).run(budget=7).evaluations == 7


def test_a_false_lowest_energy_is_corrected_after_a_resume(tmp_path: Path) -> None:
    search = searched(tmp_path, "Au6", [7], -20.0, 4)
    search.run()
    result = Search.resume(search.store.directory, trust=True).run(budget=7)
    assert_true(search, result, "emt")


def test_the_command_reports_the_same(tmp_path: Path) -> None:
    search = searched(tmp_path, "Au6", [6], -25.0)
    search.run()
    command = ["search", "--resume", str(search.store.directory), "--trust", "--json"]
    printed = CliRunner().invoke(app, command)
    summary = json.loads(printed.output)
    best = read(search.store.directory / "best.extxyz").get_potential_energy()
    assert summary["best_energy"] == pytest.approx(best, abs=1e-6)
    assert summary["minima"][0]["energy"] == summary["best_energy"]
    assert summary["verdicts"]
