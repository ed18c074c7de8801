"""Tiles of matrix products: every height, any depth, and the widths that other processors have."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

from nugget.numerics.jit import LANES, njit
from nugget.numerics.tiles import ROWS, WIDTH, exponential_tile, packed, product_tile


@njit
def product(a, b, first, depth, rows, out):
    for panel in range(len(b)):
        product_tile(a, 0, rows, depth, b, panel, first, out, panel * WIDTH)


@njit
def exponential(a, base, b, half, rows, out):
    for panel in range(len(b)):
        exponential_tile(a, 0, rows, b, panel, base, half, out, panel * WIDTH)


@pytest.mark.parametrize("rows", range(ROWS + 1))
@pytest.mark.parametrize("depth", [0, 1, 7])
def test_tiles_of_every_height(rows: int, depth: int):
    rng = np.random.default_rng(rows)
    a, b = rng.normal(size=(ROWS, depth)), rng.normal(size=(depth + 2, 2 * WIDTH - 5))
    out = np.full((ROWS, 2 * WIDTH), 7.0)
    product(a, packed(b), 2, depth, rows, out)
    np.testing.assert_allclose(out[:rows, : b.shape[1]], a[:rows] @ b[2:], rtol=1e-13, atol=1e-14)
    assert np.all(out[rows:] == 7.0)
    base, half = rng.normal(size=ROWS), rng.normal(size=2 * WIDTH)
    exponential(a, base, packed(b[:depth]), half, rows, out)
    expected = 2.0 ** ((a @ b[:depth]) + base[:, None] - half[: b.shape[1]])
    np.testing.assert_allclose(out[:rows, : b.shape[1]], expected[:rows], rtol=1e-13)
    assert np.all(out[rows:] == 7.0)


CODE = """
import numpy as np
from nugget import RBF
from nugget.gp.points import Points
rng = np.random.default_rng(0)
points = Points(rng.normal(size=(11, 30)), [0, 4, 11], np.arange(11) % 2)
rows = RBF(5.0).inducing(rng.normal(size=(40, 30)), np.arange(40) % 2).forward(points)
print(rows.k.tobytes().hex(), rows.vjp(rng.normal(size=(1, 2, 40))).tobytes().hex())
"""


def test_results_do_not_depend_on_the_width_of_the_registers():
    found = [
        subprocess.run(
            [sys.executable, "-c", CODE],
            env={**os.environ, "NUGGET_LANES": lanes},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for lanes in ("4", "8")
    ]
    assert LANES in (4, 8)
    assert found[0] == found[1]
