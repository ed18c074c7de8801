"""Every generator: valid structures of the right composition, reproducible, or a reason why not."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache
from typing import ClassVar

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111
from ase.cluster import Icosahedron
from ase.constraints import FixAtoms
from ase.data import covalent_radii
from ase.neighborlist import neighbor_list
from hypothesis import given, settings
from hypothesis import strategies as st

from nugget.errors import NuggetError
from nugget.generators import BaseGenerator, Failure, Mixer, Proposal, make_generator, suits
from nugget.generators.cut_and_splice import splice
from nugget.registry import names
from nugget.structures.regions import Box, Sphere
from nugget.systems import PlacedAtoms
from nugget.systems.validity import DISCONNECTED, OK, TOO_CLOSE, check, lattice

# Ours only: what other packages offer is for their own tests, as are crystals, molecules and
# changes of the composition.
ALL = map(make_generator, names("generator"))
GENERATORS = {
    g.name: g
    for g in ALL
    if type(g).__module__.startswith("nugget.")
    and not getattr(g, "variable_cell", False)
    and not getattr(g, "whole_molecules", False)
    and not getattr(g, "other_compositions", False)
}


@cache
def problem(name: str) -> PlacedAtoms:
    if name == "Au20":
        return PlacedAtoms.cluster("Au20")
    if name == "alloy":
        return PlacedAtoms.cluster("Cu6Au7")
    if name == "slab":
        return PlacedAtoms.on_template("Cu3O2", fcc111("Cu", (3, 3, 2), vacuum=7.0), height=4.0)
    return PlacedAtoms.bulk("Ti2O4", [[4.4, 0, 0], [0.6, 4.4, 0], [0, 0.4, 4.2]])


PROBLEMS = ("Au20", "alloy", "slab", "bulk")


@cache
def pool(name: str) -> tuple[Atoms, ...]:
    rng = np.random.default_rng(11)
    first = make_generator("random_cluster" if problem(name).free else "random_placement")
    made = [first(rng, problem(name)) for _ in range(12)]
    return tuple(a for a in made if isinstance(a, Atoms))


def faults(atoms: Atoms, p: PlacedAtoms) -> list[str]:
    """The same rules as the generators', by ASE's neighbour list and plain graph search."""
    found = []
    if not np.array_equal(atoms.numbers, p.numbers):
        found.append("composition")
    if not np.array_equal(atoms.positions[: p.n_fixed], p.template.positions):
        found.append("template moved")
    radii = covalent_radii[atoms.numbers]
    i, j, d = neighbor_list("ijd", atoms, 2 * p.bond_ratio * radii.max() + 0.1)
    ratio = d / (radii[i] + radii[j])
    placed = (i >= p.n_fixed) | (j >= p.n_fixed)
    if (ratio[placed] < p.min_ratio - 1e-9).any():
        found.append("too close")
    reached = set(range(p.n_fixed)) or {0}
    bonded = ratio <= p.bond_ratio + 1e-9
    edges = list(zip(i[bonded].tolist(), j[bonded].tolist(), strict=True))
    while True:
        more = {b for a, b in edges if a in reached} - reached
        if not more:
            break
        reached |= more
    if len(reached) < len(atoms):
        found.append("not connected")
    return found


CASES = [
    (name, which)
    for which in PROBLEMS
    for name, g in GENERATORS.items()
    if suits(g, problem(which))
]


def test_the_cases_cover_every_generator():
    assert {name for name, _ in CASES} == set(GENERATORS)
    assert all((n, "slab") in CASES for n in ("rattle", "cut_and_splice", "permutation", "melt"))


@pytest.mark.parametrize(("name", "which"), CASES)
@settings(deadline=None, max_examples=8)
@given(seed=st.integers(0, 2**32 - 1))
def test_structures_are_valid(name, which, seed):
    p, parents = problem(which), pool(which)
    before = [a.positions.copy() for a in parents]
    rng = np.random.default_rng(seed)
    result = make_generator(name)(rng, p, parents)
    if isinstance(result, Failure):
        assert result.reason
        return
    assert faults(result, p) == []
    assert p.region is not None
    assert p.region.inside(result.positions[p.n_fixed :], 1e-6).all()
    assert result.info["generator"] == name
    assert np.array_equal(result.pbc, p.template.pbc)
    assert np.allclose(result.cell.array, p.template.cell.array)
    assert all(np.array_equal(a.positions, x) for a, x in zip(parents, before, strict=True))
    again = make_generator(name)(np.random.default_rng(seed), p, parents)
    assert isinstance(again, Atoms)
    assert np.array_equal(again.positions, result.positions)
    if make_generator(name).needs:
        assert all(np.abs(result.positions - x).max() > 1e-6 for x in before)


@pytest.mark.parametrize(("name", "which"), CASES)
def test_generators_seldom_fail_and_seldom_repeat(name, which):
    rng = np.random.default_rng(1)
    made = [make_generator(name)(rng, problem(which), pool(which)) for _ in range(30)]
    good = [a for a in made if isinstance(a, Atoms)]
    # Small anions swap badly with large cations in a dense cell; most else nearly always works.
    least = {
        ("permutation", "bulk"): 1, ("cut_and_splice", "bulk"): 10, ("twist", "Au20"): 10,
        ("alternating", "bulk"): 8,
    }  # fmt: skip
    assert len(good) >= least.get((name, which), 24)
    different = {a.positions.round(6).tobytes() for a in good}
    # Few atoms have few permutations and cuts; all others are continuous.
    few = {"permutation": 4, "cut_and_splice": 2}.get(name, 1)
    assert len(different) >= len(good) // few


def test_template_is_fixed_unless_it_says_otherwise():
    rng = np.random.default_rng(0)
    atoms = make_generator("random_placement")(rng, problem("slab"))
    assert isinstance(atoms, Atoms)
    (constraint,) = atoms.constraints
    assert constraint.index.tolist() == list(range(problem("slab").n_fixed))
    slab = fcc111("Cu", (3, 3, 2), vacuum=7.0)
    slab.set_constraint(FixAtoms([0, 1, 2]))
    loose = make_generator("random_placement")(rng, PlacedAtoms.on_template("Cu2", slab))
    assert isinstance(loose, Atoms)
    assert loose.constraints[0].index.tolist() == [0, 1, 2]


def test_surface_move_takes_a_loose_atom_to_more_neighbours():
    """An adatom on top of a compact cluster: it moves, and the mean coordination grows."""
    p = PlacedAtoms.cluster("Au14")
    core = Icosahedron("Au", 2)
    x = np.concatenate([core.positions, core.positions[-1:] * 1.95])
    start = Atoms(p.numbers, x)
    rng = np.random.default_rng(2)
    made = [make_generator("surface_move", most=1)(rng, p, [start]) for _ in range(20)]
    good = [a for a in made if isinstance(a, Atoms)]
    before = p.coordination(x)[-1]
    after = [p.coordination(a.positions)[-1] for a in good]
    assert len(good) >= 18
    assert before == 1
    assert np.mean(after) >= 2.5


def test_splice_keeps_the_composition_and_both_parents_parts():
    numbers = np.array([29, 29, 29, 79, 79])
    a = np.arange(15.0).reshape(5, 3)
    b = a + 100.0
    high, low = np.array([0.1, 0.9, 0.5, 0.2, 0.8]), np.array([0.3, 0.2, 0.1, 0.9, 0.5])
    child, from_upper = splice(a, b, high, low, numbers, 0.4)
    assert from_upper.tolist() == [True, True, False, True, False]
    assert child.tolist() == [
        a[1].tolist(),
        a[2].tolist(),
        b[2].tolist(),
        a[4].tolist(),
        b[4].tolist(),
    ]


def test_permutation_keeps_the_places():
    parent = pool("alloy")[0]
    rng = np.random.default_rng(3)
    child = make_generator("permutation")(rng, problem("alloy"), [parent])
    assert isinstance(child, Atoms)
    centred = parent.positions - parent.positions.mean(axis=0)
    d = np.linalg.norm(child.positions[:, None] - centred[None], axis=2)
    assert sorted(d.argmin(axis=1)) == list(range(13))
    assert d.min(axis=1).max() < 1e-9
    only = make_generator("permutation")(rng, problem("Au20"), pool("Au20"))
    assert isinstance(only, Failure)


def test_too_few_or_foreign_parents_are_reasons_not_crashes():
    rng = np.random.default_rng(0)
    for name, g in GENERATORS.items():
        if g.needs:
            for which in PROBLEMS:
                assert isinstance(make_generator(name)(rng, problem(which), ()), Failure)
    result = make_generator("rattle")(rng, problem("Au20"), pool("alloy"))
    assert isinstance(result, Failure)
    assert "parent" in result.reason


@dataclass(frozen=True, kw_only=True)
class Scripted(BaseGenerator):
    """Gives what it is told to, and remembers which parents it saw."""

    name: ClassVar[str] = "scripted"
    needs: ClassVar[int] = 1
    idle: ClassVar[str] = "nothing was written"
    script: tuple = ()
    seen: list = field(default_factory=list)

    def propose(self, rng, problem, parents):
        self.seen.append(parents[0].copy())
        parents[0] += 99.0  # a copy: nobody else sees this
        yield from self.script


class Redrawing(Scripted):
    redraws: ClassVar[bool] = True


def test_the_base_takes_the_first_valid_proposal_and_keeps_the_last_reason():
    p, parents = problem("Au20"), pool("Au20")
    good, piled = parents[0].positions, np.zeros((20, 3))
    rng = np.random.default_rng(0)

    def run(*script, **options):
        return Scripted(script=script, **options)(rng, p, parents)

    made = run(Failure("not yet"), Proposal(piled), Proposal(good, {"mark": "here"}))
    assert isinstance(made, Atoms)
    assert made.info == {"generator": "scripted", "mark": "here"}
    np.testing.assert_allclose(made.positions, good, atol=1e-12)
    assert run(Proposal(piled), Failure("no room")) == Failure("no room")
    assert run(Failure("no room"), Proposal(piled)) == Failure("two atoms are too close")
    assert run() == run(Proposal(good), tries=0) == Failure("nothing was written")


def test_the_base_draws_parents_once_unless_told_otherwise():
    p, parents = problem("Au20"), pool("Au20")
    before = [a.positions.copy() for a in parents]
    for kind, few in ((Scripted, {1}), (Redrawing, range(2, 13))):
        generator = kind(tries=30)
        generator(np.random.default_rng(0), p, parents)
        assert len(generator.seen) == 30
        assert len({x.tobytes() for x in generator.seen}) in few
    assert all(np.array_equal(a.positions, x) for a, x in zip(parents, before, strict=True))


@pytest.mark.parametrize("name", sorted(GENERATORS))
def test_an_unsuitable_problem_is_a_reason(name):
    generator = GENERATORS[name]
    problems = [*map(problem, PROBLEMS), PlacedAtoms.cluster("Au"), PlacedAtoms(("Au", "Au"))]
    for p in problems:
        if not suits(generator, p):
            result = generator(np.random.default_rng(0), p, [Atoms(p.numbers)] * 2)
            assert result == Failure(generator.unsuited)


def test_a_region_without_room_is_a_reason():
    tight = PlacedAtoms(("Au",) * 8, region=Sphere(1.0))
    for name in ("random_cluster", "random_placement", "symmetric"):
        result = make_generator(name, tries=3)(np.random.default_rng(0), tight)
        assert isinstance(result, Failure)
        assert result.reason


@settings(deadline=None, max_examples=30)
@given(seed=st.integers(0, 2**32 - 1), n=st.integers(1, 9), periodic=st.booleans())
def test_check_agrees_with_ase(seed, n, periodic):
    rng = np.random.default_rng(seed)
    cell = 4.5 * np.eye(3) + rng.uniform(-1.5, 1.5, (3, 3))
    atoms = Atoms(rng.choice([8, 29, 79], n), rng.uniform(-3, 9, (n, 3)), cell=cell, pbc=periodic)
    p = PlacedAtoms(
        tuple(atoms.get_chemical_symbols()),
        Atoms(cell=cell, pbc=periodic),
        Box((0, 0, 0), ((9, 0, 0), (0, 9, 0), (0, 0, 9))),
        min_ratio=0.4,
    )
    g = lattice(cell, atoms.pbc, 2 * p.bond_ratio * p.radii.max())
    code = check(
        atoms.positions, p.radii, 0, g.cell, g.inverse, g.shifts, p.min_ratio, p.bond_ratio
    )
    found = faults(atoms, p)
    expected = TOO_CLOSE if "too close" in found else DISCONNECTED if found else OK
    assert code == expected


def test_problems_refuse_nonsense():
    for bad in ("Au2x", "Xx3"):
        with pytest.raises(NuggetError):
            PlacedAtoms.cluster(bad)
    with pytest.raises(NuggetError, match="no atoms"):
        PlacedAtoms(())
    with pytest.raises(NuggetError, match="region"):
        PlacedAtoms(("Au",), fcc111("Cu", (2, 2, 2), vacuum=5.0))
    with pytest.raises(NuggetError, match="centre"):
        PlacedAtoms(("Au",), fcc111("Cu", (2, 2, 2), vacuum=5.0), Sphere(3.0))
    with pytest.raises(NuggetError, match="not periodic"):
        PlacedAtoms.on_template("Au", Atoms("Cu4"))
    with pytest.raises(NuggetError, match="three independent"):
        PlacedAtoms.bulk("Au4", [4.0, 4.0, 0.0])
    with pytest.raises(NuggetError, match="bond_ratio"):
        PlacedAtoms.cluster("Au4", min_ratio=2.0)
    with pytest.raises(NuggetError, match="rattle"):
        make_generator("ratle")


def all_generators():
    return [make_generator(n) for n in GENERATORS]


def test_mixer_leaves_out_what_cannot_be_used():
    mixer = Mixer(all_generators(), {"twist": 0.0})
    p = dict(zip(mixer.names, mixer.probabilities(problem("Au20"), 0), strict=True))
    independent = {"random_cluster", "random_placement", "symmetric", "motif"}
    assert {n for n, v in p.items() if v > 0} == independent
    p = dict(zip(mixer.names, mixer.probabilities(problem("slab"), 5), strict=True))
    assert p["random_cluster"] == p["symmetric"] == p["twist"] == 0
    assert sum(p.values()) == pytest.approx(1.0)
    with pytest.raises(NuggetError, match="needs no parents"):
        Mixer([make_generator("rattle")]).probabilities(problem("Au20"), 0)


def test_mixer_learns_but_lets_nothing_die():
    mixer = Mixer(all_generators(), floor=0.2)
    for _ in range(300):
        mixer.credit("rattle", 1.0)
        mixer.credit("melt", 0.0)
    p = dict(zip(mixer.names, mixer.probabilities(problem("alloy"), 5), strict=True))
    assert p["rattle"] > 1.5 / len(p)
    assert 0.2 / len(p) <= p["melt"] < 0.5 / len(p)
    with pytest.raises(NuggetError):
        mixer.credit("nobody", 1.0)


def test_mixer_makes_structures_with_every_generator():
    mixer = Mixer(all_generators())
    rng = np.random.default_rng(0)
    made = [mixer(rng, problem("alloy"), pool("alloy")) for _ in range(150)]
    used = {a.info["generator"] for a in made if isinstance(a, Atoms)}
    assert used == set(GENERATORS) - {"alternating"}  # an alloy has no cations and anions
    hopeless = Mixer([make_generator("random_cluster", tries=1)])
    result = hopeless(rng, PlacedAtoms(("Au",) * 8, region=Sphere(1.0)))
    assert isinstance(result, Failure)
    assert result.reason.startswith("random_cluster: ")
