"""The arrows between rooms point down only, and the house stays as small as it is meant to be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "src" / "nugget"

# What each room may import, besides itself. Rooms further down know nothing of those above them.
FLOOR = {"errors", "registry", "_compiled"}
BELOW: dict[str, set[str]] = {
    "errors": set(),
    "registry": {"errors"},
    "_compiled": {"errors"},
    "structures": FLOOR,
    "identity": FLOOR | {"structures"},
    "descriptors": FLOOR | {"structures"},
    "gp": FLOOR,  # knows no atoms
    "evaluation": FLOOR | {"structures"},
    "potential": FLOOR | {"structures", "descriptors", "gp"},
    "relax": FLOOR | {"structures"},
    "calculators": FLOOR | {"structures", "potential"},
    "modelfile": FLOOR | {"structures", "gp", "potential", "evaluation"},
    "calibration": FLOOR | {"structures", "gp", "potential"},
    "generators": FLOOR | {"structures", "relax"},
}
BELOW["search"] = {*BELOW, *FLOOR}
BELOW["onthefly"] = {*BELOW} - {"search", "generators", "identity"}
BELOW["dataset"] = {*BELOW} - {"search", "onthefly"}
BELOW["campaign"] = {*BELOW} - {"dataset", "onthefly"}
BELOW["report"] = {*BELOW}
BELOW["cli"] = {*BELOW}
BELOW["testing"] = {*BELOW} - {"cli", "report", "campaign", "dataset"}
BELOW |= {"datafiles": {"structures"}, "engines": {"evaluation"}, "presets": {"potential"}}

# Imports inside functions may point up: a method of convenience, which costs nothing until called.
UPWARD = {
    *(("potential", room) for room in ("calculators", "modelfile", "evaluation", "calibration")),
}


def modules() -> list[Path]:
    return sorted(ROOT.rglob("*.py"))


def room_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imports(node: ast.AST, inside: bool = False) -> Iterator[tuple[str, bool]]:
    """Rooms that a module imports, and whether it does so inside a function."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test):
            continue
        names = []
        if isinstance(child, ast.ImportFrom) and child.module == "nugget":
            names = [f"nugget.{alias.name}" for alias in child.names]
        elif isinstance(child, ast.ImportFrom):
            names = [child.module or ""]
        elif isinstance(child, ast.Import):
            names = [alias.name for alias in child.names]
        for name in names:
            room = name.removeprefix("nugget.").split(".")[0]
            exists = (ROOT / room).is_dir() or (ROOT / f"{room}.py").exists()
            if name.startswith("nugget.") and exists:
                yield room, inside
        yield from imports(child, inside or isinstance(child, ast.FunctionDef))


@pytest.mark.parametrize("path", modules(), ids=lambda p: str(p.relative_to(ROOT)))
def test_arrows_point_down(path: Path) -> None:
    here = room_of(path)
    if here == "__init__":
        return
    for room, inside in imports(ast.parse(path.read_text(encoding="utf-8"))):
        allowed = BELOW[here] | {here}
        if inside:
            allowed = allowed | {up for me, up in UPWARD if me == here}
        assert room in allowed, f"{here} must not import {room}"


def test_the_gaussian_process_knows_no_atoms() -> None:
    for path in (ROOT / "gp").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom):
                assert not (node.module or "").startswith("ase"), path


def test_sizes() -> None:
    """At most six modules in the root, none anywhere over 300 lines."""
    assert len(list(ROOT.glob("*.py"))) <= 6
    long = {str(p.relative_to(ROOT)): n for p in modules() if (n := lines(p)) > 300}
    assert not long


def lines(path: Path) -> int:
    return len(path.read_text(encoding="utf-8").splitlines())


def test_nothing_cites_what_is_not_here() -> None:
    for path in modules():
        assert "DESIGN" not in path.read_text(encoding="utf-8"), path
