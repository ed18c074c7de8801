"""False results are doubted, true ones never."""

from __future__ import annotations

import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from ase.constraints import FixAtoms
from faulty_engines import FAULTS

from nugget.engines.engine import make_calculator
from nugget.engines.engine_settings import EngineConfig
from nugget.engines.outcome import Failure, Outcome
from nugget.engines.plausibility import Doubt, PlausibilityCheck, closest, implausibility, settle
from nugget.engines.queue import EvaluationQueue
from nugget.structures.io import read_images


def labelled(atoms: Atoms, energy: float, force: float = 1.0) -> Atoms:
    forces = np.zeros((len(atoms), 3))
    forces[0, 2] = force
    atoms = atoms.copy()
    atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
    return atoms


def silicon() -> Atoms:
    """Ten atoms at ordinary distances."""
    return Atoms("Si10", bulk("Si", cubic=True).repeat((2, 1, 1)).positions[:10])


# GFN1-xTB once converged to −14,914 eV with forces of 15,700 eV/Å; the others were like these.
ENERGIES = list(np.linspace(-48.9, -48.2, 17))
FORCES = list(np.linspace(0.5, 12.0, 17))


def test_the_seen_case():
    seen = labelled(silicon(), -14914.0, 15700.0)
    assert "15,700 eV/Å" in str(implausibility(seen, ENERGIES, FORCES))
    assert implausibility(seen, [], []) is not None  # its forces alone are enough
    calm = labelled(silicon(), -14914.0, 5.0)
    assert "lowest of 17" in str(implausibility(calm, ENERGIES, FORCES))
    assert implausibility(calm, ENERGIES, FORCES, expected=(-487.0, 1.0)) is not None
    assert implausibility(calm, ENERGIES[:2], FORCES[:2]) is not None
    true = labelled(silicon(), -489.0, 20.0)
    for n in (0, 1, 5, 17):
        assert implausibility(true, ENERGIES[:n], FORCES[:n]) is None


def test_a_model_that_expected_it_is_believed():
    low = labelled(silicon(), -600.0, 5.0)
    assert implausibility(low, ENERGIES, FORCES) is not None
    assert implausibility(low, ENERGIES, FORCES, expected=(-580.0, 5.0)) is None
    assert implausibility(low, ENERGIES, FORCES, expected=(-490.0, 0.1)) is not None


def test_too_high_needs_close_atoms():
    high = labelled(silicon(), -100.0, 5.0)
    assert "highest of 17" in str(implausibility(high, ENERGIES, FORCES))
    assert implausibility(high, ENERGIES[:4], FORCES[:4]) is None  # one of few may be false itself
    squeezed = silicon()
    squeezed.positions *= 0.7
    assert implausibility(labelled(squeezed, -100.0, 5.0), ENERGIES, FORCES) is None


def test_a_drop_from_squeezed_structures_is_believed():
    assert implausibility(labelled(silicon(), -487.0), [900.0, 300.0], [4e4, 5e3]) is None


def test_distances_know_elements_and_cells():
    assert closest(Atoms("H2", [[0, 0, 0], [0, 0, 0.62]])) == pytest.approx(1.0)
    assert closest(Atoms("H", cell=[0.62, 9, 9], pbc=True)) == pytest.approx(1.0)
    assert closest(Atoms("Au")) == np.inf


@pytest.mark.parametrize("engine", ["emt", "lj", "gfn1-xtb"])
def test_random_structures_are_believed(engine):
    """Also with atoms much too close, and whatever was evaluated before."""
    rng = np.random.default_rng(5)
    energies, forces = [], []
    for k in range(12 if engine == "gfn1-xtb" else 60):
        shape = rng.normal(size=(6, 3))
        atoms = Atoms("Au6", shape)
        scale = rng.uniform(0.45, 1.2) / closest(atoms)
        atoms.positions *= scale
        atoms.calc = make_calculator(engine)
        try:
            found = labelled(atoms, atoms.get_potential_energy())
        except Exception:
            continue  # that is another failure
        found.calc.results["forces"] = atoms.get_forces()
        assert implausibility(found, energies, forces) is None, (k, closest(atoms))
        energies.append(found.get_potential_energy() / 6)
        forces.append(float(np.linalg.norm(found.get_forces(), axis=1).max()))


