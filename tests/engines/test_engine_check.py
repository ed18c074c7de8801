"""The first check of an engine, and the bounds of energies."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import molecule
from ase.calculators.emt import EMT
from ase.calculators.lj import LennardJones
from ase.calculators.morse import MorsePotential
from ase.calculators.singlepoint import SinglePointCalculator
from ase.units import Bohr, Hartree

from nugget.engines.engine_check import displaced, first_check, isolated_atoms, misfit
from nugget.engines.engine_settings import EngineConfig
from nugget.engines.outcome import Failure, Outcome
from nugget.engines.plausibility import (
    Doubt,
    agree,
    contradiction,
    doubtful,
    implausibly_low,
    overbound,
    settle,
)
from nugget.engines.programs import xtb
from nugget.errors import NuggetError

CALCULATORS = {
    "emt": EMT,
    "lj": lambda: LennardJones(sigma=2.5, epsilon=1.0, rc=1e3),
    "morse": lambda: MorsePotential(epsilon=1.0, r0=2.8, rho0=14.0, rcut1=50.0, rcut2=60.0),
}


def cluster(seed: int, scale: float = 1.0) -> Atoms:
    rng = np.random.default_rng(seed)
    grid = np.array([[i, j, k] for i in range(2) for j in range(2) for k in range(2)], float)
    return Atoms("Au8", scale * (2.8 * grid + rng.normal(scale=0.15, size=grid.shape)))


def evaluated(atoms: Atoms, name: str, factor: float = 1.0, order: int = 0) -> Atoms:
    atoms = atoms.copy()
    atoms.calc = CALCULATORS[name]()
    energy, forces = atoms.get_potential_energy(), np.roll(atoms.get_forces(), order, axis=0)
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=factor * forces)
    return atoms


@pytest.mark.parametrize("name", CALCULATORS)
def test_right_forces_agree(name: str) -> None:
    for seed, scale in ((0, 1.0), (1, 0.8), (2, 0.7), (3, 1.2)):
        start = evaluated(cluster(seed, scale), name)
        error = misfit(start, evaluated(displaced(start, seed), name))
        assert error is None or error < 0.2


@pytest.mark.parametrize("name", CALCULATORS)
@pytest.mark.parametrize(
    ("factor", "order", "message"),
    [(Bohr / Hartree, 0, r"5\d\.?\d* times too small: .*Hartree/Bohr"), (-1.0, 0, "wrong sign"),
     (1.0, 3, "do not belong")],
)  # fmt: skip
def test_wrong_forces_disagree(name: str, factor: float, order: int, message: str) -> None:
    start = evaluated(cluster(0), name, factor, order)
    end = evaluated(displaced(start, 0), name, factor, order)
    with pytest.raises(NuggetError, match=message):
        misfit(start, end)


def test_one_false_answer_is_outvoted() -> None:
    true = evaluated(cluster(0), "emt")
    for false in range(4):  # the first, the repetition, the difference, none
        calls = []

        def evaluate(atoms: Atoms, fresh: bool, false: int = false, calls: list = calls) -> Outcome:
            calls.append(fresh)
            answer = evaluated(atoms, "emt")
            if len(calls) == false:
                answer.calc.results["energy"] -= 50.0
            return Outcome(answer)

        first = evaluated(cluster(0), "emt")
        if false == 0:
            first.calc.results["energy"] -= 50.0
        check = first_check(first, evaluate, 0)
        assert check.settled.calc.results["energy"] == true.calc.results["energy"]
        assert len(calls) == (2 if false == 3 else 3)
        assert check.report().noise == 0.0


def test_energies_that_scatter_are_refused() -> None:
    energies = iter([1.0, 3.0])

    def evaluate(atoms: Atoms, fresh: bool) -> Outcome:
        atoms = evaluated(atoms, "emt")
        atoms.calc.results["energy"] = next(energies)
        return Outcome(atoms)

    with pytest.raises(NuggetError, match="for the same structure"):
        first_check(evaluated(cluster(0), "emt"), evaluate, 0)


def test_isolated_atoms_bound_energies() -> None:
    au = evaluated(cluster(0), "emt")
    assert overbound(au, {79: 3.8}) is None
    assert overbound(au, {29: 3.8}) is None
    au.calc.results["energy"] -= 150.0
    assert "below the isolated atoms" in str(overbound(au, {79: 3.8}))
    for config, reason in (
        (EngineConfig(name="emt", charge=1), "charge and spin"),
        (EngineConfig(name="emt", vacuum=5.0), "needs a box"),
    ):
        outcomes, note = isolated_atoms(config, [79], lambda atoms: Outcome(atoms))
        assert not outcomes
        assert reason in note
    failed = Outcome(Atoms("Au"), Failure.UNCONVERGED, "SCF")
    assert "Au failed" in isolated_atoms(EngineConfig(name="emt"), [79], lambda atoms: failed)[1]


def test_neighbours_must_agree_with_their_forces() -> None:
    for name in CALCULATORS:
        start = evaluated(cluster(0), name)
        near = cluster(0)
        near.rattle(0.05, seed=1)
        end = evaluated(near, name)
        assert contradiction(end, [start]) is None
        end.calc.results["energy"] -= 200.0
        doubt = contradiction(end, [start])
        assert isinstance(doubt, Doubt)
        # A repetition refutes a doubt, but it does not refute a firm reason.
        assert settle(Outcome(end), Outcome(end), lambda atoms, doubt=doubt: doubt).ok
        assert not settle(Outcome(end), Outcome(end), lambda atoms: "impossible").ok


def test_the_lowest_energies_may_be_doubtful() -> None:
    usual = [-3.0, -2.9, -2.8, -2.85, -2.7]
    assert not doubtful(usual)
    assert not doubtful([-9.0, -2.9, -2.8])  # too few
    assert doubtful([-9.0, *usual])
    assert doubtful([-9.0, -30.0, *usual])
    assert not doubtful([100.0, 500.0, 20.0, *usual])  # compressed ones
    assert not doubtful([-9.0, *usual], confirmed=[-8.9])
    assert doubtful([-9.0, *usual], confirmed=[-8.0])
    low, others = cluster(0), [evaluated(cluster(k), "emt") for k in range(5)]
    low.calc = SinglePointCalculator(low, energy=-900.0, forces=np.zeros((8, 3)))
    assert implausibly_low(low, others) is not None
    low.calc.results["energy"] = -10.0
    assert implausibly_low(low, others) is None
    assert agree(1.0, 1.01, 8)
    assert not agree(1.0, 0.0, 8)
    assert agree(1.0, 0.8, 8, noise=0.1)


def test_false_solutions_of_tight_binding_are_unconverged(monkeypatch: pytest.MonkeyPatch) -> None:
    water = molecule("H2O")
    water.calc = xtb.xtb("GFN1-xTB")
    energy = water.get_potential_energy()
    assert xtb.isolated_atom("GFN1-xTB", 1500.0, 8) == pytest.approx(-118.84, abs=0.1)
    # From charges at a higher temperature it returns to the same solution.
    water.calc = calculator = xtb.xtb("GFN1-xTB")
    problems = iter(["SCF converged to a false solution"])
    monkeypatch.setattr(type(calculator), "_problem", lambda self: next(problems, None))
    assert water.get_potential_energy() == pytest.approx(energy, abs=1e-4)
    assert calculator.parameters.electronic_temperature == 1500.0
    monkeypatch.setattr(type(calculator), "_problem", lambda self: "SCF converged to a false one")
    water.positions[0, 0] += 0.01
    with pytest.raises(Exception, match="false one"):
        water.get_potential_energy()
