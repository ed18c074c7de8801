"""Bad input, full disks and plain terminals: one sentence, and nothing is lost."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from example_structures import gold_cluster
from typer.testing import CliRunner

from nugget import RBF, SOAP, PivotedCholesky, Potential
from nugget.cli._console import _Step, plain_where_needed
from nugget.cli.main import COMMANDS, app
from nugget.dataset import Recipe
from nugget.errors import NuggetError
from nugget.search.search import Search
from nugget.search.search_settings import make_config, read_config, write_config
from nugget.search.store import DATABASE, SETTINGS, Store
from nugget.structures.io import read_images, write_images

PAPER = Path(__file__).parents[2] / "paper"
SMALL = ("--engine", "emt", "--candidates", "2", "--budget", "5", "--no-live")


def nugget(*arguments: object, code: int = 0):
    result = CliRunner().invoke(app, [str(a) for a in arguments])
    assert result.exit_code == code, result.output + repr(result.exception)
    return result


def refused(*arguments: object) -> str:
    """The one line on stderr of a command that cannot do its work."""
    lines = nugget(*arguments, code=2).stderr.strip().splitlines()
    lines = [line for line in lines if not line.startswith("nugget: compiling")]
    assert len(lines) == 1, lines
    return lines[0].removeprefix("Error: ")


def labelled(seed: int):
    atoms = gold_cluster(6, seed)
    work = atoms.copy()
    work.calc = EMT()
    results = {"energy": work.get_potential_energy(), "forces": work.get_forces()}
    atoms.calc = SinglePointCalculator(atoms, **results)
    return atoms


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def model(here) -> Path:
    Potential(SOAP(["Au"], 5.0)).fit([labelled(s) for s in range(4)]).save(here / "au.model")
    write_images(here / "train.extxyz", [labelled(s) for s in range(4)])
    write_images(here / "test.extxyz", [labelled(s) for s in range(10, 13)])
    return here / "au.model"


# --------------------------------------------------------------------------- what cannot be


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("Au13+",), "set the charge by engine.charge"),
        (("Au13-",), "set the charge by engine.charge"),
        (("Au2-+3",), "set the charge by engine.charge"),
        (("Au100000",), "Au100000 has 100000 atoms"),
        (("Au999999999999",), "has 999999999999 atoms"),
        (("Gold",), "is not a formula"),
        (("Au 3",), "is not a formula"),
        (("Au3", "--set", "system.kind=bulk", "--set", "system.cell=[-3,4,5]"), "spans no volume"),
        (("Au3", "--set", "system.kind=bulk", "--set", "system.cell=[0,4,5]"), "spans no volume"),
        (
            ("Au3", "--set", "system.kind=bulk", "--set", "system.cell=[5,5,5,10,10,90]"),
            "spans no volume",
        ),
        (("Au3", "--set", "system.kind=bulk", "--set", "system.cell=[1,1,1]"), "its own image"),
        (("Au40", "--set", "system.kind=bulk", "--set", "system.cell=[4,4,4]"), "40 atoms do not"),
        (("Au40", "--set", "system.radius=2"), "40 atoms do not fit"),
    ],
)
def test_searches_that_cannot_be(here, arguments, message):
    assert message in refused("search", *arguments, "--engine", "emt")
    assert not list(here.iterdir())


def test_data_sets_take_no_charges():
    with pytest.raises(NuggetError, match=r"set the charge by engine\.charge"):
        Recipe(("Au5+",), 3)


def test_empty_settings(here):
    for text in ("", "\n\n", "# [system]\n"):
        (here / "empty.toml").write_text(text)
        assert "empty.toml holds no settings" in refused("search", "empty.toml")


def test_whole_numbers_are_numbers():
    """A casting error once, in the Cholesky factor of integers."""
    images = [labelled(s) for s in range(3)]
    whole = Potential(SOAP(["Au"], 5), RBF(20, 1), PivotedCholesky(1e-6)).fit(images)
    real = Potential(SOAP(["Au"], 5.0), RBF(20.0, 1.0), PivotedCholesky(1e-6)).fit(images)
    np.testing.assert_array_equal(whole.predict(images).energy, real.predict(images).energy)


def test_figures_without_their_data(here):
    for script, arguments in (("fig3_calibration", ("--data", "none.gz")),
                              ("fig4_success", ("--csv", "none.csv"))):  # fmt: skip
        command = [sys.executable, PAPER / f"{script}.py", *arguments]
        found = subprocess.run(command, capture_output=True, text=True, cwd=here)
        assert found.returncode == 2
        assert found.stderr.startswith("Error: ")
        assert "none" in found.stderr
        assert len(found.stderr.splitlines()) == 1
    assert not list(here.iterdir())


# --------------------------------------------------------------------------- what is there


def test_predictions_never_replace_their_input(here, model):
    before = (here / "test.extxyz").read_bytes()
    for more in ((), ("--force",)):
        for target in ("test.extxyz", "au.model"):
            message = refused("predict", model, "test.extxyz", "-o", target, *more)
            assert "is an input of this command" in message
    os.link("test.extxyz", "link.extxyz")
    assert "is an input of this command" in refused(
        "predict", model, "test.extxyz", "-o", "link.extxyz"
    )
    assert (here / "test.extxyz").read_bytes() == before
    nugget("predict", model, "test.extxyz", "-o", "out.extxyz")
    assert "--force" in refused("predict", model, "test.extxyz", "-o", "out.extxyz")
    nugget("predict", model, "test.extxyz", "-o", "out.extxyz", "--force")
    assert len(read_images("out.extxyz")) == 3


def test_nothing_is_replaced_unless_told(here, model):
    before = model.read_bytes()
    start = ("fit", "train.extxyz", "-o", model, "--cutoff", 5)
    assert "au.model exists already; choose another name, or add --force" in refused(*start)
    assert "--force" in refused("calibrate", model, "test.extxyz")
    assert model.read_bytes() == before
    nugget(*start, "--force")
    assert model.read_bytes() != before
    nugget("init", "Au5", "-o", "a.toml")
    assert "--force" in refused("init", "Au6", "-o", "a.toml")
    assert read_config(Path("a.toml")).system.formula == "Au5"
    nugget("init", "Au6", "-o", "a.toml", "--force")
    assert read_config(Path("a.toml")).system.formula == "Au6"
    nugget("evaluate", model, "test.extxyz", "--plot", "figures")
    assert "calibration.png exists" in refused(
        "evaluate", model, "test.extxyz", "--plot", "figures"
    )


def test_places_of_others_are_left_alone(here):
    (here / "gold").mkdir()
    (here / "gold" / "train.extxyz").write_text("mine")
    start = ("dataset", "Au4", "-n", 2, "-e", "emt", "--out", "gold")
    assert "train.extxyz exists already" in refused(*start)
    (here / "run").mkdir()
    (here / "run" / "best.extxyz").write_text("mine")
    assert "best.extxyz exists already" in refused("search", "Au4", *SMALL, "--out", "run")
    assert [p.name for p in (here / "run").iterdir()] == ["best.extxyz"]


def test_read_only_files_stay(here, model):
    model.chmod(0o444)
    before = model.read_bytes()
    message = refused("fit", "train.extxyz", "-o", model, "--cutoff", 5, "--force")
    assert "au.model is read-only" in message
    assert "is read-only" in refused("calibrate", model, "test.extxyz", "--force")
    assert model.read_bytes() == before
    (here / "out.extxyz").touch(0o444)
    start = ("predict", model, "test.extxyz", "-o", "out.extxyz", "--force")
    assert "out.extxyz is read-only" in refused(*start)


# --------------------------------------------------------------------------- run directories


@pytest.fixture
def run(here) -> Path:
    nugget("search", "Au4", *SMALL, "--out", "run")
    return here / "run"


def test_a_damaged_database(run):
    content = (run / DATABASE).read_bytes()
    for damage in (b"", b"no database", content[: len(content) // 2], content[:100]):
        (run / DATABASE).write_bytes(damage)
        assert "search.db" in refused("search", "--resume", run)
    place = content.rindex(b"random_cluster" if b"random_cluster" in content else b"rattle")
    (run / DATABASE).write_bytes(content[:place] + b"X" + content[place + 1 :])
    assert "was changed" in refused("search", "--resume", run)


def test_settings_changed_after_the_start(run):
    text = (run / SETTINGS).read_text()
    (run / SETTINGS).write_text(text.replace("kappa = 2.0", "kappa = 3.0"))
    message = refused("search", "--resume", run)
    assert "was changed after the search had begun: search.kappa is 3.0 and was 2.0" in message
    for damage in ("", text[: len(text) // 2], text[: text.index("[model]")]):
        (run / SETTINGS).write_text(damage)
        assert "config.toml" in refused("search", "--resume", run)
    (run / SETTINGS).unlink()  # as the message says
    nugget("search", "--resume", run, "--no-live")
    assert read_config(run / SETTINGS) == make_config(
        {"system": {"formula": "Au4"}, "engine": {"name": "emt"}, "model": {"sigma": 0.91},
         "search": {"candidates": 2, "budget": 5}}
    )  # fmt: skip
    text = (run / SETTINGS).read_text()
    changed = text.replace("budget = 5", "budget = 6").replace("= 600.0", "= 60.0")
    (run / SETTINGS).write_text(changed)
    assert "evaluations" in nugget("search", "--resume", run, "--no-live").stdout
    assert len(Store.open(run).records()) == 6


def test_damaged_side_files(run):
    pending = run / "pending.json"
    for text in ("", "[", "{}", "[1]", '{"records": [1]}', "\x00"):
        pending.write_text(text)
        assert "pending.json is damaged: remove it" in refused("search", "--resume", run)
    pending.unlink()
    (run / "status.json").write_text('{"status": 3')
    nugget("search", "--resume", run, "--no-live")  # it is made again
    assert Store.open(run).end().status == "finished"


_KILLED = """
import os, signal, sqlite3, sys
import ase.db.sqlite as sqlite
from nugget.search.search_settings import make_config
from nugget.search.search import Search
kill = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
count = 0
class Connection(sqlite3.Connection):
    def execute(self, text, *more):
        global count
        if text.startswith("CREATE"):
            count += 1
            if count == int(sys.argv[2]):
                kill()
        return super().execute(text, *more)
