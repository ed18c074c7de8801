"""Entry points of compiled functions are looked up by the types of the arguments."""

from __future__ import annotations

from itertools import product
from typing import Any, NamedTuple

import numba
import numpy as np

from nugget.numerics.jit import _type_key, entry_point


class Pair(NamedTuple):
    first: Any
    second: Any


def values() -> list[Any]:
    table = np.arange(6.0).reshape(2, 3)
    fixed = table.copy()
    fixed.flags.writeable = False
    arrays = [table, table[:, ::2], table.T, fixed, table.astype(int), table[0], table > 1]
    tuples = [(1, 2), (1, 2, 3), (1, 2.0), Pair(1, 2), Pair(table, 2), Pair(table.T, 2)]
    return [*arrays, 1, 1.0, True, *tuples]


def test_values_with_equal_keys_have_equal_types() -> None:
    for one, other in product(values(), values()):
        if _type_key(one) == _type_key(other):
            assert numba.typeof(one) == numba.typeof(other), (one, other)
    for one, same in zip(values(), values(), strict=True):
        assert _type_key(one) == _type_key(same)


def test_an_entry_point_is_found_again_for_other_values_of_the_same_types() -> None:
    second = numba.njit(lambda pair: pair.second)
    call = entry_point(second, Pair(np.ones(3), 1.0))
    assert entry_point(second, Pair(np.zeros(5), 2.0)) is call
    assert entry_point(second, Pair(np.zeros(5), 2)) is not call
    assert call(Pair(np.ones(4), 2.0)) == 2.0