def test_no_dft_cluster_is_rejected(dft_data):
    """In the order of the file, and after the first few; the whole set was tried by hand."""
    images = read_images(dft_data, slice(0, 400))
    energies = [a.get_potential_energy() / len(a) for a in images]
    forces = [float(np.linalg.norm(a.get_forces(), axis=1).max()) for a in images]
    for k, atoms in enumerate(images):
        for n in {min(k, 3), k}:
            assert implausibility(atoms, energies[:n], forces[:n]) is None


def test_all_commands_share_one_check():
    """Largest force: norm per atom, without fixed atoms; the model can save a surprising energy."""
    low = labelled(silicon(), -580.0)
    wider = silicon()
    wider.positions *= 1.1  # no neighbours in the sense of `contradiction`
    others = [labelled(wider, 10 * e, f) for e, f in zip(ENERGIES, FORCES, strict=True)]
    assert PlausibilityCheck(lambda atoms: others)(low) is not None
    assert PlausibilityCheck(lambda atoms: others, lambda atoms: (-580.0, 5.0))(low) is None
    pushed = labelled(silicon(), -487.0, 1e5)
    assert PlausibilityCheck(lambda atoms: others)(pushed) is not None
    pushed.set_constraint(FixAtoms([0]))
    assert PlausibilityCheck(lambda atoms: others)(pushed) is None


# Repetition ----------------------------------------------------------------------------------


def judge(atoms: Atoms) -> str | None:
    return "too low" if atoms.calc.results["energy"] < -100 else None


def test_repetitions_are_settled():
    atoms = silicon()
    false, true = Outcome(labelled(atoms, -999.0)), Outcome(labelled(atoms, -5.0), seconds=2.0)
    taken = settle(false, true, judge)
    assert taken.energy == -5.0
    assert taken.attempts == 2
    assert taken.seconds == 2.0
    stays = settle(false, Outcome(labelled(atoms, -998.0)), judge)
    assert stays.failure == "implausible"
    assert stays.reason == "-999 eV with too low; repeated in a fresh process: -998 eV"
    assert stays.atoms.calc is None
    fails = settle(false, Outcome(atoms, Failure.UNCONVERGED, "SCF"), judge)
    assert fails.failure == "implausible"
    assert "unconverged: SCF" in fails.reason


def test_steep_walls_are_accepted_when_repeated():
    """A large force at a high energy is true on a steep wall; at a low energy it is not."""
    atoms = silicon()
    steep = np.zeros((len(atoms), 3))
    steep[0, 0] = 1e5
    others, forces = [-5.0, -4.9, -4.8, -4.7, -4.6], [1.0] * 5

    def judged(energy: float) -> str | None:
        one = labelled(atoms, energy * len(atoms))
        one.calc.results["forces"] = steep
        return implausibility(one, others, forces)

    assert isinstance(judged(40.0), Doubt)
    low = judged(-5.2)
    assert low is not None
    assert not isinstance(low, Doubt)
    high = Outcome(labelled(atoms, 40.0 * len(atoms)))
    assert settle(high, high, lambda one: Doubt("high")).ok


@pytest.mark.usefixtures("engines")
def test_the_queue_repeats_in_a_fresh_process(tmp_path):
    """An engine that is right only in a process that has done nothing before."""
    atoms = Atoms("Au5", 2.8 * np.array([[0, 0, 0], [1, 0, 0], [0, 1, 0], [0, 0, 1], [1, 1, 0]]))
    atoms.set_tags(FAULTS.index("none"))
    true = atoms.copy()
    true.calc = EMT()
    engine = EngineConfig(name="faulty_engines:stale")
    with EvaluationQueue(engine, 1, judge=judge) as queue:
        for key in range(3):
            queue.submit(key, atoms)
            assert queue.next()[0] == key
        queue.submit(3, atoms)
        _, outcome = queue.next()
    assert outcome.energy == true.get_potential_energy()
    assert outcome.attempts == 2
    # Without a judge it is taken as it comes.
    with EvaluationQueue(engine, 1) as queue:
        queue.submit(0, atoms)
        queue.next()
        queue.submit(1, atoms)
        assert queue.next()[1].energy == -1e4