connect = sqlite3.connect
sqlite.sqlite3.connect = lambda *a, **k: connect(*a, factory=Connection, **k)
Search.create(make_config({"system": {"formula": "Au4"}, "engine": {"name": "emt"},
    "search": {"budget": 3, "candidates": 2}}), sys.argv[1])
"""


@pytest.mark.parametrize(
    "table", [1, pytest.param(2, marks=pytest.mark.slow), pytest.param(5, marks=pytest.mark.slow)]
)
def test_a_kill_while_tables_are_made(here, table):
    command = [sys.executable, "-c", _KILLED, "run", str(table)]
    assert subprocess.run(command, cwd=here).returncode == -signal.SIGKILL
    assert not (here / "run" / DATABASE).exists()
    assert list((here / "run").glob(".*.partial.*"))
    nugget("search", "--resume", "run", "--no-live")
    assert len(Search.resume("run").store.records()) == 3
    assert not list((here / "run").glob(".*"))


# --------------------------------------------------------------------------- machines


_MANY = """
import json, sys
from nugget.cli.main import app
for arguments in json.loads(sys.argv[1]):
    print("begin", flush=True)
    print("begin", file=sys.stderr, flush=True)
    try:
        app(arguments)
    except SystemExit as end:
        print("end", end.code or 0, flush=True)
