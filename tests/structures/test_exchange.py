"""Files of and for other programs: reference keys, chemiscope, POSCAR, CIF and traj."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import ase.io
import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster

from nugget.structures.io import read_images, with_reference_keys, write_images


def labelled(seed: int = 0):
    atoms = gold_cluster(4, seed)
    forces = np.random.default_rng(seed).normal(size=(4, 3))
    atoms.calc = SinglePointCalculator(atoms, energy=-3.5, forces=forces)
    return atoms


def test_reference_keys_are_labels(tmp_path: Path):
    atoms = labelled()
    [named] = with_reference_keys([atoms], charge=-1, spin=2)
    assert named.calc is None
    assert (named.info["total_charge"], named.info["total_spin"]) == (-1, 2)
    write_images(tmp_path / "a.extxyz", [named])
    text = (tmp_path / "a.extxyz").read_text()
    assert "REF_energy=-3.5" in text
    assert "REF_forces:R:3" in text
    [again] = read_images(tmp_path / "a.extxyz")
    assert again.get_potential_energy() == -3.5
    assert np.allclose(again.get_forces(), atoms.get_forces(), atol=1e-7)
    assert again.info["total_charge"] == -1


def test_labels_of_the_file_come_first(tmp_path: Path):
    atoms = labelled()
    atoms.info["REF_energy"] = 7.0
    write_images(tmp_path / "a.extxyz", [atoms])
    assert read_images(tmp_path / "a.extxyz")[0].get_potential_energy() == -3.5


def test_stress_with_nine_components(tmp_path: Path):
    cell = bulk("Cu", cubic=True)
    cell.info.update(REF_energy=1.0, REF_stress=np.arange(9.0))
    ase.io.write(tmp_path / "a.extxyz", cell)
    assert read_images(tmp_path / "a.extxyz")[0].get_stress().shape == (6,)


@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_chemiscope(tmp_path: Path, suffix: str):
    images = [labelled(0), labelled(1)]
    for k, atoms in enumerate(images):
        atoms.info.update(energy_uncertainty=0.1 * k, kind="cluster", vector=np.zeros(3))
    images[0].info["only"] = 1
    path = tmp_path / f"a.chemiscope.json{suffix}"
    write_images(path, images)
    data = json.loads(gzip.decompress(path.read_bytes()) if suffix else path.read_bytes())
    assert [s["size"] for s in data["structures"]] == [4, 4]
    assert data["structures"][0]["names"] == ["Au"] * 4
    assert data["properties"]["energy_uncertainty"] == {
        "target": "structure", "values": [0.0, 0.1], "units": "eV",
    }  # fmt: skip
    assert data["properties"]["kind"]["values"] == ["cluster", "cluster"]
    assert not {"only", "vector"} & data["properties"].keys()
    assert len(data["environments"]) == len(data["properties"]["force (atom)"]["values"]) == 8


@pytest.mark.parametrize("name", ["POSCAR", "a.cif", "a.traj", "a.vasp"])
def test_other_formats(tmp_path: Path, name: str):
    cell = bulk("NaCl", "rocksalt", a=5.6)
    write_images(tmp_path / name, [cell])
    [again] = read_images(tmp_path / name)
    assert again.cell.volume == pytest.approx(cell.cell.volume, rel=1e-3)
    assert sorted(again.symbols) == sorted(cell.symbols)
