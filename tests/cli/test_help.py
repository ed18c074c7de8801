"""Help fits 80 columns, keeps its brackets, and errors speak the words of the command line."""

from __future__ import annotations

import re

import pytest
import typer
from typer.testing import CliRunner

from nugget.cli._console import engine_options, flowing, setting, typed
from nugget.cli.main import COMMANDS, app
from nugget.display import counted
from nugget.errors import NuggetError
from nugget.search.search_settings import make_config, write_config


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_examples_fit_80_columns(command):
    """One column of margin on either side; a longer line would break in the middle."""
    for line in flowing(command.__doc__).splitlines():
        if line.startswith(" "):
            assert len(line.replace("\\[", "[")) <= 78, line


def test_paragraphs_flow_and_brackets_survive(monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = CliRunner().invoke(app, ["engines", "--help"]).output
    assert "whose section [engine] it uses" in " ".join(shown.split())
    assert flowing("One\ntwo.\n\n    a\n    b") == "One two.\n\n    a\n    b"


@pytest.mark.parametrize(
    ("command", "option", "text"),
    [
        ("md", "--seed", "of the run"),
        ("lammps", "--seed", "of the run"),
        ("search", "--seed", "search"),
        *((name, "--set", "Setting of the engine") for name in ("md", "neb", "saddle", "relax")),
        ("search", "--set", "Any other setting"),
    ],
)
def test_options_with_one_name_describe_what_they_do_in_this_command(command, option, text):
    help_of = {
        name: parameter.help
        for parameter in typer.main.get_command(app).commands[command].params
        for name in parameter.opts
    }
    assert text in help_of[option]


def test_values_as_users_type_them():
    assert typed("2") == 2
    assert typed("true") is True
    assert typed('{Au = "Au.upf"}') == {"Au": "Au.upf"}
    assert typed("(2, 2, 1)") == (2, 2, 1)
    assert typed("PBE") == "PBE"
    assert engine_options(["xc=PBE", "kpts=[2,2,2]"]) == {"xc": "PBE", "kpts": [2, 2, 2]}
    with pytest.raises(NuggetError, match="--option xc: write name=value"):
        engine_options(["xc"])


def test_singular_and_plural():
    assert counted(1, "structure") == "1 structure"
    assert counted(2, "structure") == "2 structures"
    assert counted(0, "time") == "0 times"


def test_bare_keys_are_told_their_section():
    with pytest.raises(NuggetError, match=r"did you mean search\.kappa\?"):
        setting("kappa=4")
    with pytest.raises(NuggetError, match=r"did you mean kappa below \[search\]\?"):
        make_config({"kappa": 4.0})


def test_init_names_the_permitted_values():
    text = write_config(make_config({}))
    assert "one of local, slurm, pbs" in text
    assert (
        "one of processes, in-process, dask" in text or "one of in-process, processes, dask" in text
    )


def test_an_engine_can_be_tried_from_a_settings_file(tmp_path):
    file = tmp_path / "settings.toml"
    file.write_text('[system]\nformula = "Au6"\n[engine]\nname = "lj"\noptions = {rc = 9.0}\n')
    done = CliRunner().invoke(app, ["engines", "--try", str(file), "--json"])
    assert done.exit_code == 0, done.output
    assert '"engine": "lj"' in done.output
    file.write_text('[system]\nformula = "Au6"\n[engine]\nname = "stranger:make"\n')
    done = CliRunner().invoke(app, ["engines", "--try", str(file)])
    assert done.exit_code == 2
    assert "--trust" in done.output


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_options_speak_no_python(command, monkeypatch):
    """Flags have no value, others have a short word; what may be chosen is named."""
    monkeypatch.setenv("COLUMNS", "80")
    name = command.__name__.replace("_", "-")
    shown = CliRunner().invoke(app, [name, "--help"]).output
    options = [line for line in shown.splitlines() if re.match(r"│ \*? *--", line)]
    assert options
    assert not [line for line in options if "<bool>" in line or "list[" in line or "<path>" in line]
    assert max(map(len, shown.splitlines())) <= 80


def test_help_names_what_may_be_chosen(monkeypatch):
    monkeypatch.setenv("COLUMNS", "300")
    shown = CliRunner().invoke(app, ["fit", "--help"]).output
    assert "One of quick, balanced, accurate, auto." in shown
