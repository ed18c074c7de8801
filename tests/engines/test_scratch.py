"""Codes that write files: evaluations never meet, and the user's directory stays clean."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

import file_engine
import numpy as np
import pytest
from ase import Atoms
from ase.calculators.emt import EMT

from nugget.engines.engine_settings import EngineConfig, ExecutionConfig
from nugget.engines.execution import make_executor
from nugget.engines.queue import EvaluationQueue
from nugget.engines.runner import Evaluator, Scratch
from nugget.engines.task import Task

HERE = Path(__file__).parent


def clusters(count: int, atoms: int = 5) -> list[Atoms]:
    rng = np.random.default_rng(3)
    grid = np.array([(i, j, k) for i in range(2) for j in range(2) for k in range(2)])[:atoms]
    return [Atoms(f"Au{atoms}", 2.8 * grid + rng.normal(0, 0.15, (atoms, 3))) for _ in range(count)]


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(file_engine.PROGRAM.format(delay=0.1))
    return str(path)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The user's directory."""
    path = tmp_path / "home"
    path.mkdir()
    monkeypatch.chdir(path)
    return path


def wrong_labels(engine: EngineConfig, images: list[Atoms], run: Path, executor=None) -> int:
    wrong = 0
    with EvaluationQueue(engine, 4, executor, directory=run) as queue:
        waiting = list(enumerate(images))
        while waiting or len(queue):
            while waiting and len(queue) < queue.width:
                queue.submit(*waiting.pop(0))
            key, outcome = queue.next()
            assert outcome.ok, outcome.reason
            atoms = images[key].copy()
            atoms.calc = EMT()
            wrong += abs(outcome.energy - atoms.get_potential_energy()) > 1e-6
            wrong += not np.allclose(outcome.atoms.get_forces(), atoms.get_forces(), atol=1e-6)
    return wrong


@pytest.mark.parametrize("factory", ["file_emt", pytest.param("careless", marks=pytest.mark.slow)])
def test_four_at_a_time_never_meet(factory, program, home, tmp_path):
    engine = EngineConfig(name=f"file_engine:{factory}", options={"program": program})
    assert wrong_labels(engine, clusters(20), tmp_path / "run") == 0
    assert list(home.iterdir()) == []
    assert not (tmp_path / "run" / "scratch").exists()


def test_on_a_process_pool(program, home, tmp_path):
    engine = EngineConfig(name="file_engine:file_emt", options={"program": program})
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        assert wrong_labels(engine, clusters(8), tmp_path / "run", pool) == 0
    assert list(home.iterdir()) == []


@pytest.mark.slow
def test_on_dask(program, home, tmp_path, monkeypatch):
    pytest.importorskip("distributed")
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(HERE), os.environ.get("PYTHONPATH", "")]))
    engine = EngineConfig(name="file_engine:file_emt", options={"program": program})
    with make_executor(ExecutionConfig(kind="dask", workers=2)) as executor:
        assert wrong_labels(engine, clusters(8), tmp_path / "run", executor) == 0
    assert list(home.iterdir()) == []
    assert not (tmp_path / "run" / "scratch").exists()


def test_files_of_failures_are_kept_and_named(program, home, tmp_path):
    engine = EngineConfig(name="file_engine:file_emt", options={"program": program})
    with EvaluationQueue(engine, 1, directory=tmp_path / "run") as queue:
        queue.submit(0, clusters(1, atoms=7)[0])  # its program ends with code 3
        _, outcome = queue.next()
    assert outcome.failure == "exception"
    (kept,) = (tmp_path / "run" / "scratch").iterdir()
    assert f"(files in {kept})" in outcome.reason
    assert {"in.xyz", "out.xyz"} <= {path.name for path in kept.iterdir()}


def test_what_a_failing_engine_printed_is_kept(home, tmp_path):
    from test_evaluator import CHOSEN, cluster

    with Evaluator(
        Task(name=CHOSEN, retries=0, time_limit=20, scratch=str(tmp_path / "s"))
    ) as evaluator:
        outcome = evaluator.evaluate(cluster("exits"))
        (kept,) = (tmp_path / "s").iterdir()
        assert (kept / "output.txt").read_text() == "ERROR STOP: out of disk\n"
        assert str(kept) in outcome.reason
        # A failure without files leaves nothing.
        assert "files in" not in evaluator.evaluate(cluster("raises")).reason
    assert list((tmp_path / "s").iterdir()) == [kept]


def test_kept_when_told_and_placed_where_told(program, home, tmp_path, monkeypatch):
    monkeypatch.setenv("MY_DISK", str(tmp_path / "disk"))
    options = {"program": program}
    told = {"scratch": "$MY_DISK/deep", "keep_scratch": True}
    with Evaluator(Task(name="file_engine:file_emt", options=options, **told)) as evaluator:
        for atoms in clusters(2):
            assert evaluator.evaluate(atoms).ok
    kept = list((tmp_path / "disk" / "deep").iterdir())
    assert len(kept) == 2
    assert all((path / "out.xyz").exists() for path in kept)


