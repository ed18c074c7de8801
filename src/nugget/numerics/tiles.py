"""Tiles of matrix products that stay in registers, for whatever registers the processor has.

A tile is up to ROWS rows of a by WIDTH columns of b, whose sums Σ_t a[i, t] b[t, j] are kept in
registers until they are complete: 8 × 24 numbers where registers hold eight doubles (AVX-512),
4 × 12 where they hold four (AVX) or two (NEON). b is packed: WIDTH columns of all t are neighbours,
and a tile reads them in the order in which they stand. Sums over t keep their order, so results do
not depend on the width of the registers. The loops are written in LLVM's language directly: a tile
has 24 sums and as many variants as rows, which Numba would need half a minute to understand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from nugget.numerics.arrays import Floats
from nugget.numerics.jit import FAST, LANES
from nugget.numerics.simd import aligned

VECTORS = 3  # of a tile's row
WIDTH = VECTORS * LANES
ROWS = LANES
_intrinsic: Any = intrinsic  # calls leave out the first argument, which type checkers miss
_FLAGS = tuple(sorted(FAST))
_VECTOR, _BITS = ir.VectorType(ir.DoubleType(), LANES), ir.VectorType(ir.IntType(64), LANES)
_INT = ir.IntType(64)

# 2^r = 1 + Σ c_n rⁿ for |r| <= 1/2 to 3e-16 (least squares at Chebyshev's points).
_POWERS = (
    1.0, 0.69314718055995, 0.24022650695910136, 0.05550410866444768, 0.00961812910759275,
    0.0013333558230170627, 0.00015403530458701895, 1.5252657257186041e-05, 1.3215434544689183e-06,
    1.020869083593037e-07, 7.073902135694472e-09,
)  # fmt: skip

_BIG = 6755399441055744.0  # 1.5·2⁵²: adding it leaves the nearest integer in the low bits
LOWEST = -1021.0  # 2^t with a smaller t is no longer a normal number
Emit = Callable[[Any, int], None]  # (builder, rows): the code of a tile with that many rows


def packed(columns: Floats) -> Floats:
    """Columns (t, n) as panels (⌈n/WIDTH⌉, t, WIDTH), filled up with zeros."""
    depth, n = columns.shape
    panels = -(-n // WIDTH)
    whole = np.zeros((depth, panels * WIDTH))
    whole[:, :n] = columns
    return aligned(whole.reshape(depth, panels, WIDTH).transpose(1, 0, 2))


def _splat(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(_VECTOR, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, nothing, lanes)


def _constant(number: float) -> Any:
    return ir.Constant(_VECTOR, [number] * LANES)


def _read(builder: Any, pointer: Any, index: Any) -> Any:
    place = builder.gep(pointer, [index])
    return builder.load(builder.bitcast(place, _VECTOR.as_pointer()), align=8)


def _write(builder: Any, pointer: Any, index: int, value: Any) -> None:
    place = builder.gep(pointer, [ir.Constant(_INT, index)])
    builder.store(value, builder.bitcast(place, _VECTOR.as_pointer()), align=8)


def _fused(builder: Any, a: Any, b: Any, c: Any) -> Any:
    """a·b + c, rounded once where the processor can."""
    return builder.fadd(builder.fmul(a, b, flags=_FLAGS), c, flags=_FLAGS)


def _sums(builder: Any, a: list[Any], b: Any, depth: Any, start: list[list[Any]]) -> Any:
    """start[r][v] + Σ_t a[r][t] b[t, v]: a loop over t with all sums in registers."""
    before = builder.block
    loop, end = builder.append_basic_block("tile"), builder.append_basic_block("done")
    some = builder.icmp_signed(">", depth, ir.Constant(_INT, 0))
    builder.cbranch(some, loop, end)
    builder.position_at_end(loop)
    t = builder.phi(_INT)
    t.add_incoming(ir.Constant(_INT, 0), before)
    sums = [[builder.phi(_VECTOR) for _ in row] for row in start]
    at = builder.mul(t, ir.Constant(_INT, WIDTH))
    places = [builder.add(at, ir.Constant(_INT, v * LANES)) for v in range(VECTORS)]
    line = [_read(builder, b, place) for place in places]
    more = []
    for pointer, row in zip(a, sums, strict=True):
        x = _splat(builder, builder.load(builder.gep(pointer, [t])))
        more.append([_fused(builder, x, z, s) for z, s in zip(line, row, strict=True)])
    next_t = builder.add(t, ir.Constant(_INT, 1))
    t.add_incoming(next_t, loop)
    builder.cbranch(builder.icmp_signed("<", next_t, depth), loop, end)
    for row, first, last in zip(sums, start, more, strict=True):
        for phi, f, g in zip(row, first, last, strict=True):
            phi.add_incoming(f, before)
            phi.add_incoming(g, loop)
    builder.position_at_end(end)
    found = []
    for first, last in zip(start, more, strict=True):
        phis = [builder.phi(_VECTOR) for _ in first]
        for phi, f, g in zip(phis, first, last, strict=True):
            phi.add_incoming(f, before)
            phi.add_incoming(g, loop)
        found.append(phis)
    return found


def _exp2(builder: Any, t: Any) -> Any:
    """2^t; 2^LOWEST below that; NaN for NaN."""
    lowest = _constant(LOWEST)
    t = builder.select(builder.fcmp_ordered("<", t, lowest), lowest, t)
    shifted = builder.fadd(t, _constant(_BIG), flags=_FLAGS)
    r = builder.fsub(t, builder.fsub(shifted, _constant(_BIG), flags=_FLAGS), flags=_FLAGS)
    r2 = builder.fmul(r, r, flags=_FLAGS)
    r4 = builder.fmul(r2, r2, flags=_FLAGS)
    c = [_constant(number) for number in _POWERS]

    def pair(n: int) -> Any:  # Estrin's scheme: short chains keep both units for products busy
        return _fused(builder, r, c[n + 1], c[n])

    low = _fused(builder, r2, pair(2), pair(0))
    middle = _fused(builder, r2, pair(6), pair(4))
    high = _fused(builder, r2, c[10], pair(8))
    power = _fused(builder, r4, _fused(builder, r4, high, middle), low)
    bits, n = (builder.bitcast(value, _BITS) for value in (power, shifted))
    exponent = builder.shl(n, ir.Constant(_BITS, [52] * LANES))
    return builder.bitcast(builder.add(bits, exponent), _VECTOR)


def _by_rows(builder: Any, rows: Any, emit: Emit) -> None:
    """The code of `emit` for each number of rows up to ROWS, and a jump to the one that is due."""
    end = builder.append_basic_block("tiles_end")
    jump = builder.switch(rows, end)
    for count in range(1, ROWS + 1):
        block = builder.append_basic_block(f"rows{count}")
        jump.add_case(ir.Constant(_INT, count), block)
        builder.position_at_end(block)
        emit(builder, count)
        builder.branch(end)
    builder.position_at_end(end)


def _pointer(context: Any, builder: Any, kind: Any, array: Any, *indices: Any) -> Any:
    struct = context.make_array(kind)(context, builder, array)
    return cgutils.get_item_pointer(context, builder, kind, struct, indices, wraparound=False)


def _row_pointers(
    context: Any, builder: Any, kind: Any, array: Any, i: Any, j: Any, rows: int
) -> list[Any]:
    return [
        _pointer(context, builder, kind, array, builder.add(i, ir.Constant(_INT, r)), j)
        for r in range(rows)
    ]


@_intrinsic
def exponential_tile(
    typing: Any, a: Any, i: Any, rows: Any, b: Any, panel: Any, base: Any, half: Any, out: Any,
    j: Any,
) -> Any:  # fmt: skip
    """out[i + r, j + v] = 2^(a[i + r]·b[panel, :, v] + base[i + r] − half[panel·WIDTH + v]).

    For r < rows <= ROWS and v < WIDTH.
    """

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a_, i_, rows_, b_, panel_, base_, half_, out_, j_ = args
        kind = dict(zip("airbpshoj", signature.args, strict=True))
        zero = ir.Constant(_INT, 0)
        depth = context.make_array(kind["a"])(context, builder, a_).shape
        depth = builder.extract_value(depth, 1)
        points = _pointer(context, builder, kind["b"], b_, panel_, zero, zero)
        begin = builder.mul(panel_, ir.Constant(_INT, WIDTH))
        halves = _pointer(context, builder, kind["h"], half_, begin)

        def emit(builder: Any, count: int) -> None:
            h = [_read(builder, halves, ir.Constant(_INT, v * LANES)) for v in range(VECTORS)]
            start = []
            for r in range(count):
                row = builder.add(i_, ir.Constant(_INT, r))
                first = _splat(
                    builder, builder.load(_pointer(context, builder, kind["s"], base_, row))
                )
                start.append([builder.fsub(first, one, flags=_FLAGS) for one in h])
            x = _row_pointers(context, builder, kind["a"], a_, i_, zero, count)
            found = _sums(builder, x, points, depth, start)
            to = _row_pointers(context, builder, kind["o"], out_, i_, j_, count)
            for pointer, row in zip(to, found, strict=True):
                for v, value in enumerate(row):
                    _write(builder, pointer, v * LANES, _exp2(builder, value))

        _by_rows(builder, rows_, emit)
        return context.get_dummy_value()

    integer = types.int64
    return types.void(a, integer, integer, b, integer, base, half, out, integer), generate


@_intrinsic
def product_tile(
    typing: Any, a: Any, i: Any, rows: Any, depth: Any, b: Any, panel: Any, first: Any, out: Any,
    j: Any,
) -> Any:  # fmt: skip
    """out[i + r, j + v] = Σ_{t < depth} a[i + r, t] b[panel, first + t, v]."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a_, i_, rows_, depth_, b_, panel_, first_, out_, j_ = args
        kind_a, kind_b, kind_out = signature.args[0], signature.args[4], signature.args[7]
        zero = ir.Constant(_INT, 0)
        points = _pointer(context, builder, kind_b, b_, panel_, first_, zero)

        def emit(builder: Any, count: int) -> None:
            x = _row_pointers(context, builder, kind_a, a_, i_, zero, count)
            start = [[_constant(0.0)] * VECTORS for _ in range(count)]
            found = _sums(builder, x, points, depth_, start)
            to = _row_pointers(context, builder, kind_out, out_, i_, j_, count)
            for pointer, row in zip(to, found, strict=True):
                for v, value in enumerate(row):
                    _write(builder, pointer, v * LANES, value)

        _by_rows(builder, rows_, emit)
        return context.get_dummy_value()

    integer = types.int64
    return types.void(a, integer, integer, integer, b, integer, integer, out, integer), generate
