"""Numba compiles x**2 once per process, with the fast-math flags of whoever comes first.

A power in a compiled loop would make its bits depend on what was compiled before it, and so on the
history of the cache. Loops multiply instead; powers of whole numbers (sizes) do no harm.
"""

import ast
from pathlib import Path

import nugget

ROOT = Path(nugget.__file__).parent


def compiled_functions():
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.FunctionDef) and any(
                "njit" in ast.unparse(decorator) for decorator in node.decorator_list
            ):
                yield path, node


def test_compiled_loops_take_no_powers_of_numbers():
    found = list(compiled_functions())
    assert len(found) > 30
    for path, function in found:
        for node in ast.walk(function):
            if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
                whole = ("l_max + 1", "len(factor)")
                assert ast.unparse(node.left) in whole, f"{path.name}: {ast.unparse(node)}"