"""


def run_many(commands: list[tuple], cwd: Path, limit: int | None = None, **environment: str):
    """Exit codes, stdout and stderr of commands in one process; `limit` is the largest file."""

    def full() -> None:
        if limit is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

    texts = json.dumps([[str(part) for part in command] for command in commands])
    found = subprocess.run(
        [sys.executable, "-c", _MANY, texts], cwd=cwd, capture_output=True, preexec_fn=full,
        env={**os.environ, **environment},
    )  # fmt: skip
    out, err = (text.decode().split("begin\n")[1:] for text in (found.stdout, found.stderr))
    assert "Traceback" not in found.stderr.decode(), found.stderr.decode()
    assert len(out) == len(err) == len(commands)
    return [(int(o.rsplit("end ", 1)[1]), o, e) for o, e in zip(out, err, strict=True)]


def test_full_disks(here, model):
    nugget("check", model, "test.extxyz", "-i", 0)  # compiled before
    before = sorted(path.name for path in here.iterdir())
    commands = {
        "new.model": ("fit", "train.extxyz", "-o", "new.model", "--cutoff", 5),
        "out.extxyz": ("predict", model, "test.extxyz", "-o", "out.extxyz"),
        "out.db": ("predict", model, "test.extxyz", "-o", "out.db"),
        "out.traj": ("predict", model, "test.extxyz", "-o", "out.traj"),
        "new.toml": ("init", "Au5", "-o", "new.toml"),
        "run/": ("search", "Au4", *SMALL, "--out", "run"),
        "gold/": ("dataset", "Au4", "-n", 2, "-e", "emt", "--out", "gold"),
    }
    outcomes = run_many(list(commands.values()), here, limit=1000)
    for name, (code, _, err) in zip(commands, outcomes, strict=True):
        errors = [line for line in err.splitlines() if line.startswith("Error: ")]
        assert code == 2
        assert len(errors) == 1, err
        assert name in errors[0]
    left = sorted(path.name for path in here.iterdir() if path.is_file())
    assert left == before


@pytest.mark.slow
def test_terminals_without_greek(here, model):
    commands: list[tuple] = [(command.__name__.replace("_", "-"), "--help") for command in COMMANDS]
    commands += [
        ("info", model), ("predict", model, "test.extxyz"), ("engines",),
        ("evaluate", model, "test.extxyz", "--resamples", 0),
        ("calibrate", model, "test.extxyz", "-o", "new.model", "--resamples", 2),
        ("check", model, "test.extxyz", "-i", 0), ("init", "-o", "-"), ("search", "Au4", *SMALL),
    ]  # fmt: skip
    plain = {"LANG": "C", "LC_ALL": "C", "PYTHONIOENCODING": "ascii"}
    for command, (code, out, err) in zip(commands, run_many(commands, here, **plain), strict=True):
        assert code == 0, (command, err)
        assert out.strip()


def test_letters_that_a_terminal_lacks():
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    plain_where_needed(stream)
    stream.write("σ = 0.1 eV/Å – κ…")
    stream.flush()
    assert stream.buffer.getvalue() == b"std = 0.1 eV/A - kappa..."
    whole = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    plain_where_needed(whole)
    whole.write("σ")
    whole.flush()
    assert whole.buffer.getvalue() == "σ".encode()


def test_a_fit_says_what_it_does():
    said: list[str] = []

    class Bar:
        def add_task(self, label, **fields):
            said.append(label)
            return 0

        def update(self, task, **fields):
            said.append(fields["count"])

        def reset(self, task, **fields):
            said.append(fields["description"])

    images = [labelled(s) for s in range(3)]
    Potential(SOAP(["Au"], 5.0)).fit(images, progress=_Step("Fitting", Bar()))
    phases = ["descriptors", "inducing points", "kernel rows", "linear algebra", "uncertainty"]
    phases.append("training domain")
    assert [text for text in said if ":" in text] == [f"Fitting: {name}" for name in phases]
    assert "3/3" in said


def test_settings_survive_their_copy_in_the_database(here):
    config = make_config(
        {"system": {"formula": "Cu4", "kind": "bulk", "cell": [4, 4.1, 4.2]},
         "engine": {"name": "emt", "options": {"fixed_cutoff": True}}}
    )  # fmt: skip
    Store.create(here / "run", config)
    assert Store.open(here / "run").config() == config
    (here / "run" / SETTINGS).unlink()
    assert Store.open(here / "run").config() == config
    assert (here / "run" / SETTINGS).read_text() == write_config(config)
