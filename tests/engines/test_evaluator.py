"""Evaluation in other processes: every failure is an outcome, and nothing is left behind."""

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import faulty_engines
import numpy as np
import pytest
from ase import Atoms
from ase.build import bulk, fcc111
from ase.calculators.emt import EMT
from ase.constraints import FixAtoms
from ase.optimize import BFGS
from pydantic import ValidationError

from nugget.engines.outcome import Outcome
from nugget.engines.runner import Evaluator
from nugget.engines.task import Task, run_task
from nugget.errors import NuggetError

HERE = Path(__file__).parent
CHOSEN = "faulty_engines:chosen"


def cluster(fault="none", seed=0):
    step = np.array([[1, 1, 0], [1, 0, 1], [0, 1, 1]]) * 2.85 / np.sqrt(2)
    spots = [(0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1), (1, 1, 0)]
    atoms = Atoms("Au5", np.array(spots) @ step, tags=[faulty_engines.FAULTS.index(fault)] * 5)
    atoms.rattle(0.1, seed=seed)
    return atoms


def alive(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # An orphan that nobody reaps yet is dead too.
    status = Path(f"/proc/{pid}/stat")
    return not (status.exists() and status.read_text().rsplit(")", 1)[1].split()[0] == "Z")


def gone_within(pid, seconds):
    deadline = time.monotonic() + seconds
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not alive(pid)


@pytest.fixture(scope="module")
def evaluator():
    with Evaluator(Task(name=CHOSEN, time_limit=20.0, retries=0)) as shared:
        yield shared


# In this process -----------------------------------------------------------------------------


def test_energy_and_forces_are_the_engines():
    atoms = cluster()
    outcome = run_task(Task(name="emt"), atoms)
    atoms.calc = EMT()
    assert outcome.ok
    assert outcome.energy == atoms.get_potential_energy()
    np.testing.assert_array_equal(outcome.atoms.get_forces(), atoms.get_forces())
    assert outcome.seconds > 0


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        ("raises", "exception", "RuntimeError: the basis set is on holiday"),
        ("nan energy", "nan", "the energy is nan"),
        ("infinite force", "nan", "the force on atom 1"),
        ("scf", "unconverged", "SCF not converged"),
        ("says unconverged", "unconverged", "has not converged"),
        ("sys.exit", "exception", "SystemExit: giving up"),
    ],
)
def test_failures_without_a_process(fault, kind, reason):
    outcome = run_task(Task(name=CHOSEN), cluster(fault))
    assert not outcome.ok
    assert outcome.failure == kind
    assert reason in outcome.reason
    assert "\n" not in outcome.reason
    assert outcome.atoms.calc is None
    with pytest.raises(NuggetError, match=f"evaluation failed \\({kind}"):
        _ = outcome.energy


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("flat forces", "the forces have the shape (15,), not (5, 3)"),
        ("energy is text", "the energy cannot be read as numbers (str)"),
        ("two energies", "the energy is an array of shape (2,)"),
        ("bad stress", "the stress has the shape (5,), not (6,) or (3, 3)"),
    ],
)
def test_results_of_the_wrong_shape_are_invalid(fault, reason):
    atoms = cluster(fault)
    if fault == "bad stress":
        atoms.set_cell([20, 20, 20])
        atoms.pbc = True
    outcome = run_task(Task(name=CHOSEN), atoms)
    assert (outcome.failure, outcome.reason) == ("invalid", reason)


def test_factories_that_fail():
    outcome = run_task(Task(name="faulty_engines:broken"), cluster())
    assert (outcome.failure, "pseudopotential" in outcome.reason) == ("exception", True)
    outcome = run_task(Task(name="faulty_engines:nothing"), cluster())
    assert (outcome.failure, "no function" in outcome.reason) == ("exception", True)
    outcome = run_task(Task(name="emt"), Atoms("W2", [[0, 0, 0], [2, 0, 0]]))
    assert outcome.failure == "exception"


def test_tblite_unconverged():
    outcome = run_task(Task(name="gfn1-xtb", options={"max_iterations": 2}), cluster())
    assert outcome.failure == "unconverged"
    assert "SCF" in outcome.reason


