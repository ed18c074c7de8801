"""Code named in files is run only when the user asked for it."""

from __future__ import annotations

from pathlib import Path

import pytest

from nugget.engines.engine_settings import (
    EngineConfig,
    ExecutionConfig,
    code_in,
    require_trust,
    trusted_file,
)
from nugget.errors import NuggetError


@pytest.fixture(autouse=True)
def listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "trusted.toml"
    monkeypatch.setenv("NUGGET_TRUSTED", str(path))
    return path


def test_the_seen_case_is_refused_and_shown():
    engine = EngineConfig(name="os:system", options={"command": "touch pwned"})
    with pytest.raises(NuggetError, match=r"run\.toml would run 'os:system'.*--trust"):
        require_trust(code_in(engine), "run.toml")
    require_trust(code_in(engine), "run.toml", trust=True)


@pytest.mark.parametrize(
    ("engine", "code"),
    [
        ({"name": "emt"}, []),
        ({"name": "gfn1-xtb", "options": {"accuracy": 0.1}}, []),
        ({"name": "no-such-engine"}, []),
        ({"name": "vasp"}, []),
        ({"name": "vasp", "options": {"command": "rm -r ~"}}, ["vasp:command=rm -r ~"]),
        ({"name": "mace", "options": {"model": "x.pt"}}, ["mace:model=x.pt"]),
        ({"name": "a.b:c"}, ["a.b:c"]),
    ],
)
def test_what_settings_would_run(engine, code):
    assert code_in(EngineConfig(**engine)) == code


def test_clusters_may_run_code_too():
    def code(**execution):
        return code_in(EngineConfig(), ExecutionConfig(kind="dask", **execution))

    assert code(cluster="slurm", options={"queue": "long", "walltime": "01:00"}) == []
    assert code(cluster="slurm", options={"job_script_prologue": ["curl x | sh"]}) == [
        "dask:job_script_prologue=['curl x | sh']"
    ]
    assert code(address="tcp://x:1") == ["dask:address=tcp://x:1"]


def test_the_users_list(listed):
    require_trust([], "run.toml")
    listed.write_text('code = ["my_engine:make"]\n')
    require_trust(["my_engine:make"], "run.toml")
    with pytest.raises(NuggetError, match="'my_engine:other'"):
        require_trust(["my_engine:make", "my_engine:other"], "run.toml")
    listed.write_text('code = "my_engine:make"\n')
    with pytest.raises(NuggetError, match="must be a list"):
        require_trust(["my_engine:make"], "run.toml")
    listed.write_text("code = [")
    with pytest.raises(NuggetError, match="cannot be read"):
        require_trust(["my_engine:make"], "run.toml")


def test_where_the_list_is(monkeypatch, tmp_path):
    monkeypatch.delenv("NUGGET_TRUSTED")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert trusted_file() == tmp_path / "nugget" / "trusted.toml"
    monkeypatch.delenv("XDG_CONFIG_HOME")
    assert trusted_file() == Path.home() / ".config" / "nugget" / "trusted.toml"
