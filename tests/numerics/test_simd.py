from __future__ import annotations

import numpy as np
import pytest
from numba import njit

from nugget.numerics.simd import (
    aligned,
    broadcast,
    load,
    store,
    store_columns,
    total,
    vector,
)


@njit
def arithmetic(a, out):
    x, y = load(a, 0, 0), load(a, 1, 2)
    store(out, 0, 0, x + y)
    store(out, 1, 0, x - y)
    store(out, 2, 0, x * y)
    store(out, 3, 0, 2.0 * x + y)
    store(out, 4, 0, 3.0 - x)
    store(out, 5, 0, x - 3.0)
    z = broadcast(1.5)
    z += x
    store(out, 6, 0, z)
    store(out, 7, 0, vector(a[0, 1], a[0, 3], 0.0, -1.0))


def test_arithmetic_is_number_by_number():
    a = np.random.default_rng(0).normal(size=(2, 7))
    x, y = a[0, :4], a[1, 2:6]
    out = np.empty((8, 4))
    arithmetic(a, out)
    assert np.array_equal(out[:3], [x + y, x - y, x * y])
    np.testing.assert_allclose(out[3], 2 * x + y, rtol=1e-15)  # fused: rounded once
    assert np.array_equal(out[4:7], [3.0 - x, x - 3.0, x + 1.5])
    assert np.array_equal(out[7], [a[0, 1], a[0, 3], 0.0, -1.0])


@njit
def sums(a, out):
    out[0, 0] = total(load(a, 0, 0))


def test_sums():
    a = np.random.default_rng(1).normal(size=(4, 4))
    out = np.empty((1, 1))
    sums(a, out)
    np.testing.assert_allclose(out[0, 0], a[0].sum(), rtol=1e-14)


def test_aligned_copies_start_with_a_cache_line():
    for size in range(1, 40):
        a = np.arange(3.0 * size).reshape(size, 3).T  # with gaps
        copy = aligned(a)
        assert np.array_equal(copy, a)
        assert copy.ctypes.data % 64 == 0
        assert copy.flags.c_contiguous
        assert not np.shares_memory(copy, a)


@njit
def turned(a, out):
    store_columns(out, 1, load(a, 0, 0), load(a, 1, 0), load(a, 2, 0), load(a, 3, 0))


def test_columns_become_rows():
    a, out = np.arange(16.0).reshape(4, 4), np.zeros((6, 4))
    turned(a, out)
    assert np.array_equal(out[1:5], a.T)
    assert not out[[0, 5]].any()


def test_only_vectors_and_floats_mix():
    @njit
    def wrong(a):
        return load(a, 0, 0) * (1.0, 2.0)

    with pytest.raises(Exception, match="No implementation"):
        wrong(np.zeros((1, 4)))
