"""The conformance check of generators."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ase import Atoms

from nugget.generators import Failure, Generator, Problem, make_generator
from nugget.testing import _compare as ref


def check_generator(
    generator: Generator, problems: Sequence[Problem] | None = None, seed: int = 0
) -> None:
    """Raise ConformanceError unless the generator keeps its contract (`nugget.generators.base`).

    Structures are valid, of the right atoms in the right order and named after the generator;
    parents stay as they are; the same random numbers give the same structure. At least one of the
    problems must suit it (default: Au8, Cu3Au4, and Cu2Au2 in a periodic cell).
    """
    if problems is None:
        cell = 4.2 * np.eye(3)
        problems = (
            Problem.cluster("Au8"), Problem.cluster("Cu3Au4"), Problem.bulk("Cu2Au2", cell)
        )  # fmt: skip
    suited = [problem for problem in problems if generator.suits(problem)]
    ref.require(
        bool(suited), f"The generator {generator.name!r} suits at least one of the problems."
    )
    made = sum(_check_on(generator, problem, seed) for problem in suited)
    ref.require(made > 0, f"The generator {generator.name!r} makes a valid structure now and then.")


def _check_on(generator: Generator, problem: Problem, seed: int) -> int:
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
        ref.require(
            np.array_equal(first.numbers, problem.numbers),
            "A structure has the atoms of its problem, in the same order.",
        )
        fault = problem.fault(first.positions)
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


def _parents(problem: Problem, n: int, seed: int) -> list[Atoms]:
    start = make_generator("random_cluster" if problem.free else "random_placement")
    found: list[Atoms] = []
    for k in range(100):
        made = start(np.random.default_rng([seed, 1000 + k]), problem)
        if isinstance(made, Atoms):
            found.append(made)
        if len(found) == n:
            break
    return found
