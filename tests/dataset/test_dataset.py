"""Data sets: different structures, whatever happens on the way."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import ase.db
import numpy as np
import pytest
from example_structures import gold_cluster

from nugget.dataset import Recipe, build, expanded, read_recipe
from nugget.dataset.recipe import ACCEPTED, DUPLICATE, FAILED, INVALID, LATE, Stream
from nugget.engines.task import Task, run_task
from nugget.errors import NuggetError
from nugget.structures.identity import graph_key
from nugget.structures.io import read_images, write_images

RECIPE = Recipe(("Au6", "Au8"), 14, "emt", relax_steps=2, split=(4, 1, 2))
HERE = Path(__file__).parent


def images_of(folder):
    return {
        part: read_images(folder / f"{part}.extxyz") for part in ("train", "validation", "test")
    }


def content(folder):
    return {
        part: [(a.info["stream"], a.info["candidate"], a.get_potential_energy()) for a in images]
        for part, images in images_of(folder).items()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("dataset") / "gold"
    return folder, build(folder, RECIPE)


def test_structures_are_different_labelled_and_split(finished):
    folder, report = finished
    parts = images_of(folder)
    assert report.complete
    assert report.parts == {"train": 8, "validation": 2, "test": 4}
    assert {name: len(images) for name, images in parts.items()} == report.parts
    everything = [atoms for images in parts.values() for atoms in images]
    assert len({graph_key(atoms) for atoms in everything}) == 14
    assert sorted(len(atoms) for atoms in everything) == [6] * 7 + [8] * 7
    for atoms in everything[:3]:
        label = run_task(Task(name="emt"), atoms)
        assert atoms.get_potential_energy() == pytest.approx(label.energy, abs=1e-6)
        np.testing.assert_allclose(atoms.get_forces(), label.atoms.get_forces(), atol=1e-6)
    assert {atoms.info["generator"] for atoms in everything} <= {"random_cluster", "symmetric"}


def test_again_does_nothing_and_a_larger_count_extends(finished, tmp_path):
    folder, report = finished
    before = content(folder)
    again = build(folder, RECIPE)
    assert again.labelled_now == 0
    assert again.labelled_before == report.labelled_now
    assert content(folder) == before
    larger = Recipe(**{**RECIPE.to_dict(), "count": 18})
    assert build(folder, larger).structures == 18
    fresh = build(tmp_path / "fresh", larger, workers=2)
    assert content(folder) == content(tmp_path / "fresh")
    assert fresh.labelled_now == len(ase.db.connect(folder / "dataset.db"))
    with pytest.raises(NuggetError, match="only grow"):
        build(folder, RECIPE)
    with pytest.raises(NuggetError, match="another seed"):
        build(folder, Recipe(**{**larger.to_dict(), "seed": 1}))
    assert read_recipe(folder) == larger


def test_killed_and_resumed_is_the_same_as_never_killed(tmp_path):
    """kill -9 in the middle: nothing is lost, nothing comes twice."""
    recipe = Recipe(("Au9", "Au10"), 60, "emt", relax_steps=5, seed=5)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    build(whole, recipe)
    code = (
        "from nugget.dataset import Recipe, build; "
        f"build({str(killed)!r}, Recipe.from_dict({recipe.to_dict()!r}), workers=2)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], start_new_session=True)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if rows(killed) >= 5:
            break
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    left = rows(killed)
    assert 5 <= left < rows(whole), "killed too early or too late to show anything"
    report = build(killed, recipe)
    assert report.labelled_before == left
    assert report.labelled_now == rows(whole) - left
    found = [(row.stream, row.candidate) for row in ase.db.connect(killed / "dataset.db").select()]
    assert len(set(found)) == len(found)
    assert content(killed) == content(whole)


def rows(folder):
    path = folder / "dataset.db"
    try:
        return len(ase.db.connect(path, use_lock_file=False)) if path.exists() else 0
    except Exception:  # the file is there, its tables are not yet
        return 0


def test_only_one_process_at_a_time(tmp_path):
    import fcntl

    folder = tmp_path / "busy"
    folder.mkdir()
    with open(folder / "lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        with pytest.raises(NuggetError, match="in use"):
            build(folder, RECIPE)


def test_failures_are_recorded_and_replaced(tmp_path):
    recipe = Recipe(("Au7",), 5, "dataset_engines:moody", relax_steps=0)
    report = build(tmp_path, recipe)
    assert report.complete
    assert report.failures["exception"] >= 1
    assert report.streams["Au7"][FAILED] == report.failures["exception"]
    failed = [r for r in ase.db.connect(tmp_path / "dataset.db").select() if "failure" in r]
    assert "not in the mood" in failed[0].data["reason"]


def test_the_engine_is_checked(tmp_path):
    options = {"file": str(tmp_path / "shift")}
    recipe = Recipe(("Au5",), 1, "faulty_engines:shifted", options=options, relax_steps=0)
    (tmp_path / "shift").write_text("0.0")
    assert "forces agree with energies" in build(tmp_path / "set", recipe).engine_check
    (tmp_path / "shift").write_text("3.0")
    with pytest.raises(NuggetError, match="cannot be mixed with the recorded ones"):
        build(tmp_path / "set", replace(recipe, count=2))


def test_structures_from_files(tmp_path):
    """Duplicates are left out, the source may grow or vanish, formulas choose."""
    source = tmp_path / "found.extxyz"
    different = [gold_cluster(7 + s % 2, s) for s in range(8)]
    write_images(source, [*different, *different])
    recipe = Recipe((), 100, "emt", sources=(str(source),), relax_steps=0)
    report = build(tmp_path / "all", recipe)
    assert report.structures == len({graph_key(atoms) for atoms in different})
    assert not report.complete
    source.unlink()
    assert build(tmp_path / "all", recipe).labelled_now == 0
    write_images(source, different)
    only = Recipe(("Au7",), 100, "emt", sources=(str(source),), relax_steps=0)
    build(tmp_path / "some", only)
    assert {len(a) for a in read_images(tmp_path / "some" / "train.extxyz")} == {7}
    with pytest.raises(NuggetError, match="formulas"):
        build(tmp_path / "none", Recipe(("Au3",), 9, "emt", sources=(str(source),)))


def test_a_formula_with_few_graphs_is_given_up(tmp_path):
    report = build(tmp_path, Recipe(("Au3",), 30, "emt", patience=20))
    assert 1 <= report.structures <= 2  # a triangle and a chain
    assert not report.complete


def stream(kinds, wanted, patience=100):
    """Candidates by letter: the same letter is the same graph, - is no candidate."""
    shapes = {letter: gold_cluster(6 + k, k) for k, letter in enumerate("abcdef")}

    def make(k):
        if k >= len(kinds):
            return None
        return INVALID if kinds[k] == "-" else shapes[kinds[k]].copy()

    return Stream("x", wanted, make, lambda _: None, patience)


def test_order_of_arrival_does_not_matter():
    orders = [(0, 1, 2), (2, 1, 0), (1, 2, 0)]
    taken = []
    for order in orders:
        s = stream("a-abcd", wanted=3)
        waiting = dict(s.next() for _ in range(3))
        assert list(waiting) == [0, 3, 4]
        assert s.next() is None  # three are under way, three are wanted
        for place in order:
            k = list(waiting)[place]
            # Candidate 3 becomes the same graph as candidate 0 in the engine.
            s.take(k, waiting[0] if k == 3 else waiting[k])
        assert s.next()[0] == 5
        taken.append([k for k, _ in s.accepted])
        assert s.counts == {ACCEPTED: 2, INVALID: 1, DUPLICATE: 2}
    assert taken == [[0, 4]] * 3


def test_giving_up_does_not_depend_on_what_is_under_way():
    s = stream("abcdef", wanted=6, patience=2)
    waiting = [s.next() for _ in range(4)]
    for (k, atoms), result in zip(
        reversed(waiting), [waiting[3][1], FAILED, FAILED, None], strict=True
    ):
        s.take(k, atoms if result is None else result)
    assert [k for k, _ in s.accepted] == [0]
    assert s.counts == {ACCEPTED: 1, FAILED: 2, LATE: 1}
    assert s.next() is None


def test_ranges_and_bad_recipes():
    assert expanded(["Au10-Au12", "Cu3Au2"]) == ("Au10", "Au11", "Au12", "Cu3Au2")
    assert expanded(["Au10-20:5"]) == ("Au10", "Au15", "Au20")
    with pytest.raises(NuggetError, match="empty"):
        expanded(["Au12-Au10"])
    for settings, message in (
        ({"formulas": ()}, "recipe is empty"),
        ({"formulas": ("Au2", "Gold")}, "Gold"),
        ({"formulas": ("AuCu", "CuAu")}, "twice"),
        ({"count": 1}, "at least 2"),
        ({"split": (1.0, -1.0, 2.0)}, "three shares"),
        ({"rattle": -0.1}, "rattle"),
        ({"patience": 0}, "patience"),
    ):
        with pytest.raises(NuggetError, match=message):
            Recipe(**{"formulas": ("Au5", "Au6"), "count": 10, **settings})
    with pytest.raises(NuggetError, match="another version"):
        Recipe.from_dict({"formulas": ["Au5"], "count": 1, "colour": "red"})


def test_generators_must_suit(tmp_path):
    with pytest.raises(NuggetError, match="random_cluster"):
        build(tmp_path, Recipe(("Au5",), 2, "emt", generators=("rattle",)))