def test_relaxation_is_ases_and_keeps_fixed_atoms():
    atoms = cluster()
    atoms.set_constraint(FixAtoms([0, 1]))
    outcome = run_task(Task(name="emt", relax_steps=4, relax_fmax=1e-6, keep_path=True), atoms)
    assert len(outcome.path) == 4
    np.testing.assert_array_equal(outcome.path[0].positions, atoms.positions)
    np.testing.assert_array_equal(outcome.atoms.positions[:2], atoms.positions[:2])
    # Raw forces are stored, also on the fixed atoms.
    assert np.abs(outcome.atoms.calc.results["forces"][:2]).max() > 0.01
    energies = [frame.calc.results["energy"] for frame in (*outcome.path, outcome.atoms)]
    assert energies[-1] < energies[0]
    reference = atoms.copy()
    reference.calc = EMT()
    BFGS(reference, logfile=None).run(fmax=1e-6, steps=4)
    np.testing.assert_allclose(outcome.atoms.positions, reference.positions, atol=1e-12)
    assert run_task(Task(name="emt", relax_steps=4), atoms).path == ()


def test_relaxation_ends_when_forces_are_small():
    outcome = run_task(
        Task(name="emt", relax_steps=200, relax_fmax=0.05, keep_path=True), cluster()
    )
    assert len(outcome.path) < 199
    assert np.linalg.norm(outcome.atoms.get_forces(), axis=1).max() <= 0.05


def test_failure_on_the_way_keeps_the_good_part():
    outcome = run_task(Task(name=CHOSEN, relax_steps=10, relax_fmax=1e-9), cluster("nan later"))
    assert outcome.failure == "nan"
    assert len(outcome.path) == 2
    assert all(np.isfinite(frame.calc.results["energy"]) for frame in outcome.path)


def test_stress_of_crystals_only():
    crystal = bulk("Cu", cubic=True)
    assert run_task(Task(name="emt"), crystal).atoms.calc.results["forces"].shape == (4, 3)
    assert "stress" not in run_task(Task(name="lj"), cluster()).atoms.calc.results
    assert run_task(Task(name="lj", options={"rc": 6.0}), crystal).atoms.calc.results[
        "stress"
    ].shape == (6,)


def test_input_is_not_touched():
    atoms = cluster()
    before = atoms.positions.copy()
    run_task(Task(name="emt", relax_steps=3), atoms)
    np.testing.assert_array_equal(atoms.positions, before)
    assert atoms.calc is None


def test_outcome_travels_exactly():
    slab = fcc111("Cu", (1, 1, 2), vacuum=5.0)
    slab.set_constraint(FixAtoms([0]))
    slab.rattle(0.1, seed=1)
    for outcome in (
        run_task(Task(name="emt", relax_steps=2, keep_path=True), slab),
        run_task(Task(name=CHOSEN), cluster("raises")),
    ):
        # By our own road, and by that of process pools.
        for again in (Outcome.from_json(outcome.to_json()), pickle.loads(pickle.dumps(outcome))):
            assert "\n" not in outcome.to_json()
            assert (again.failure, again.reason) == (outcome.failure, outcome.reason)
            assert again.seconds == outcome.seconds
            assert len(again.path) == len(outcome.path)
            for a, b in zip(
                (again.atoms, *again.path), (outcome.atoms, *outcome.path), strict=True
            ):
                np.testing.assert_array_equal(a.positions, b.positions)
                np.testing.assert_array_equal(a.cell.array, b.cell.array)
                np.testing.assert_array_equal(a.get_tags(), b.get_tags())
                assert len(a.constraints) == len(b.constraints)
                if outcome.ok:
                    assert a.calc.results["energy"] == b.calc.results["energy"]
                    np.testing.assert_array_equal(
                        a.calc.results["forces"], b.calc.results["forces"]
                    )


# In other processes --------------------------------------------------------------------------


def test_same_as_in_process(evaluator):
    atoms = cluster()
    atoms.info["label"] = object()  # stays with the parent
    there, here = evaluator.evaluate(atoms), run_task(Task(name=CHOSEN), atoms)
    assert there.energy == here.energy
    np.testing.assert_array_equal(there.atoms.get_forces(), here.atoms.get_forces())
    assert there.atoms.info == atoms.info


