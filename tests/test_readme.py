"""The README's commands and programs run as they are written."""

from __future__ import annotations

import re
import runpy
import shlex
from pathlib import Path

from typer.testing import CliRunner

from nugget.cli.main import app

ROOT = Path(__file__).parents[1]
# Under these headings every ```bash and ```python block is run, in order, in one directory.
SECTIONS = ("From the command line", "From Python")


def blocks() -> list[tuple[str, str]]:
    text = (ROOT / "README.md").read_text()
    found = []
    for section in re.split(r"^## ", text, flags=re.MULTILINE)[1:]:
        if section.splitlines()[0] in SECTIONS:
            found += re.findall(r"^```(bash|python)\n(.*?)^```", section, re.DOTALL | re.MULTILINE)
    return found


def test_the_readme_works(tmp_path, monkeypatch):
    """In this process, since a dozen starts of Python take longer than the work itself."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    parts = blocks()
    assert {kind for kind, _ in parts} == {"bash", "python"}
    for kind, code in parts:
        if kind == "python":
            exec(compile(code, "README.md", "exec"), {"__name__": "__main__"})
            continue
        for line in code.splitlines():
            program, *arguments = shlex.split(line, comments=True)
            if program == "nugget":
                done = CliRunner().invoke(app, arguments)
                assert done.exit_code == 0, f"{line}\n{done.output}{done.exception!r}"
            else:
                assert program == "python", line
                runpy.run_path(arguments[0], run_name="__main__")
    for name in ("predicted.extxyz", "relaxed.extxyz", "pp.model"):
        assert (tmp_path / name).exists()
