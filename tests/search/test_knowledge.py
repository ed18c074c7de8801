"""Knowledge from before: structures that are evaluated first, and labelled ones that are not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from ase.io import read, write
from flights import Scripted, settings

from nugget.cli.search import show
from nugget.errors import NuggetError
from nugget.report.digest import search_summary
from nugget.search import Search, make_config
from nugget.search.knowledge import read_knowledge
from nugget.structures.memory import KnownStructures
from nugget.systems import PlacedAtoms
from nugget.systems.base import in_frame


def labelled(atoms: Atoms, forces: bool = True) -> Atoms:
    atoms = atoms.copy()
    atoms.calc = EMT()
    results = {"energy": atoms.get_potential_energy()}
    if forces:
        results["forces"] = atoms.get_forces()
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search that was done earlier."""
    directory = tmp_path_factory.mktemp("before") / "run"
    chosen = settings(in_flight=1, budget=8, polish=1, seed=5)
    Search.create(make_config(chosen), directory).run()
    return directory


def same_records(a: Path, b: Path) -> bool:
    one, two = (Search.resume(x).store.records() for x in (a, b))
    return len(one) == len(two) and all(
        np.array_equal(r.atoms.positions, s.atoms.positions) and r.predicted == s.predicted
        for r, s in zip(one, two, strict=True)
    )


def test_start_structures_come_first_in_order(before: Path, tmp_path: Path) -> None:
    images = [record.atoms for record in Search.resume(before).store.records()[:4]]
    write(tmp_path / "start.traj", [*images, images[0]])  # one is there twice
    chosen = make_config(settings(1, start=str(tmp_path / "start.traj"), budget=8))
    Search.create(chosen, tmp_path / "run").run()
    (tmp_path / "start.traj").unlink()  # the search has its own copy
    records = Search.resume(tmp_path / "run").store.records()
    assert [record.generator == "start" for record in records] == [True] * 4 + [False] * 4
    for record, atoms in zip(records, images, strict=False):
        assert np.allclose(record.atoms.get_all_distances(), atoms.get_all_distances())
    assert records[4].predicted is not None  # they count as the first evaluations
    assert Search.replay(tmp_path / "run").same


def test_start_structures_in_flight(before: Path, tmp_path: Path) -> None:
    write(tmp_path / "start.traj", [r.atoms for r in Search.resume(before).store.records()[:5]])
    chosen = make_config(settings(4, start=str(tmp_path / "start.traj")))
    Search.create(chosen, tmp_path / "run").run(executor=Scripted(lambda n: n - 1))
    search = Search.resume(tmp_path / "run")
    records, starts = search.store.records(), search.knowledge().start
    assert len(starts) >= 4  # two of the five may be the same, depending on the processor
    assert sorted(r.proposal for r in records if r.generator == "start") == [*range(len(starts))]
    assert Search.replay(tmp_path / "run").same