@pytest.mark.parametrize(
    ("fault", "kind", "reason"),
    [
        ("raises", "exception", "on holiday"),
        ("nan energy", "nan", "nan"),
        ("infinite force", "nan", "inf"),
        ("scf", "unconverged", "SCF"),
        ("kill -9", "died", "SIGKILL"),
        ("segfault", "died", "SIGSEGV"),
        ("exits", "died", "exited with code 3: ERROR STOP: out of disk"),
        ("sys.exit", "exception", "giving up"),
    ],
)
def test_failures_are_outcomes_and_the_next_one_works(evaluator, fault, kind, reason):
    outcome = evaluator.evaluate(cluster(fault))
    assert outcome.failure == kind
    assert reason in outcome.reason
    assert outcome.attempts == 1
    after = evaluator.evaluate(cluster())
    assert after.energy == run_task(Task(name="emt"), cluster()).energy


@pytest.mark.parametrize("fault", ["chatty", "reads stdin"])
def test_engines_may_use_their_standard_streams(evaluator, fault, capfd):
    outcome = evaluator.evaluate(cluster(fault))
    assert outcome.ok, outcome.reason
    assert capfd.readouterr() == ("", "")


def test_hang_is_ended_with_all_descendants(tmp_path, monkeypatch):
    note = tmp_path / "pid"
    monkeypatch.setenv("NUGGET_TEST_CHILD", str(note))
    with Evaluator(Task(name=CHOSEN, time_limit=2.0, retries=0)) as evaluator:
        assert evaluator.evaluate(cluster()).ok
        pid = evaluator._workers[0].pid
        outcome = evaluator.evaluate(cluster("hangs with child"))
        assert outcome.failure == "timeout"
        assert outcome.reason == "no answer within 2 s"
        assert outcome.seconds < 10
        assert not alive(pid)
        assert gone_within(int(note.read_text()), 5)
        assert evaluator.evaluate(cluster()).ok
        last = evaluator._workers[0].pid
        assert last != pid
    assert not alive(last)


def test_stopped_process_is_a_hang_not_a_deadlock():
    """SIGSTOP, and a request larger than any pipe buffer: even writing must not block for ever."""
    big = Atoms("Au20000", np.arange(60000.0).reshape(-1, 3) * 10)
    with Evaluator(Task(name="faulty_engines:threads", time_limit=1.0, retries=0)) as evaluator:
        assert evaluator.evaluate(cluster()).ok
        os.kill(evaluator._workers[0].pid, signal.SIGSTOP)
        assert evaluator.evaluate(big).failure == "timeout"
        assert evaluator.evaluate(cluster()).ok


def test_death_between_evaluations_goes_unnoticed(evaluator):
    evaluator.evaluate(cluster())
    pid = evaluator._workers[0].pid
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)  # until it is over, all its threads too
    outcome = evaluator.evaluate(cluster())
    assert outcome.ok
    assert outcome.attempts == 1
    assert evaluator._workers[0].pid != pid
    assert not alive(pid)


def test_retry_after_death(tmp_path):
    options = {"marker": str(tmp_path / "died")}
    with Evaluator(
        Task(name="faulty_engines:dies_once", options=options, time_limit=20)
    ) as evaluator:
        outcome = evaluator.evaluate(cluster())
    assert outcome.ok
    assert outcome.attempts == 2


def test_retries_end():
    with Evaluator(Task(name=CHOSEN, retries=1, time_limit=20)) as evaluator:
        assert evaluator.evaluate(cluster("kill -9")).attempts == 2
        assert evaluator.evaluate(cluster("raises")).attempts == 1


def test_no_history_and_one_thread():
    with Evaluator(Task(name="faulty_engines:remembers", time_limit=20)) as evaluator:
        assert [evaluator.evaluate(cluster(seed=s)).energy for s in range(3)] == [1.0, 1.0, 1.0]
    with Evaluator(Task(name="faulty_engines:threads", time_limit=20)) as evaluator:
        assert evaluator.evaluate(cluster()).energy == 1.0


def test_tblite_does_not_depend_on_history():
    with Evaluator(Task(name="gfn1-xtb", time_limit=60)) as evaluator:
        first = evaluator.evaluate(cluster(seed=0))
        evaluator.evaluate(cluster(seed=1))
        again = evaluator.evaluate(cluster(seed=0))
    assert first.energy == again.energy
    np.testing.assert_array_equal(first.atoms.get_forces(), again.atoms.get_forces())


