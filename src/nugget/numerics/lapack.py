"""Routines of BLAS and LAPACK that let go of Python's lock, which SciPy's wrappers of them keep.

They work in place, by the addresses that SciPy gives to Cython. Two threads of a fit spend most of
their time in here.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

import numpy as np
from numba.extending import get_cython_function_address

from nugget.numerics.arrays import Floats


@cache
def _routine(name: str, arguments: int) -> Any:
    """A routine whose arguments are addresses, as Fortran has them; ctypes lets go of the lock."""
    home = "blas" if name == "dtrsm" else "lapack"
    address = get_cython_function_address(f"scipy.linalg.cython_{home}", name)
    return ctypes.CFUNCTYPE(None, *[ctypes.c_void_p] * arguments)(address)


def _call(name: str, *arguments: int | float | bytes | Floats | ctypes.c_int) -> None:
    """Call with letters, numbers and arrays."""
    boxes: list[Any] = []  # alive until the call has returned
    addresses = []
    for one in arguments:
        if isinstance(one, np.ndarray):
            addresses.append(one.ctypes.data)
            continue
        boxes.append(_box(one))
        addresses.append(ctypes.addressof(boxes[-1]))
    _routine(name, len(addresses))(*addresses)


def _box(one: int | float | bytes | ctypes.c_int) -> Any:
    if isinstance(one, bytes):
        return ctypes.c_char(one)
    if isinstance(one, float):
        return ctypes.c_double(one)
    return ctypes.c_int(one) if isinstance(one, int) else one


def tpqrt(r: Floats, b: Floats, panel: int, triangular: bool = False) -> tuple[Floats, int]:
    """R of [R; B] takes the place of R, the reflectors that of B; gives their T, and info.

    Arrays are in Fortran order. `triangular` says that B is an upper triangle.
    """
    (rows, n), nb, info = b.shape, max(min(panel, len(r)), 1), ctypes.c_int(0)
    t, work, above = np.empty((nb, n), order="F"), np.empty(nb * n), rows if triangular else 0
    _call("dtpqrt", rows, n, above, nb, r, max(n, 1), b, max(rows, 1), t, nb, work, info)
    return t, info.value


def tpmqrt(v: Floats, t: Floats, z: Floats, b: Floats, triangular: bool = False) -> int:
    """[z; b] becomes Qᵀ[z; b] with the reflectors v and T of `tpqrt`; gives info."""
    (rows, k), columns, nb, info = v.shape, z.shape[1], len(t), ctypes.c_int(0)
    work, above = np.empty(nb * columns), rows if triangular else 0
    _call(
        "dtpmqrt", b"L", b"T", rows, columns, k, above, nb, v, max(rows, 1), t, nb, z,
        max(len(z), 1), b, max(rows, 1), work, info,
    )  # fmt: skip
    return info.value


def right_solve_in_place(b: Floats, u: Floats) -> None:
    """b becomes b U⁻¹; b has rows without gaps, U is in Fortran order."""
    if b.size:
        rows, m = b.shape
        step = b.strides[0] // b.itemsize if rows > 1 else m
        _call("dtrsm", b"L", b"U", b"T", b"N", m, rows, 1.0, u, m, b, step)  # bᵀ ← U⁻ᵀbᵀ
