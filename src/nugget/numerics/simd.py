"""Four numbers at a time in compiled functions, for tiles that LLVM does not find by itself.

Inside a function compiled by Numba, `load(a, i, j)` is a[i, j : j + 4] as one vector, `store`
writes it, and `+ - *` work between vectors and between a vector and a number. Vectors live in
registers; a product with a sum after it becomes one fused operation. Nothing checks bounds.
LLVM maps them to what the processor has (AVX, NEON), so this is as portable as Numba itself.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.imputils import lower_builtin
from numba.core.typing.templates import AbstractTemplate, infer_global
from numba.extending import intrinsic, models, register_model
from numpy.typing import NDArray

from nugget.numerics.jit import FAST, njit

_LINE = 64  # bytes of a cache line
_DOUBLES = ir.VectorType(ir.DoubleType(), 4)
_intrinsic: Any = intrinsic  # calls leave out the first argument, which type checkers miss
_FLAGS = tuple(sorted(FAST))
Vec4 = Any  # in annotations; outside compiled functions there is no such thing


def aligned(array: NDArray[np.float64]) -> NDArray[np.float64]:
    """A copy without gaps that starts with a cache line.

    NumPy promises 16 bytes only; a vector that lies across two lines takes two loads, which made
    long loops over an unlucky array 2 to 4 % slower.
    """
    room = np.empty(array.size + _LINE // 8)
    start = -room.ctypes.data % _LINE // 8
    copy = room[start : start + array.size].reshape(array.shape)
    copy[...] = array
    return copy


class Vec4Type(types.Type):
    """Numba's type of a vector."""

    def __init__(self) -> None:
        super().__init__(name="Vec4")


VEC4 = Vec4Type()


@register_model(Vec4Type)
class _Vec4Model(models.PrimitiveModel):
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _DOUBLES)


def _place(context: Any, builder: Any, kind: Any, array: Any, indices: Any) -> Any:
    """Pointer to the four numbers that begin at an element."""
    struct = context.make_array(kind)(context, builder, array)
    item = cgutils.get_item_pointer(context, builder, kind, struct, indices, wraparound=False)
    return builder.bitcast(item, _DOUBLES.as_pointer())


@_intrinsic
def load(typing: Any, array: Any, i: Any, j: Any) -> Any:
    """array[i, j : j + 4], whose last axis has no gaps."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args[0], args[1:])
        return builder.load(place, align=8)

    return VEC4(array, types.intp, types.intp), generate


@_intrinsic
def store(typing: Any, array: Any, i: Any, j: Any, vector: Any) -> Any:
    """array[i, j : j + 4] = vector."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        place = _place(context, builder, signature.args[0], args[0], args[1:3])
        builder.store(args[3], place, align=8)
        return context.get_dummy_value()

    return types.void(array, types.intp, types.intp, VEC4), generate


@_intrinsic
def broadcast(typing: Any, number: Any) -> Any:
    """The same number four times."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        return _broadcast(builder, args[0])

    return VEC4(types.float64), generate


def _broadcast(builder: Any, number: Any) -> Any:
    nothing = ir.Constant(_DOUBLES, ir.Undefined)
    first = builder.insert_element(nothing, number, ir.Constant(ir.IntType(32), 0))
    return _pick(builder, first, nothing, [0] * 4)


@_intrinsic
def vector(typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """Four numbers as one vector."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        made = ir.Constant(_DOUBLES, ir.Undefined)
        for k, number in enumerate(args):
            made = builder.insert_element(made, number, ir.Constant(ir.IntType(32), k))
        return made

    return VEC4(*[types.float64] * 4), generate


@_intrinsic
def total(typing: Any, vector: Any) -> Any:
    """The sum of the four numbers."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        a, b, c, d = (
            builder.extract_element(args[0], ir.Constant(ir.IntType(32), k)) for k in range(4)
        )
        return builder.fadd(builder.fadd(a, c), builder.fadd(b, d))

    return types.float64(VEC4), generate


def _pick(builder: Any, x: Any, y: Any, lanes: list[int]) -> Any:
    """Four of the numbers x₀ … x₃, y₀ … y₃."""
    mask = ir.Constant(ir.VectorType(ir.IntType(32), 4), lanes)
    return builder.shuffle_vector(x, y, mask)


@_intrinsic
def transpose(typing: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
    """(a₀, b₀, c₀, d₀), (a₁, b₁, c₁, d₁), and so on."""

    def generate(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        even = [_pick(builder, x, y, [0, 4, 2, 6]) for x, y in (args[:2], args[2:])]
        odd = [_pick(builder, x, y, [1, 5, 3, 7]) for x, y in (args[:2], args[2:])]
        columns = [
            _pick(builder, half[0], half[1], lanes)
            for lanes in ([0, 1, 4, 5], [2, 3, 6, 7])
            for half in (even, odd)
        ]
        return context.make_tuple(builder, signature.return_type, columns)

    return types.UniTuple(VEC4, 4)(VEC4, VEC4, VEC4, VEC4), generate


@njit(inline="always")
def store_columns(array: Any, i: int, a: Vec4, b: Vec4, c: Vec4, d: Vec4) -> None:
    """array[i + k, :4] = (a_k, b_k, c_k, d_k) for k = 0 … 3."""
    first, second, third, fourth = transpose(a, b, c, d)
    store(array, i, 0, first)
    store(array, i + 1, 0, second)
    store(array, i + 2, 0, third)
    store(array, i + 3, 0, fourth)


def _operator(symbol: Callable[..., Any], instruction: str) -> None:
    """Vectors under `symbol`: with vectors, and with numbers, which are broadcast.

    Numba's `overload` would do as well, but takes a third of all compile time: it compiles a small
    function for each operator, and for each use of one it asks all of Numba's own overloads first.
    """

    @infer_global(symbol)
    class _Template(AbstractTemplate):
        metadata = {"target": "cpu"}  # noqa: RUF012  # before templates for all targets

        def generic(self, args: Any, kws: Any) -> Any:
            if VEC4 in args and all(isinstance(a, (Vec4Type, types.Float)) for a in args):
                return VEC4(*args)
            return None

    def lower(context: Any, builder: Any, signature: Any, args: Any) -> Any:
        vectors = [
            value if kind == VEC4 else _broadcast(builder, value)
            for kind, value in zip(signature.args, args, strict=True)
        ]
        return getattr(builder, instruction)(*vectors, flags=_FLAGS)

    for kinds in ((VEC4, VEC4), (VEC4, types.float64), (types.float64, VEC4)):
        lower_builtin(symbol, *kinds)(lower)


_operator(operator.add, "fadd")
_operator(operator.sub, "fsub")
_operator(operator.mul, "fmul")
_operator(operator.iadd, "fadd")
