"""The conformance check of generators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ase import Atoms

from nugget._compiled.arrays import Ints
from nugget.generators import Crystal, Failure, Generator, Problem, make_generator, suits
from nugget.testing import _compare as ref


def check_generator(
    generator: Generator, problems: Sequence[Problem | Crystal] | None = None, seed: int = 0
) -> None:
    """Raise ConformanceError unless the generator keeps its contract (`nugget.generators.base`).

    Structures are valid, of the right atoms in the right order and named after the generator;
    parents stay as they are; the same random numbers give the same structure. At least one of the
    problems must suit it (default: Au8, Cu3Au4, and Cu2Au2 in a periodic cell; for generators of
    crystals, 1 to 8 units of Si and 1 or 2 of Cu3Au; for those of whole molecules, H2O*3 and
    CO*2,Au3).
    """
    if problems is None and getattr(generator, "variable_cell", False):
        problems = (Crystal("Si", (1, 8)), Crystal("Cu3Au", (1, 2)))
    elif problems is None and getattr(generator, "whole_molecules", False):
        problems = (Problem.cluster("H2O*3"), Problem.cluster("CO*2,Au3"))
    elif problems is None:
        cell = 4.2 * np.eye(3)
        problems = (
            Problem.cluster("Au8"), Problem.cluster("Cu3Au4"), Problem.bulk("Cu2Au2", cell)
        )  # fmt: skip
    suited = [problem for problem in problems if suits(generator, problem)]
    ref.require(
        bool(suited), f"The generator {generator.name!r} suits at least one of the problems."
    )
    made = sum(_check_on(generator, problem, seed) for problem in suited)
    ref.require(made > 0, f"The generator {generator.name!r} makes a valid structure now and then.")


def _check_on(generator: Generator, problem: Problem | Crystal, seed: int) -> int:
    parents = _parents(problem, max(generator.needs, 2), seed)
    before = [atoms.positions.copy() for atoms in parents]
    made = 0
    for k in range(5):
        first, again = (
            generator(np.random.default_rng([seed, k]), problem, parents) for _ in range(2)
        )
        if isinstance(first, Failure):
            ref.require(isinstance(again, Failure), "The same random numbers give the same result.")
            ref.require(bool(first.reason), "A failure gives its reason.")
            continue
        made += 1
        assert isinstance(again, Atoms)
        ref.same(
            again.positions, first.positions, "The same random numbers give the same structure."
        )
        numbers, fault = _expected(problem, first)
        ref.require(
            np.array_equal(first.numbers, numbers),
            "A structure has the atoms of its problem, in the same order.",
        )
        ref.require(fault is None, f"Structures are valid ({fault}).")
        ref.require(
            first.info.get("generator") == generator.name,
            "`info['generator']` of a structure is the generator's name.",
        )
    for atoms, positions in zip(parents, before, strict=True):
        ref.same(atoms.positions, positions, "Parents are not changed.")
    if generator.needs:
        none = generator(np.random.default_rng(seed), problem, [])
        ref.require(isinstance(none, Failure), "Without parents that it needs, it gives a Failure.")
    return made


def _expected(problem: Problem | Crystal, atoms: Atoms) -> tuple[Ints, str | None]:
    """The atoms that a structure should have, and what is wrong with it."""
    if isinstance(problem, Problem):
        return problem.numbers, problem.fault(atoms.positions)
    return problem.numbers_of(max(problem.units_of(atoms), 1)), problem.fault(atoms)


def _parents(problem: Problem | Crystal, n: int, seed: int) -> list[Atoms]:
    if isinstance(problem, Problem):
        atoms = "random_cluster" if problem.free else "random_placement"
        start = make_generator("random_molecules" if problem.units else atoms)
    else:
        start = make_generator("random_crystal")
    found: list[Atoms] = []
    for k in range(100):
        made = start(np.random.default_rng([seed, 1000 + k]), problem)
        if isinstance(made, Atoms):
            found.append(made)
        if len(found) == n:
            break
    return found
