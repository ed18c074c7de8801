"""The tiles' machine code for processors that this machine is not: registers, and no detours."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

CODE = """
import re, sys
import llvmlite.binding as llvm
from llvmlite import ir
from nugget.numerics import tiles

double, integer = ir.DoubleType().as_pointer(), ir.IntType(64)
module = ir.Module("tile")
kinds = ir.FunctionType(ir.VoidType(), [double] * tiles.ROWS + [double, integer, double])
function = ir.Function(module, kinds, "tile")
*rows, b, depth, out = function.args
builder = ir.IRBuilder(function.append_basic_block())
start = [[tiles._constant(0.0)] * tiles.VECTORS for _ in rows]
for r, row in enumerate(tiles._sums(builder, rows, b, depth, start)):
    for v, value in enumerate(row):
        tiles._write(builder, out, r * tiles.WIDTH + v * tiles.LANES, value)
builder.ret_void()
llvm.initialize_all_targets()
llvm.initialize_all_asmprinters()
triple, cpu = sys.argv[1:]
machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, opt=3)
module.triple, module.data_layout = triple, str(machine.target_data)
text = machine.emit_assembly(llvm.parse_assembly(str(module)))
blocks = re.split(r"\\n\\S+:", text)
fused = re.compile("vfmadd|fmla")
loop = max(blocks, key=lambda block: len(fused.findall(block)))
print(len(fused.findall(loop)), len(set(re.findall("zmm[0-9]+", loop))),
      len(re.findall(r"%rsp|\\[sp", loop)))
"""
LINUX, ARM = "x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"


@pytest.mark.parametrize(
    ("lanes", "triple", "cpu", "fused"),
    [
        (8, LINUX, "skylake-avx512", 24),
        (8, LINUX, "sapphirerapids", 24),
        (8, LINUX, "znver4", 24),
        (4, LINUX, "haswell", 12),
        (4, LINUX, "znver2", 12),
        (4, ARM, "neoverse-n1", 24),
        (4, "arm64-apple-darwin", "apple-m1", 24),
    ],
)
def test_sums_stay_in_registers(lanes: int, triple: str, cpu: str, fused: int):
    """As many fused products as sums in the loop, on the widest registers there are."""
    found = subprocess.run(
        [sys.executable, "-c", CODE, triple, cpu],
        env={**os.environ, "NUGGET_LANES": str(lanes)},
        capture_output=True,
        text=True,
    )
    if "No available targets" in found.stderr or "unable to get target" in found.stderr.lower():
        pytest.skip(f"this llvmlite knows no {triple}")
    assert found.returncode == 0, found.stderr
    products, wide, on_stack = map(int, found.stdout.split())
    assert products == fused
    assert (wide > 20) == (lanes == 8)
    assert on_stack <= (4 if triple != LINUX else 0)  # NEON lacks two registers of 32
