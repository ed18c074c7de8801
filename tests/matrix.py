"""Build a wheel, install it in empty environments with the oldest and the newest versions, test it.

    python tests/matrix.py [oldest] [newest]

`oldest` takes the lowest versions that pyproject.toml permits, with the lowest Python; `newest` the
newest that can be had, with the newest Python found here. A quick part of the tests is run against
the installed wheel, not against the sources: PYTHONPATH is not passed on.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]
PLACE = ROOT / ".venv-matrix"
TESTS = (
    "gp", "descriptors", "structures", "relax", "generators", "cli/test_help.py",
    "test_potential.py", "test_modelfile.py", "test_calculators.py", "evaluation/test_engines.py",
    "search/test_loop.py",
)  # fmt: skip
TOOLS = ("pytest", "pytest-xdist", "hypothesis", "mpmath")
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def newest_python() -> str:
    """The newest python3.x on PATH that starts."""
    for minor in range(20, 10, -1):
        found = shutil.which(f"python3.{minor}")
        if found and subprocess.run([found, "--version"], capture_output=True).returncode == 0:
            return found
    raise SystemExit("There is no python3 on PATH.")


def run(*command: object) -> None:
    print("+", " ".join(map(str, command)), flush=True)
    subprocess.run([str(part) for part in command], check=True, cwd=ROOT, env=ENVIRONMENT)


def main() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lowest = [re.sub(r">=", "==", text) for text in project["dependencies"]]
    oldest = "python" + project["requires-python"].removeprefix(">=")
    shutil.rmtree(PLACE / "wheel", ignore_errors=True)
    run(sys.executable, "-m", "pip", "wheel", "--quiet", ".", "--no-deps", "-w", PLACE / "wheel")
    [wheel] = (PLACE / "wheel").glob("*.whl")
    for name in sys.argv[1:] or ["oldest", "newest"]:
        python = oldest if name == "oldest" else newest_python()
        exact = lowest if name == "oldest" else []
        shutil.rmtree(PLACE / name, ignore_errors=True)
        run(python, "-m", "venv", PLACE / name)
        pip = (PLACE / name / "bin" / "python", "-m", "pip")
        run(*pip, "install", "--quiet", wheel, *exact, *TOOLS)
        run(*pip, "check")
        run(PLACE / name / "bin" / "nugget", "--version")
        # -P: the tests must find the installed package.
        where = [ROOT / "tests" / test for test in TESTS]
        run(PLACE / name / "bin" / "python", "-P", "-m", "pytest", "-q", "-m", "not slow", *where)
        print(f"{name}: {python} passed", flush=True)


if __name__ == "__main__":
    main()
