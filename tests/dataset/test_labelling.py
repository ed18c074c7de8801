"""Labels of an engine for the structures of a file: records, failures, and continuation."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.calculators.emt import EMT
from example_structures import gold_cluster

from nugget import NuggetError
from nugget.dataset.labelling import DATABASE, directory_of, label, structure_key
from nugget.engines.engine_settings import EngineConfig
from nugget.storage.database import Database
from nugget.structures.io import read_images


def clusters(n: int):
    images = [gold_cluster(4, seed) for seed in range(n)]
    for k, atoms in enumerate(images):
        atoms.info["number"] = k
    return images


def test_labels_are_those_of_the_engine(tmp_path: Path):
    images, out = clusters(3), tmp_path / "labelled.extxyz"
    report = label(images, EngineConfig(name="emt"), out, workers=2)
    assert (report.labelled, report.calculated_now, report.failures) == (3, 3, [])
    for atoms, done in zip(images, read_images(out), strict=True):
        work = atoms.copy()
        work.calc = EMT()
        assert done.info["number"] == atoms.info["number"]
        assert done.get_potential_energy() == pytest.approx(work.get_potential_energy())
        assert np.allclose(done.get_forces(), work.get_forces())


def test_nothing_is_calculated_twice(tmp_path: Path):
    out = tmp_path / "labelled.extxyz"
    images = clusters(4)
    label(images[:2], EngineConfig(name="emt"), out)
    grown = label([*images, images[0]], EngineConfig(name="emt"), out)
    assert grown.calculated_now == 2
    assert len(read_images(out)) == 5
    assert label(images, EngineConfig(name="emt"), out).calculated_now == 0
    assert len(Database(directory_of(out) / DATABASE).rows()) == 4


def test_another_engine_is_refused(tmp_path: Path):
    out = tmp_path / "labelled.extxyz"
    label(clusters(1), EngineConfig(name="emt"), out)
    with pytest.raises(NuggetError, match=r"another engine\.name \(emt, now lj\)"):
        label(clusters(1), EngineConfig(name="lj"), out)
    label(clusters(1), EngineConfig(name="emt", time_limit=5.0), out)


def test_wrong_forces_are_no_labels(tmp_path: Path):
    out = tmp_path / "labelled.extxyz"
    wrong = EngineConfig(name="faulty_engines:wrong_forces", options={"how": "hartree"})
    with pytest.raises(NuggetError, match="too small: they seem to be in Hartree/Bohr"):
        label(clusters(2), wrong, out)
    assert not out.exists()
    assert not Database(directory_of(out) / DATABASE).rows()
    assert label(clusters(2), wrong.model_copy(update={"verify": False}), out).labelled == 2


@pytest.mark.parametrize("relax_steps", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_labels_of_two_versions_of_an_engine_are_not_mixed(tmp_path: Path, relax_steps: int):
    out, shift = tmp_path / "labelled.extxyz", tmp_path / "shift"
    engine = EngineConfig(
        name="faulty_engines:shifted", options={"file": str(shift)}, relax_steps=relax_steps
    )
    images = clusters(3)
    shift.write_text("0.0")
    report = label(images[:1], engine, out)
    assert report.engine_check is not None
    assert "forces agree with energies" in report.engine_check
    shift.write_text("3.0")
    with pytest.raises(NuggetError, match=r"cannot be mixed .* versions are the same"):
        label(images, engine, out)
    assert len(read_images(out)) == 1
    shift.write_text("0.0")
    assert label(images, engine, out).calculated_now == 2


def test_failures_are_recorded_and_repeated_on_request(tmp_path: Path):
    images, out = clusters(3), tmp_path / "labelled.extxyz"
    images[1].symbols[0] = "U"  # unknown to EMT
    report = label(images, EngineConfig(name="emt"), out)
    assert report.labelled == 2
    assert [(f.index, f.kind) for f in report.failures] == [(1, "exception")]
    assert [atoms.info["number"] for atoms in read_images(out)] == [0, 2]
    assert label(images, EngineConfig(name="emt"), out).calculated_now == 0
    assert label(images, EngineConfig(name="emt"), out, retry=True).calculated_now == 1


def test_many_failures_end_the_run(tmp_path: Path):
    images = clusters(4)
    for atoms in images:
        atoms.symbols[0] = "U"
    with pytest.raises(NuggetError, match="failed 2 times in a row"):
        label(images, EngineConfig(name="emt", max_failures=2), tmp_path / "out.extxyz")


def test_keys_tell_structures_apart():
    atoms = gold_cluster(4, 0)
    moved = atoms.copy()
    moved.positions[0, 0] += 1e-9
    magnetic = atoms.copy()
    magnetic.set_initial_magnetic_moments([1.0] * 4)
    assert len({structure_key(a) for a in (atoms, moved, magnetic)}) == 3
    assert structure_key(atoms) == structure_key(atoms.copy())


def test_structures_name_their_charge(tmp_path: Path):
    plain = molecule("H2O")
    ion = Atoms("OH", [[0, 0, 0], [0, 0, 0.97]])
    ion.info["total_charge"] = -1
    out = tmp_path / "out.extxyz"
    report = label([plain, ion, plain], EngineConfig(name="gfn1-xtb"), out, reference_keys=True)
    assert (report.labelled, report.calculated_now) == (3, 2)
    done = read_images(out)
    assert [atoms.info["total_charge"] for atoms in done] == [0, -1, 0]
    neutral = tmp_path / "neutral.extxyz"
    del ion.info["total_charge"]
    label([ion], EngineConfig(name="gfn1-xtb"), neutral)
    energy = read_images(neutral)[0].get_potential_energy()
    assert abs(done[1].get_potential_energy() - energy) > 0.1
    assert "REF_energy" in done[0].info


def test_a_link_in_place_of_the_record_is_refused(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    out = tmp_path / "labelled.extxyz"
    directory_of(out).symlink_to(tmp_path / "mine")
    with pytest.raises(NuggetError, match="symbolic link"):
        label(clusters(1), EngineConfig(name="emt"), out)
    assert not list((tmp_path / "mine").iterdir())
