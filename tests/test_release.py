"""Version, citation and recipe agree; nothing speaks of a package index that does not have us."""

from __future__ import annotations

import re
import tomllib
from importlib.metadata import version
from pathlib import Path

import nugget

ROOT = Path(__file__).parents[1]


def test_the_version_has_one_place():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert project["project"]["dynamic"] == ["version"]
    assert project["tool"]["hatch"]["version"]["path"] == "src/nugget/__init__.py"
    assert version("nugget-gp") == nugget.__version__
    assert f"\nversion: {nugget.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    assert f"## {nugget.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def requirements(recipe: str, kind: str) -> set[str]:
    """The lines of one list below `requirements` of a recipe."""
    listed = re.search(rf"^  {kind}:\n((?:    - .*\n)+)", recipe, re.MULTILINE)
    return {line.removeprefix("    - ") for line in listed[1].splitlines()}


def test_the_recipe_needs_what_the_package_needs():
    """The same packages with the same lowest versions, neither more nor fewer."""
    file = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = file["project"]
    recipe = (ROOT / "packaging" / "conda" / "meta.yaml").read_text()
    other = {"matplotlib": "matplotlib-base", "tblite": "tblite-python"}
    python = f"python {project['requires-python']}"
    wanted = {python}
    for needed in project["dependencies"]:
        name, low = re.fullmatch(r"([\w-]+)>=([\d.]+)", needed).groups()
        wanted.add(f"{other.get(name, name)} >={low}")
    assert requirements(recipe, "run") == wanted
    assert requirements(recipe, "host") == {python, "pip", *file["build-system"]["requires"]}
    scripts = re.search(r"entry_points:\n((?:    - .*\n)+)", recipe)[1]
    assert scripts == "".join(f"    - {k} = {v}\n" for k, v in project["scripts"].items())
    assert f"name: {project['name']}\n" in recipe
    assert f"license: {project['license']}\n" in recipe


def test_nothing_assumes_a_package_index():
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    for page in pages:
        assert not re.search(r"pip install ['\"]?nugget", page.read_text()), page
