from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from dataclasses import fields
from pathlib import Path

import ase.db
import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms

from nugget.errors import NuggetError
from nugget.search.record import Record
from nugget.search.search_settings import Config, make_config
from nugget.search.store import DATABASE, LOG, SETTINGS, Store

RNG = np.random.default_rng(0)


def labelled(atoms: Atoms, energy: float) -> Atoms:
    atoms.calc = SinglePointCalculator(
        atoms, energy=energy, forces=RNG.normal(size=(len(atoms), 3)) / 3
    )
    return atoms


def cluster(n: int = 7) -> Atoms:
    return Atoms(f"Au{n}", RNG.normal(scale=5 / 3, size=(n, 3)))


def slab() -> Atoms:
    atoms = fcc111("Cu", (2, 2, 2), vacuum=5.0)
    atoms.positions += RNG.normal(scale=0.1, size=(8, 3))
    atoms.set_constraint(FixAtoms(indices=[0, 1, 2, 3]))
    return atoms


def full_record(iteration: int, atoms: Atoms) -> Record:
    return Record(
        iteration=iteration,
        atoms=labelled(atoms, -np.pi * 100),
        generator="symmetric",
        predicted=-1 / 3,
        std=1e-17 / 3,
        scale=2 / 3,
        kappa=0.1 + 0.2,
        acquisition=-1e16 / 3,
        engine_seconds=1 / 7,
        surrogate_seconds=1 / 9,
    )


def assert_same(a: Record, b: Record) -> None:
    """To the last bit."""
    for field in fields(Record):
        if field.name != "atoms":
            assert getattr(a, field.name) == getattr(b, field.name), field.name
    for name in ("positions", "numbers", "pbc"):
        np.testing.assert_array_equal(getattr(a.atoms, name), getattr(b.atoms, name))
    np.testing.assert_array_equal(a.atoms.cell.array, b.atoms.cell.array)
    assert [c.todict() for c in a.atoms.constraints] == [c.todict() for c in b.atoms.constraints]
    assert a.ok == b.ok
    if a.ok:
        assert a.energy == b.energy
        np.testing.assert_array_equal(
            a.atoms.calc.results["forces"], b.atoms.calc.results["forces"]
        )
    else:
        assert b.atoms.calc is None or "energy" not in b.atoms.calc.results


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store.create(tmp_path / "run", Config())


def test_records_come_back_to_the_last_bit(store):
    written = [full_record(0, cluster()), full_record(1, slab()), full_record(2, cluster(20))]
    written.append(Record(3, labelled(cluster(), 0.0), "rattle"))  # before the first model
    for record in written:
        store.append(record)
    read = Store.open(store.directory).records()
    assert len(read) == 4
    for a, b in zip(written, read, strict=True):
        assert_same(a, b)


def test_forces_of_fixed_atoms_are_kept(store):
    """ASE zeroes them when asked politely; the model learns from them all the same."""
    record = full_record(0, slab())
    assert np.abs(record.atoms.calc.results["forces"][:4]).min() > 0
    store.append(record)
    forces = store.records()[0].atoms.calc.results["forces"]
    np.testing.assert_array_equal(forces, record.atoms.calc.results["forces"])


@pytest.mark.parametrize("reason", ["no answer within 600 s", "1.5", "12", "", "naïve\nlines 'x'"])
@pytest.mark.parametrize("failure", ["exception", "nan"])
def test_failures_come_back(store, failure, reason):
    """Also those whose reason looks like a number, which ASE's key-value pairs refuse."""
    record = Record(
        0, cluster(), "melt", failure, reason, -3.0, 0.1, 1.5, 2.0, -3.3, "explore", 0.2, 0.1
    )
    store.append(record)
    read = store.records()[0]
    assert_same(record, read)
    assert not read.ok


