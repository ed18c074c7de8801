"""Several compositions at once: which there are, and known crystals put into another one."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk

from nugget.errors import NuggetError
from nugget.generators import Mixer, make_generator
from nugget.systems import Compositions, Crystal
from nugget.systems.compositions import elements_of

BOTH = Compositions("CuAu", (1, 8), most=8)


def test_all_compositions_once() -> None:
    """Farey's sequence: 23 fractions with denominators up to 8, 0 and 1 among them."""
    assert len(BOTH.members) == 23
    assert [one.formula for one in BOTH.members.values()][:4] == ["Cu1", "Au1", "Cu1Au1", "Cu1Au2"]
    assert BOTH.members[(1, 1)].units == (1, 4)
    assert BOTH.members[(3, 1)].units == (1, 2)
    assert BOTH.members[(0, 1)].units == (1, 8)
    three = Compositions("MgSiO", (1, 3), most=3)
    assert {tuple(sorted(c)) for c in three.members} == {(0, 0, 1), (0, 1, 1), (0, 1, 2), (1, 1, 1)}


@pytest.mark.parametrize("text", ["Cu", "Cu-Cu", "Cu-Xx", "Cu-", ""])
def test_bad_elements(text: str) -> None:
    with pytest.raises(NuggetError, match="compositions"):
        elements_of(text)


def test_too_many_or_too_few() -> None:
    with pytest.raises(NuggetError, match="more than 500"):
        Compositions("CuAuAgPt", (1, 20), most=20)
    with pytest.raises(NuggetError, match="max_atoms"):
        Compositions("CuAuAg", (1, 2), most=2)


def test_elements_come_first() -> None:
    assert BOTH.required_first([]) is BOTH.members[(1, 0)]
    assert BOTH.required_first([Atoms("Cu4"), Atoms("CuAu")]) is BOTH.members[(0, 1)]
    assert BOTH.required_first([Atoms("Cu4"), Atoms("Au")]) is BOTH
    one = Crystal("Cu3Au")
    assert one.required_first([]) is one


def test_transmuted_keeps_sites_and_changes_little() -> None:
    rng = np.random.default_rng(0)
    fcc = bulk("Cu", "fcc", a=3.6)
    learned = BOTH.updated([fcc, bulk("Au", "fcc", a=4.1)], [0.0, 0.0])
    made = learned.transmuted(rng, fcc, BOTH.members[(7, 1)])
    assert made is not None
    assert made.symbols.formula.count() == {"Cu": 7, "Au": 1}
    # Every atom keeps its 12 neighbours; the cell is larger, as gold is.
    scaled = made.copy()
    scaled.set_cell(made.cell * (8 * fcc.get_volume() / made.get_volume()) ** (1 / 3), True)
    distances = scaled.repeat(3).get_distances(0, range(1, 216), mic=True)
    assert np.sum(np.abs(distances - 3.6 / np.sqrt(2)) < 1e-6) == 12
    assert made.get_volume() > 8 * fcc.get_volume()
    assert learned.transmuted(rng, made, BOTH.members[(4, 3)]) is None  # 8 atoms are not 7
    back = learned.transmuted(rng, made, BOTH.members[(3, 1)])
    assert back is not None
    assert np.sum(back.numbers != made.numbers) == 1


def test_volumes_are_learned_by_element() -> None:
    images = [bulk("Cu", "fcc", a=3.6), bulk("Au", "fcc", a=4.1), bulk("Au", "bcc", a=3.3)]
    learned = BOTH.updated(images, [-1.0, -1.0, -0.9])
    copper, gold = learned.volumes
    assert 10 < copper < 14
    assert 16 < gold < 20
    assert learned.members[(1, 1)].volume == pytest.approx((copper + gold) / 2)
    assert learned.members[(1, 1)].spread < BOTH.members[(1, 1)].spread


def test_a_mixer_makes_all_kinds() -> None:
    rng = np.random.default_rng(1)
    names = ("random_crystal", "space_group", "crystal_permutation", "strain", "supercell")
    mixer = Mixer([make_generator(name) for name in names])
    parents = [bulk("Cu", "fcc", a=3.6), bulk("NaCl", "rocksalt", a=4.9)]
    parents[1].numbers = [29, 79]
    made = [mixer(rng, BOTH, parents) for _ in range(40)]
    images = [one for one in made if isinstance(one, Atoms)]
    assert len(images) > 35
    assert all(BOTH.holds(one) and BOTH.fault(one) is None for one in images)
    assert len({BOTH.counts_of(one) for one in images}) > 10
    assert {one.info["generator"] for one in images} == set(names)
