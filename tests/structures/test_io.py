from __future__ import annotations

import bz2
import gzip
import lzma

import numpy as np
import pytest
from ase.calculators.singlepoint import SinglePointCalculator
from ase.io import write
from example_structures import gold_cluster

from nugget import NuggetError
from nugget.structures.io import read_images, write_images

IMAGES = [gold_cluster(n, n) for n in (4, 5, 6, 7)]
for number, atoms in enumerate(IMAGES):
    atoms.calc = SinglePointCalculator(atoms, energy=float(number), forces=np.ones((len(atoms), 3)))


def test_compressed_files_hold_the_same(tmp_path):
    write(tmp_path / "a.extxyz", IMAGES)
    write(tmp_path / "a.traj", IMAGES)
    for inner in ("a.extxyz", "a.traj"):
        content = (tmp_path / inner).read_bytes()
        for suffix, module in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)):
            packed = tmp_path / (inner + suffix)
            packed.write_bytes(module.compress(content))
            found = read_images(packed)
            assert [a.get_potential_energy() for a in found] == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["a.extxyz", "a.extxyz.gz", "a.db", "a.traj"])
@pytest.mark.parametrize(
    ("index", "sizes"),
    [(":", [4, 5, 6, 7]), ("1:3", [5, 6]), ("::2", [4, 6]), ("-1", [7]), (2, [6]), ("0", [4])],
)
def test_slices(tmp_path, name, index, sizes):
    write_images(tmp_path / name, IMAGES)
    assert [len(a) for a in read_images(tmp_path / name, index)] == sizes


def test_messages(tmp_path):
    def attempt(name: str, message: str, index: str = ":") -> None:
        with pytest.raises(NuggetError, match=message) as caught:
            read_images(tmp_path / name, index)
        assert "\n" not in str(caught.value)

    attempt("none.extxyz", "none.extxyz does not exist")
    attempt("", "is a directory")
    (tmp_path / "empty.extxyz").write_text("")
    attempt("empty.extxyz", "empty.extxyz holds no structures")
    (tmp_path / "text.extxyz").write_text("This is\nno structure.\n")
    attempt("text.extxyz", "text.extxyz could not be read as structures")
    (tmp_path / "what.ever").write_text("This is\nno structure.\n")
    attempt("what.ever", "what.ever could not be read as structures")
    (tmp_path / "bytes.extxyz").write_bytes(bytes(range(256)))
    attempt("bytes.extxyz", "bytes.extxyz could not be read as structures")
    write_images(tmp_path / "a.extxyz.gz", IMAGES)
    whole = (tmp_path / "a.extxyz.gz").read_bytes()
    (tmp_path / "cut.extxyz.gz").write_bytes(whole[: len(whole) // 2])
    attempt("cut.extxyz.gz", "not a complete .gz file")
    (tmp_path / "plain.extxyz.gz").write_text("4\n")
    attempt("plain.extxyz.gz", "not a complete .gz file")
    attempt("a.extxyz.gz", "is not a slice", "first")
    attempt("a.extxyz.gz", "is not a slice", "::0")
    attempt("a.extxyz.gz", "is not a slice", "")
    attempt("a.extxyz.gz", "holds no structures at index 7:9", "7:9")
    attempt("a.extxyz.gz", "no structure with index 9", "9")
    (tmp_path / "bad.db").write_text("no database")
    attempt("bad.db", "bad.db could not be read")


def test_where_it_cannot_write(tmp_path):
    with pytest.raises(NuggetError, match="could not be written"):
        write_images(tmp_path / "no" / "a.extxyz", IMAGES)
    with pytest.raises(NuggetError, match="could not be written"):
        write_images(tmp_path / "a.unheardof", IMAGES)