def test_evaluations_are_in_order_and_complete(store):
    for iteration in range(3):
        store.append(full_record(iteration, cluster()))
    assert [record.iteration for record in store.records()] == [0, 1, 2]
    store.append(full_record(4, cluster()))
    with pytest.raises(NuggetError, match="evaluations are missing or there twice"):
        store.records()


def test_ase_finds_its_way(store):
    """`ase db` and `ase gui` show energies, and select by what the search wrote."""
    store.append(full_record(0, cluster()))
    store.append(Record(1, cluster(), "melt", "timeout", "too slow"))
    database = ase.db.connect(store.directory / DATABASE)
    assert [row.energy for row in database.select("generator=symmetric")] == [-np.pi * 100]
    assert [row.iteration for row in database.select("failed=True")] == [1]


def test_settings_come_back(tmp_path):
    config = make_config(
        {
            "system": {"formula": "Cu5Au8"},
            "engine": {"name": "lj", "options": {"sigma": 2.6}},
            "search": {"generators": {"rattle": 1.0, "random_cluster": 0.5}},
        }
    )
    Store.create(tmp_path / "deep" / "run", config)
    assert Store.open(tmp_path / "deep" / "run").config() == config


def test_a_search_is_never_written_over(store):
    store.append(full_record(0, cluster()))
    before = (store.directory / SETTINGS).read_bytes()
    other = make_config({"system": {"formula": "Au5"}})
    with pytest.raises(NuggetError, match=f"nugget search --resume {store.directory}"):
        Store.create(store.directory, other)
    assert (store.directory / SETTINGS).read_bytes() == before
    assert len(store.records()) == 1


def test_foreign_directories_are_refused(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(NuggetError, match=r"holds no search \(config.toml is missing\)"):
        Store.open(tmp_path)
    with pytest.raises(NuggetError, match="holds no search"):
        Store.open(tmp_path / "nowhere")
    assert [p.name for p in tmp_path.iterdir()] == ["notes.txt"]


def test_a_new_search_has_no_records(store):
    assert Store.open(store.directory).records() == []


def test_log_grows(store):
    store.log("one")
    store.log("two with ümlaut")
    lines = (store.directory / LOG).read_text(encoding="utf-8").splitlines()
    assert [line.split("  ", 1)[1] for line in lines] == ["one", "two with ümlaut"]


def in_another_process(directory: Path) -> subprocess.CompletedProcess[str]:
    program = f"""
        from pathlib import Path
        from nugget.errors import NuggetError
        from nugget.search.store import Store
        try:
            with Store.open(Path({str(directory)!r})).locked():
                print("mine")
        except NuggetError as error:
            print(error)
    """
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, check=True
    )


def test_one_process_at_a_time(store):
    with store.locked():
        answer = in_another_process(store.directory).stdout
        assert f"is in use by process {os.getpid()}" in answer
    assert in_another_process(store.directory).stdout == "mine\n"


def test_a_killed_owner_whose_child_still_holds_the_lock(store):
    """The child inherits the lock and ends a second after its parent, which was killed."""
    program = """
        import fcntl, os, sys, time
        file = open(sys.argv[1], "w")
        fcntl.flock(file, fcntl.LOCK_EX)
        print('{"pid": %d}' % os.getpid(), file=file, flush=True)
        if os.fork() == 0:
            os.close(1)
            time.sleep(1.0)
            os._exit(0)
        os.kill(os.getpid(), 9)
    """
    lock = str(store.directory / "lock")
    subprocess.run([sys.executable, "-c", textwrap.dedent(program), lock], check=False)
    assert in_another_process(store.directory).stdout == "mine\n"


def test_one_search_at_a_time_in_one_process(store):
    with (
        store.locked(),
        pytest.raises(NuggetError, match="is in use"),
        Store.open(store.directory).locked(),
    ):
        pass
    with store.locked():  # and the lock is free again, even after an exception
        pass
    with pytest.raises(ZeroDivisionError), store.locked():
        raise ZeroDivisionError
    with store.locked():
        pass
