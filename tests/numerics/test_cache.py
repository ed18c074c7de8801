"""Machine code on disk is used only while all compiled sources are as they were."""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import nugget
from nugget.numerics.jit import compiled_sources, sources_digest

PACKAGE = Path(nugget.__file__).parent

# A call of the function that callers use, and a change in another file that it depends on.
PRELUDE = "import numpy as np; rng = np.random.default_rng(0); r = rng.normal\n"
COINCIDENT = """
from nugget.descriptors.soap_loops import coincident as f
one = np.array([0]), np.array([1])
print(f(np.array([[0.0, 0, 0], [2.0, 0, 0]]), np.array([0, 1]), *one, np.zeros((1, 3))).tolist())
"""
SELF_SUMS = """
from nugget.gp.kernels.rbf_loops import self_sums as f
out = np.empty(1)
f(r(size=(3, 5)), np.zeros(3, int), np.array([0, 3]), 0.7, 1.3, out)
print(out.tolist())
"""
KERNEL_ROWS = """
from nugget import RBF
from nugget.gp.points import Points
inducing = RBF(1.0).inducing(r(size=(13, 5)), np.zeros(13, int))
print(inducing.forward(Points.single(r(size=(3, 5)))).k)
"""
SOAP = """
from ase import Atoms
from nugget import SOAP
print(SOAP(["H"], 4.0, 1, 1).compute(Atoms("H2", [[0, 0, 0], [0.3, 0.4, 0.8]])).values)
"""
FUSED = """
from nugget import RBF
from nugget.gp.points import Points
points = Points.single(r(size=(2, 3)))
inducing = RBF(1.0).inducing(r(size=(13, 3)), np.zeros(13, int))
columns = r(size=(7, 13)), np.zeros(7)
weights = np.array([[0.0, 1.0]])
print(inducing.value_and_grad(points, np.array([1, 1]), np.zeros(13), weights, columns)[2])
"""
QUICK = [
    (COINCIDENT, "descriptors/soap_loops.py", "TOO_CLOSE = 0.1", "TOO_CLOSE = 5.0"),
    (SELF_SUMS, "gp/kernels/rbf_loops.py", "_C2, _C3, _C4 = 0.5", "_C2, _C3, _C4 = 0.6"),
]
SLOW = [
    (KERNEL_ROWS, "numerics/tiles.py", "1.0, 0.69", "1.0, 0.79"),
    (SOAP, "descriptors/soap_loops.py", "(2.0 * m + 1.0) * z", "(2.0 * m + 1.5) * z"),
    (FUSED, "gp/loops.py", "t1 += x[j] *", "t1 += 2.0 * x[j] *"),
]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """A copy of the package that may be changed, with caches of its own beside the sources."""
    shutil.copytree(PACKAGE, tmp_path / "nugget", ignore=shutil.ignore_patterns("__pycache__"))
    return tmp_path


def run(home: Path, code: str, **settings: str) -> tuple[str, bool]:
    """What the code prints in a fresh process, and whether something was compiled for it."""
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "NUGGET_"))}
    done = subprocess.run(
        [sys.executable, "-c", PRELUDE + code],
        env=kept | {"PYTHONPATH": str(home), **settings},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout, "nugget: compiling" in done.stderr


def change(home: Path, file: str, old: str, new: str) -> None:
    path = home / "nugget" / file
    source = path.read_text()
    assert source.count(old) == 1
    path.write_text(source.replace(old, new))


@pytest.mark.parametrize(
    "case", [*QUICK, *(pytest.param(case, marks=pytest.mark.slow) for case in SLOW)],
    ids=lambda case: case[1],
)  # fmt: skip
def test_a_change_in_a_helper_reaches_the_caller(copy: Path, case: tuple[str, str, str, str]):
    code, file, old, new = case
    before, compiled = run(copy, code)
    assert compiled
    assert run(copy, code) == (before, False)
    change(copy, file, old, new)
    after, compiled = run(copy, code)
    assert compiled
    assert after != before
    assert run(copy, code) == (after, False)


def test_a_change_elsewhere_keeps_the_cache(copy: Path):
    before, _ = run(copy, COINCIDENT)
    change(copy, "errors.py", "class NuggetError", "nothing = 1\n\n\nclass NuggetError")
    assert run(copy, COINCIDENT) == (before, False)


def test_a_package_that_cannot_be_written_is_cached_for_the_user(copy: Path):
    for directory in {path.parent for path in (copy / "nugget").rglob("*.py")}:
        (directory / "__pycache__").touch()  # a file where a directory would have to be made
    setting = {"XDG_CACHE_HOME": str(copy / "home"), "HOME": str(copy / "home")}
    before, compiled = run(copy, COINCIDENT, **setting)
    assert compiled
    assert run(copy, COINCIDENT, **setting) == (before, False)
    assert list((copy / "home").rglob("*.nbi"))


def test_the_user_may_choose_the_directory(copy: Path):
    run(copy, COINCIDENT, NUMBA_CACHE_DIR=str(copy / "cache"))
    assert list((copy / "cache").rglob("*.nbi"))
    assert not list((copy / "nugget").rglob("*.nbi"))


def _is_njit(decorator: ast.expr) -> bool:
    function = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(function, ast.Name) and function.id == "njit"


def test_everything_compiled_is_in_the_digest():
    """No file but those of the digest uses Numba, and none takes a constant from another file."""
    sources = compiled_sources()
    for path in PACKAGE.rglob("*.py"):
        name, source = path.relative_to(PACKAGE).as_posix(), path.read_text()
        if name not in sources:
            assert "import numba" not in source, name
            assert "from numba" not in source, name
            continue
        if "numerics/" in name:
            continue
        tree = ast.parse(source)
        functions = [
            node
            for node in tree.body
            if isinstance(node, ast.FunctionDef) and any(map(_is_njit, node.decorator_list))
        ]
        nodes = ast.walk(ast.Module([line for f in functions for line in f.body], []))
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("nugget."):
                module = str(node.module).removeprefix("nugget.").replace(".", "/") + ".py"
                taken = used & {alias.asname or alias.name for alias in node.names}
                assert not taken or module in sources, f"{name} takes {taken} from {module}"


def test_the_digest_is_the_same_in_every_process(copy: Path):
    code = "from nugget.numerics.jit import sources_digest as f; print(f())"
    assert run(copy, code)[0].strip() == sources_digest()