def test_start_structures_of_another_system_are_refused(tmp_path: Path) -> None:
    write(tmp_path / "start.xyz", Atoms("Au5", np.random.default_rng(0).normal(size=(5, 3)) * 3))
    with pytest.raises(NuggetError, match=r"search.start: structure 0 .* \(Au5\) is not of"):
        Search.create(make_config(settings(1, start=str(tmp_path / "start.xyz"))), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_another_search_is_learned_and_not_paid_again(before: Path, tmp_path: Path) -> None:
    chosen = make_config(settings(1, learn=str(before), budget=6, polish=1))
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    result = Search.create(chosen, whole).run()
    store = Search.resume(whole).store
    earlier = Search.resume(before)
    known = KnownStructures()
    for record in earlier.store.records():
        known.add(record.atoms, record.energy)
    for record in store.records():
        assert record.predicted is not None  # there was a model before the first evaluation
        assert known.find(record.atoms, record.energy) is None
    # The end is never above what was known.
    lowest = read(before / "best.extxyz").get_potential_energy()
    assert result.minima[0].energy <= lowest + 1e-9
    assert read(whole / "best.extxyz").get_potential_energy() <= lowest + 1e-9
    # Broken off and continued without the earlier directory, and replayed: the same bits.
    search = Search.create(chosen, broken)
    search.run(budget=3)
    assert store.config().search.learn == "learn/run.traj"
    Search.resume(broken).run()
    assert same_records(whole, broken)
    assert Search.replay(broken).same


def test_what_is_learned_is_known_parent_and_bar(before: Path) -> None:
    config = make_config(settings(1, learn=str(before)))
    problem = PlacedAtoms.cluster("Au6")
    from nugget.search.learner import Learner

    learner = Learner(config, problem, read_knowledge(config, problem))
    energies = [record.energy for record in Search.resume(before).store.records()]
    polished = read(before / "best.extxyz").get_potential_energy()
    assert learner.best_energy == pytest.approx(min([*energies, polished]), abs=1e-12)
    assert learner.best is None  # nothing was evaluated here
    assert learner.lowest is not None
    assert learner.lowest.iteration < 0
    assert len(learner._parents(np.random.default_rng(0))) > 1
    assert len(learner.known) == len(learner.learned) == 9  # eight, and what was polished
    assert all(record.atoms in learner.known for record in learner.learned)


def test_a_lower_learned_structure_is_the_end_of_a_search(
    before: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without forces, and with nothing relaxed: the best file holds what was known."""
    best = read(before / "best.extxyz")
    write(tmp_path / "best.extxyz", labelled(best, forces=False))
    for polish in (0, 1):
        chosen = settings(1, learn=str(tmp_path / "best.extxyz"), budget=2, polish=polish)
        search = Search.create(make_config(chosen), tmp_path / f"run{polish}")
        report = search_summary(search, search.run())
        assert report["best_energy"] <= best.get_potential_energy() + 1e-6
        show(report, broken_off=False)
        assert "1 structure, the lowest" in " ".join(capsys.readouterr().out.split())
        found = read(tmp_path / f"run{polish}" / "best.extxyz").get_potential_energy()
        assert found <= best.get_potential_energy() + 1e-6


def test_another_engine_is_refused(before: Path, tmp_path: Path) -> None:
    chosen = settings(1, {"name": "lj"}, learn=str(before))
    with pytest.raises(NuggetError, match=r"has another engine: engine.name is 'lj' and was 'emt'"):
        Search.create(make_config(chosen), tmp_path / "run")


def test_labelled_data_of_another_size(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    shape = Atoms("Au5", [(0, 0, 0), (2.7, 0, 0), (1.3, 2.3, 0), (1.3, 0.8, 2.2), (1.3, 0.8, -2.2)])
    images = []
    for _ in range(6):
        atoms = shape.copy()
        atoms.positions += rng.normal(scale=0.1, size=(5, 3))
        images.append(labelled(atoms))
    write(tmp_path / "au5.extxyz", images)
    chosen = make_config(settings(1, learn=str(tmp_path / "au5.extxyz"), budget=5))
    Search.create(chosen, tmp_path / "run").run()
    records = Search.resume(tmp_path / "run").store.records()
    assert all(record.predicted is not None for record in records)
    assert Search.replay(tmp_path / "run").same


def test_what_cannot_be_learned_is_named(tmp_path: Path) -> None:
    bare = Atoms("Au6", np.arange(18.0).reshape(6, 3))
    write(tmp_path / "bare.xyz", bare)
    write(tmp_path / "cu.extxyz", labelled(Atoms("Cu2", [(0, 0, 0), (0, 0, 2.4)])))
    for file, reason in (("bare.xyz", "has no energy"), ("cu.extxyz", "contains Cu")):
        with pytest.raises(NuggetError, match=reason):
            Search.create(make_config(settings(1, learn=str(tmp_path / file))), tmp_path / "run")
    (tmp_path / "empty").mkdir()
    with pytest.raises(NuggetError, match="holds no search"):
        Search.create(make_config(settings(1, learn=str(tmp_path / "empty"))), tmp_path / "run")


def test_atoms_in_another_order_keep_their_forces() -> None:
    rng = np.random.default_rng(2)
    atoms = Atoms("Cu2Au3", rng.normal(scale=2.5, size=(5, 3)))
    shuffled = labelled(atoms[rng.permutation(5)])
    problem = PlacedAtoms.cluster("Cu2Au3")
    found = in_frame(shuffled, problem)
    assert found is not None
    assert np.array_equal(found.numbers, problem.numbers)
    again = found.copy()
    again.calc = EMT()
    assert again.get_potential_energy() == pytest.approx(found.get_potential_energy(), abs=1e-9)
    assert np.allclose(again.get_forces(), found.get_forces(), atol=1e-9)
    assert in_frame(labelled(Atoms("Cu3Au2", atoms.positions)), problem) is None


def test_slabs_must_have_the_same_cell_and_fixed_atoms() -> None:
    slab = fcc111("Pt", (2, 2, 2), vacuum=8.0)
    slab.set_constraint(FixAtoms([a.index for a in slab if a.tag == 2]))
    problem = PlacedAtoms.on_template("Au2", slab)
    whole = slab + Atoms("Au2", slab.positions[:2] + np.array([0, 0, 5.0]))
    assert in_frame(whole, problem) is not None
    moved = whole.copy()
    moved.positions[:4] += 0.1
    assert in_frame(moved, problem) is None
    wider = whole.copy()
    wider.set_cell(wider.cell * 1.01)
    assert in_frame(wider, problem) is None