def test_relaxation_in_the_worker():
    atoms = cluster()
    atoms.set_constraint(FixAtoms([0]))
    settings = {"relax_steps": 3, "relax_fmax": 1e-6, "keep_path": True}
    with Evaluator(Task(name="emt", time_limit=20, **settings)) as evaluator:
        there = evaluator.evaluate(atoms)
    here = run_task(Task(name="emt", **settings), atoms)
    assert len(there.path) == len(here.path) == 3
    np.testing.assert_array_equal(there.atoms.positions, here.atoms.positions)


def test_many_workers_keep_the_order():
    images = [cluster("kill -9" if s == 2 else "none", seed=s) for s in range(6)]
    with Evaluator(Task(name=CHOSEN, retries=0, time_limit=20), workers=2) as evaluator:
        with ThreadPoolExecutor(2) as pool:
            outcomes = list(pool.map(evaluator.evaluate, images))
        pids = [worker.pid for worker in evaluator._workers]
    assert [o.failure for o in outcomes] == [None, None, "died", None, None, None]
    for atoms, outcome in zip(images, outcomes, strict=True):
        if outcome.ok:
            assert outcome.energy == run_task(Task(name="emt"), atoms).energy
    assert not any(alive(pid) for pid in pids if pid is not None)


def test_interrupt_does_not_reach_the_child(evaluator):
    evaluator.evaluate(cluster())
    timer = threading.Timer(0.3, os.kill, (evaluator._workers[0].pid, signal.SIGINT))
    timer.start()
    outcome = evaluator.evaluate(cluster("slow"))
    timer.join()
    assert outcome.ok, outcome.reason


def test_close_from_another_thread_ends_a_hang():
    evaluator = Evaluator(Task(name=CHOSEN, time_limit=300))
    evaluator.evaluate(cluster())
    pid = evaluator._workers[0].pid
    threading.Timer(0.3, evaluator.close).start()
    outcome = evaluator.evaluate(cluster("hangs"))
    assert outcome.failure == "died"
    assert not alive(pid)
    with pytest.raises(NuggetError, match="closed"):
        evaluator.evaluate(cluster())


SCRIPT = f"""
import signal, sys
# A shell that starts tests in the background has them ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[:0] = [{str(HERE)!r}, {str(HERE.parent)!r}]
from test_evaluator import CHOSEN, cluster
from nugget.engines.runner import Evaluator
from nugget.engines.task import Task
with Evaluator(Task(name=CHOSEN, time_limit=300)) as evaluator:
    evaluator.evaluate(cluster())
    print(evaluator._workers[0].pid, flush=True)
    try:
        evaluator.evaluate(cluster("hangs"))
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        print(evaluator.evaluate(cluster()).ok, flush=True)
"""


@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL])
def test_parent_is_interrupted_or_killed(sign):
    parent = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    pid = int(parent.stdout.readline())
    time.sleep(0.3)
    parent.send_signal(sign)
    rest, _ = parent.communicate(timeout=60)
    if sign == signal.SIGINT:
        assert rest.split() == ["interrupted", "True"]
        assert parent.returncode == 0
    assert gone_within(pid, 10)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"time_limit": 0}, "greater than 0"),
        ({"time_limit": float("inf")}, "finite number"),
        ({"retries": -1}, "greater than or equal to 0"),
    ],
)
def test_bad_settings_are_refused(settings, message):
    with pytest.raises(ValidationError, match=message):
        Task(name="emt", **settings)


def test_an_evaluator_needs_workers():
    with pytest.raises(NuggetError, match="at least one"):
        Evaluator(Task(name="emt"), workers=0)


def test_a_task_serialises_itself():
    task = Task(name="emt", options={"a": [1, 0.1]}, charge=1, magmoms={"Au": 0.3}, retries=0)
    assert Task.from_json(task.to_json()) == task


def test_missing_engine_is_refused_at_once():
    with pytest.raises(NuggetError, match="not installed"):
        Evaluator(Task(name="no_such_module_anywhere:factory"))
    with pytest.raises(NuggetError, match="there is no engine"):
        Evaluator(Task(name="vasp-9000"))
