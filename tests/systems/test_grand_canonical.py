"""Systems with varying numbers of atoms: compositions, frames and settings."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.io import write

from nugget.errors import NuggetError
from nugget.generators import Mixer, make_generator
from nugget.search.search_settings import make_config, write_config
from nugget.systems.base import in_frame
from nugget.systems.grand_canonical import GENERATORS, VariedAtoms
from nugget.systems.grand_potential import GrandPotential
from nugget.systems.placed_atoms import PlacedAtoms
from nugget.systems.reservoirs import parse_vary
from nugget.systems.system_settings import kind_of, make_goal, make_system

SLAB = fcc111("Pt", (2, 2, 2), vacuum=6.0)


def on_slab(vary: str) -> VariedAtoms:
    ranges = parse_vary(vary)
    symbols = tuple(s for s, (_, high) in ranges.items() if s != "total" for _ in range(high))
    return VariedAtoms.of(PlacedAtoms.on_template(symbols, SLAB, 3.5), ranges)


def test_members() -> None:
    system = on_slab("O:0-3,H:0-2")
    assert len(system.members) == 12
    assert system.members[(2, 1)].symbols == ("O", "O", "H")
    assert system.members[(0, 0)].symbols == ()
    assert [system.name_of(c) for c in ((0, 0), (1, 2))] == ["clean", "OH2"]
    assert len(on_slab("O:0-3,H:0-2,total:1-3").members) == 8
    with pytest.raises(NuggetError, match="total"):
        on_slab("O:0-3,total:9")
    cluster = VariedAtoms.of(PlacedAtoms.cluster("Pt2"), {"Pt": (0, 2)})
    assert list(cluster.members) == [(1,), (2,)]  # no atoms are no cluster


def test_candidates_have_all_compositions_and_are_valid() -> None:
    system = on_slab("O:0-3,Cu:0-2")
    mixer = Mixer([make_generator(name) for name in GENERATORS], GENERATORS)
    rng = np.random.default_rng(0)
    made = [mixer(rng, system, []) for _ in range(40)]
    parents = [atoms for atoms in made if isinstance(atoms, Atoms)]
    assert len(parents) > 35
    more = [mixer(rng, system, parents[:10]) for _ in range(80)]
    new = [atoms for atoms in more if isinstance(atoms, Atoms)]
    assert {system.placed(atoms) for atoms in parents + new} == set(system.members) - {(0, 0)}
    assert all(system.fault(atoms) is None for atoms in parents + new)
    assert {"insert", "remove", "exchange"} <= {atoms.info["generator"] for atoms in new}


def test_the_bare_template_comes_first() -> None:
    system = on_slab("O:0-3")
    bare = system.required_first([])
    assert bare is system.members[(0,)]
    atoms = make_generator("random_placement")(np.random.default_rng(0), bare)
    assert isinstance(atoms, Atoms)
    assert np.array_equal(atoms.positions, SLAB.positions)
    assert system.fault(atoms) is None
    assert system.required_first([atoms]) is system
    without = on_slab("O:1-3")
    assert without.required_first([]) is without


def test_frame() -> None:
    system = on_slab("O:0-2,H:0-1")
    rng = np.random.default_rng(1)
    made = make_generator("random_placement")(rng, system.members[(2, 1)])
    assert isinstance(made, Atoms)
    order = np.r_[np.arange(8), [10, 8, 9]]  # H first
    framed = in_frame(made[order], system)
    assert framed is not None
    assert np.array_equal(framed.numbers, made.numbers)
    assert np.allclose(framed.positions, made.positions)
    assert in_frame(made[:9], system) is not None
    assert in_frame(made + Atoms("O", [[0, 0, 16]]), system) is None  # three O atoms
    assert system.fault(made + Atoms("O", [[0, 0, 16]])) == "the composition is out of range"


def test_settings_of_both_kinds(tmp_path: Path) -> None:
    write(tmp_path / "slab.traj", SLAB)
    surface = make_config({"system": {
        "kind": "surface", "template": str(tmp_path / "slab.traj"), "vary": "O:0-3",
        "chemical_potential": "O=-2:0", "reference_energies": {"O2": -8.0},
    }})  # fmt: skip
    goal = make_goal(surface.system)
    assert isinstance(goal, GrandPotential)
    assert goal.envelope.references == (-4.0,)
    assert (goal.envelope.lowest, goal.envelope.highest) == ((-2.0,), (0.0,))
    assert surface.search.generators == GENERATORS
    assert surface.system.formula == "O3"
    assert kind_of(surface.system).title(surface.system) == "O:0-3 on slab"
    cluster = make_config({"system": {"vary": "Pt:3-5,O:0-2"}})
    system = make_system(cluster.system, Path())
    assert isinstance(system, VariedAtoms)
    assert system.free
    assert cluster.search.walkers == 0
    file = tmp_path / "settings.toml"
    file.write_text(write_config(surface))
    from nugget.search.search_settings import read_config

    assert read_config(file) == surface


@pytest.mark.parametrize(
    ("system", "match"),
    [({"vary": "O:0-3", "formula": "Au3"}, "not both"), ({"vary": "O:0-3", "kind": "bulk",
      "cell": [4, 4, 4]}, "clusters and on surfaces only"), ({"vary": "Xx:1-2"}, "not an element"),
     ({"chemical_potential": "O=0:1"}, "varying numbers"), ({"kind": "grand-canonical"}, "vary"),
     ({"vary": "O:0-3", "kind": "surface"}, "template"), ({"vary": "O:0-3",
      "chemical_potential": "C=0:1"}, "does not vary")],
)  # fmt: skip
def test_bad_settings(system: dict[str, object], match: str) -> None:
    with pytest.raises(NuggetError, match=match):
        make_config({"system": system})


def test_walkers_are_refused() -> None:
    with pytest.raises(NuggetError, match="varying numbers of atoms"):
        make_config({"system": {"vary": "Pt:3-5"}, "search": {"walkers": 5}})
