"""Imports between modules form no cycle, and packages import only from packages below them."""

from __future__ import annotations

import ast
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "nugget"

# A package may import from the packages before it in this list.
LAYERS = [
    *("errors", "registry", "settings", "numerics", "storage", "structures", "display"),
    *("descriptors", "gp", "engines", "relax", "calibration", "potential", "presets", "interop"),
    *(
        "ase_plugin",
        "datafiles",
        "systems",
        "generators",
        "search",
        "onthefly",
        "dataset",
        "campaign",
    ),
    *("report", "testing", "cli"),
]

# Folders of plug-ins, in which a small file is the rule.
PLUGINS = {"engines/programs", "generators", "cli", "gp/kernels", "gp/uncertainty"}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def name_of(path: Path) -> str:
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def package_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


@cache
def imports() -> dict[str, set[str]]:
    """The modules of this package that each module imports, anywhere in its text."""
    names = {name_of(path) for path in modules()}
    graph: dict[str, set[str]] = {}
    for path in modules():
        targets: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                for alias in node.names:
                    inner = f"{node.module}.{alias.name}"
                    targets.add(inner if inner in names else node.module)
            elif isinstance(node, ast.Import):
                targets.update(alias.name for alias in node.names)
        # `from nugget import lazy_names` needs no module but the root, which imports nothing.
        graph[name_of(path)] = (targets & names) - {name_of(path), "nugget"}
    return graph


def test_there_is_no_import_cycle() -> None:
    """Imports inside functions and for type checking count as well."""
    try:
        TopologicalSorter(imports()).prepare()
    except CycleError as error:
        pytest.fail(f"import cycle: {' -> '.join(error.args[1])}")


@pytest.mark.parametrize("module", sorted(imports()))
def test_packages_import_only_from_below(module: str) -> None:
    if module == "nugget":
        return
    below = LAYERS[: LAYERS.index(package_of(module)) + 1]
    above = {target for target in imports()[module] if package_of(target) not in below}
    assert not above, f"{module} imports {sorted(above)}"


def test_no_private_name_crosses_packages() -> None:
    for path in modules():
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nugget."):
                names = [*(node.module or "").split(".")[2:], *(a.name for a in node.names)]
                private = [n for n in names if n.startswith("_") and not n.startswith("__")]
                same = package_of(node.module or "") == package_of(name_of(path))
                assert same or not private, f"{path.name} imports {private} of {node.module}"


def test_the_gaussian_process_has_no_atoms() -> None:
    for path in (ROOT / "gp").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("ase"), path


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_sizes() -> None:
    """Modules cover one subject: none is over 700 lines, and few are small."""
    assert len(modules()) <= 300
    assert not {name_of(p): n for p in modules() if (n := lines(p)) > 700}
    small = [
        name_of(p)
        for p in modules()
        if lines(p) < 60
        and p.name != "__init__.py"
        and p.parent.relative_to(ROOT).as_posix() not in PLUGINS
    ]
    assert len(small) <= 25, small


def test_nothing_cites_documents_outside_of_the_repository() -> None:
    for path in modules():
        assert "DESIGN" not in path.read_text(encoding="utf-8"), path