def test_base_of_scratch(tmp_path, monkeypatch):
    assert Scratch("here", start=str(tmp_path)).base == tmp_path / "here"
    assert Scratch("~/x").base == Path.home() / "x"
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    assert Scratch(None).base == tmp_path
    scratch = Scratch(str(tmp_path / "new"))
    made = scratch.make()
    scratch.finish(made, failed=True)  # empty: of no use to anybody
    scratch.close()
    assert not (tmp_path / "new").exists()


def test_a_base_that_cannot_be_made(home, tmp_path):
    (tmp_path / "file").touch()
    with Evaluator(Task(name="emt", scratch=str(tmp_path / "file" / "x"))) as evaluator:
        outcome = evaluator.evaluate(clusters(1)[0])
    assert outcome.failure == "exception"
    assert "cannot be made" in outcome.reason
    assert "engine.scratch" in outcome.reason


WHERE = """
import os
from ase.calculators.emt import EMT
def make(path="", folder=None):
    assert os.getcwd() != {home!r}, "in the user's directory"
    assert os.environ["NUGGET_START_DIR"] == {home!r}
    assert path in ("", {home!r} + "/pseudo"), path
    assert folder in (None, {{"pp": {home!r} + "/pseudo"}}), folder
    return EMT()
"""


def test_modules_and_paths_of_the_users_directory(home, tmp_path):
    """The current directory is another one, so both are looked for where nugget was started."""
    (home / "my_engine_here.py").write_text(WHERE.format(home=str(home)))
    options = {"path": "./pseudo", "folder": {"pp": "./pseudo"}}
    with Evaluator(Task(name="my_engine_here:make", options=options)) as evaluator:
        outcome = evaluator.evaluate(clusters(1)[0])
    assert outcome.ok, outcome.reason
    assert [path.name for path in home.iterdir() if path.name != "__pycache__"] == [
        "my_engine_here.py"
    ]


KILLED = """
import file_engine
from nugget.engines.runner import Evaluator
from nugget.engines.task import Task
from test_scratch import clusters
options = {{"program": {program!r}}}
task = Task(name="file_engine:file_emt", options=options, scratch={base!r})
with Evaluator(task) as evaluator:
    evaluator.evaluate(clusters(1)[0])
"""


def test_a_kill_leaves_neither_programs_nor_files_behind(home, tmp_path):
    """The program of a killed nugget ends soon, and the next nugget removes its directory."""
    program, base = tmp_path / "slow.py", tmp_path / "scratch"
    program.write_text("import os, time\nopen('pid', 'w').write(str(os.getpid()))\ntime.sleep(600)")
    code = KILLED.format(program=str(program), base=str(base))
    paths = os.pathsep.join([str(HERE), *sys.path])
    environment = {**os.environ, "PYTHONPATH": paths}
    nugget = subprocess.Popen([sys.executable, "-c", code], env=environment)
    written = until(lambda: [p for p in base.glob("*/pid") if p.read_text()])[0]
    nugget.kill()
    nugget.wait()
    until(lambda: not running(int(written.read_text())))
    assert written.exists()
    kept = base / "evaluation-failed"  # of a failure: no file beside it says that it is in use
    kept.mkdir()
    mine = Scratch(str(base)).make()
    with EvaluationQueue(EngineConfig(name="emt"), 1, directory=tmp_path) as queue:
        queue.submit(0, clusters(1)[0])
        assert queue.next()[1].ok
    assert {path.name for path in base.iterdir()} == {kept.name, mine.name, f"{mine.name}.in-use"}
    shutil.rmtree(kept)
    Scratch(str(base)).finish(mine, failed=False)
    with EvaluationQueue(EngineConfig(name="emt"), 1, directory=tmp_path):
        pass
    assert not base.exists()  # nothing is in it any more


def until(happened):
    """What `happened` gives, as soon as it is something."""
    for _ in range(600):
        if found := happened():
            return found
        time.sleep(0.1)
    raise AssertionError("it never happened")


def running(process: int) -> bool:
    """Is it there, and no zombie that nobody has reaped yet?"""
    state = subprocess.run(
        ["ps", "-o", "stat=", "-p", str(process)], capture_output=True, text=True
    )
    return bool(state.stdout.strip()) and not state.stdout.strip().startswith("Z")


def test_files_of_another_machine_stay(tmp_path):
    scratch = Scratch(str(tmp_path))
    made = scratch.make()
    mark = tmp_path / f"{made.name}.in-use"
    mark.write_text("1 some-other-machine\n")
    (tmp_path / "evaluation-x.in-use").write_text("nonsense")
    scratch.sweep()
    assert made.exists()
    mark.write_text(f"{2**22 + 1} {platform.node()}\n")  # larger than any process number
    scratch.sweep()
    assert not made.exists()
    assert not mark.exists()
