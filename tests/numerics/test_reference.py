"""Every compiled loop against its NumPy reference, at sizes that fill no vector or tile."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest
from ase import Atoms
from ase.build import fcc111, molecule
from example_structures import SYSTEMS
from references import REFERENCES

from nugget import SOAP
from nugget.descriptors import soap_loops as _jacobian
from nugget.descriptors import soap_loops as _loops
from nugget.gp.kernels.rbf import RBF
from nugget.gp.kernels.rbf_loops import (
    exponentials,
    exponentials_symmetric,
    fused_value_and_grad,
    group_rows,
    group_rows_vjp,
    kernel_rows,
    kernel_rows_vjp,
    scaled,
    self_sums,
    self_sums_vjp,
)
from nugget.gp.loops import all_equal, ascends, std_and_weights
from nugget.numerics.jit import part_end
from nugget.potential.design import scatter
from nugget.potential.mean_functions.pair_terms import REPULSION, WELL, pair_sum
from nugget.structures.batch import as_batch
from nugget.structures.neighbour_loops import is_sound, small_pairs
from nugget.structures.neighbours import find_pairs

# Structures of these many rows; a tile has up to 8 rows, and structures may be empty.
OFFSETS = [[0, 7], [0, 4, 5], [0, 0, 3, 3, 9, 10, 12], [0]]
# Columns: fewer than a tile of 12 or 24, one tile, one and a bit, many.
COLUMNS = [1, 5, 12, 13, 24, 203]
FEATURES = [1, 2, 3, 4, 9, 30]


def compare(function: Any, *args: Any, rtol: float = 1e-11, atol: float = 1e-12) -> None:
    """The same results, and the same arrays written to."""
    first = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    second = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    found, wanted = function(*first), REFERENCES[function](*second)
    found = found if isinstance(found, tuple) else (found,)
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for a, b in zip([*found, *first], [*wanted, *second], strict=True):
        if a is not None and not isinstance(a, tuple):
            assert np.shape(a) == np.shape(b)
            np.testing.assert_allclose(a, b, rtol=rtol, atol=atol)


def rows(f: int, m: int, n: int, groups: int = 1) -> tuple[Any, ...]:
    """x (n, f), its groups, and the pack of m inducing points in the same groups."""
    rng = np.random.default_rng(f + m + n)
    z = 3 + rng.normal(size=(m, f))
    inducing = RBF(1.0 / 0.7, 1.7).inducing(z, rng.permutation(np.arange(m) % groups))
    return 3 + rng.normal(size=(n, f)), np.arange(n) % groups, inducing.pack


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("m", COLUMNS)
def test_kernel_rows(m: int, offsets: list[int]):
    for f in FEATURES:
        x, _, pack = rows(f, m, offsets[-1])
        compare(kernel_rows, x, np.array(offsets), pack)


def test_kernel_rows_far_away():
    x, _, pack = rows(3, 13, 4)
    compare(kernel_rows, 1e3 * x, np.array([0, 4]), pack)


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("m", COLUMNS)
@pytest.mark.parametrize("n_cotangents", [1, 3])
def test_kernel_rows_vjp(m: int, offsets: list[int], n_cotangents: int):
    r, n, last = np.random.default_rng(m).normal, offsets[-1], len(offsets) - 1
    for f in FEATURES:
        weights, pack = r(size=(n_cotangents, last, m)), rows(f, m, n)[2]
        compare(kernel_rows_vjp, r(size=(n, m)), r(size=(n, f)), np.array(offsets), weights, pack)


@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("m", [5, 13, 30])
@pytest.mark.parametrize("groups", [1, 2, 3])
def test_rows_of_all_groups(m: int, offsets: list[int], groups: int):
    x, group, pack = rows(3, m, offsets[-1], groups)
    weights = np.random.default_rng(m).normal(size=(2, len(offsets) - 1, m))
    for mine in (group, group + 1):  # the second time the last group has no inducing points
        found = group_rows(x, mine, np.array(offsets), pack)
        wanted = REFERENCES[group_rows](x, mine, np.array(offsets), pack)
        for a, b in zip(found[:1] + found[2:], wanted[:1] + wanted[2:], strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-11, atol=1e-12)  # k is padded: not compared
        back = group_rows_vjp(weights, *found[1:], pack)
        expected = REFERENCES[group_rows_vjp](weights, *wanted[1:], pack)
        np.testing.assert_allclose(back, expected, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize("q", [0, 1, 7, 45])
@pytest.mark.parametrize("offsets", OFFSETS)
@pytest.mark.parametrize("m", [5, 13])
@pytest.mark.parametrize("prior", [False, True])
def test_std_and_the_fused_pass(m: int, offsets: list[int], q: int, prior: bool):
    r, last = np.random.default_rng(m + q).normal, len(offsets) - 1
    coefficients = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, -2.0]])
    sizes, alpha, wt, rho = np.diff(offsets), r(size=m), r(size=(q, m)), r(size=q)
    variance = np.full(last, 1e6) if prior else np.empty(0)
    k_sum = r(size=(last, m))
    for sign in (1.0, -1.0):
        compare(std_and_weights, k_sum, sizes, alpha, coefficients, wt, rho, variance, sign)
        compare(std_and_weights, k_sum, sizes, alpha, coefficients[:1], wt, rho, variance, sign)
    for groups in (1, 2, 3):
        x, group, pack = rows(3, m, offsets[-1], groups)
        own = (sizes, alpha, coefficients, wt, rho, variance, -1.0 if prior else 1.0)
        compare(fused_value_and_grad, x, group, np.array(offsets), *own, *pack)
        foreign = group + 1  # the last group has no inducing points, and nobody meets the first
        compare(fused_value_and_grad, x, foreign, np.array(offsets), *own, *pack)


def test_a_std_of_zero_has_no_slope():
    coefficients, nothing = np.array([[0.0, 1.0]]), np.zeros(1)
    k_sum, wt = np.ones((1, 5)), np.zeros((2, 5))
    args = k_sum, np.array([1]), np.ones(5), coefficients, wt, np.zeros(2)
    compare(std_and_weights, *args, np.empty(0), 1.0)
    compare(std_and_weights, *args, nothing, -1.0)  # the prior variance is used up
    compare(
        std_and_weights,
        k_sum,
        np.array([1]),
        np.ones(5),
        coefficients,
        wt + 1,
        np.ones(2),
        nothing,
        -1.0,
    )


@pytest.mark.parametrize("n", [0, 1, 5, 70])
def test_exponentials(n: int):
    r = np.random.default_rng(n).normal
    z = r(size=(n, 3))
    half = 0.5 * np.sum(z**2, axis=1)
    compare(exponentials, r(size=(n, 7)), r(size=n) ** 2, r(size=7) ** 2, 1.3)
    compare(exponentials_symmetric, z @ z.T, half, 1.3)
    compare(scaled, z, np.ones(3), 0.3, np.empty((n, 3)), np.empty(n))


@pytest.mark.parametrize("offsets", OFFSETS)
def test_self_sums(offsets: list[int]):
    r, n, last = np.random.default_rng(1).normal, offsets[-1], len(offsets) - 1
    for f in FEATURES:
        group = np.arange(n) % 3 // 2
        args = r(size=(n, f)), group, np.array(offsets), 0.7, 1.3
        compare(self_sums, *args, np.empty(last))
        compare(self_sums_vjp, *args, r(size=last), r(size=(n, f)))


def forward_args(soap: SOAP, images: list[Atoms]) -> tuple[Any, ...]:
    t, batch = soap._tables, as_batch(images)
    p = find_pairs(batch, soap.cutoff + 0.7)  # some are beyond the cutoff
    return (
        batch.positions, batch.numbers, t.index, p.i, p.j, p.shift, t.radial, t.centre, t.norm,
        float(soap.cutoff), t.degrees, t.radials, t.n_channels, t.factor,
        t.blocks,
    )  # fmt: skip


SOME = {
    "one atom": [Atoms("H")],
    "molecules": [
        molecule("CH3CH2OH"),
        molecule("H2O"),
        Atoms("O", [[9.0, 9, 9]]),
        molecule("CO2"),
    ],
    "slab": [fcc111("Cu", (2, 2, 2), vacuum=4.0), Atoms("Cu", cell=[2.5] * 3, pbc=True)],
}


@pytest.mark.parametrize("compression", ["off", "mu1nu1", "mu2"])
@pytest.mark.parametrize("name", [*SOME, *SYSTEMS])
def test_soap(name: str, compression: str):
    images = [atoms.copy() for atoms in (SOME | SYSTEMS)[name]]
    elements = sorted({s for atoms in images for s in atoms.symbols})
    soap = SOAP(elements, 4.0, compression=compression)
    t, args = soap._tables, forward_args(soap, images)
    compare(_loops.forward, *args)
    species, _, c, _, values = _loops.forward(*args)
    batch = as_batch(images)
    pairs = find_pairs(batch, soap.cutoff + 0.7)
    grad = np.random.default_rng(0).normal(size=(2, *values.shape))
    compare(
        _loops.backward, grad, c, t.factor, batch.positions, species, batch.offsets, pairs.offsets,
        pairs.i, pairs.j, pairs.shift, t.radial, t.norm, float(soap.cutoff), t.degrees, t.radials,
        t.blocks,
    )  # fmt: skip
    compare(
        _jacobian.jacobian, c, batch.positions, species, pairs.i, pairs.j, pairs.shift, t.radial,
        t.norm, t.feature, t.factor, float(soap.cutoff), soap.n_max, soap.n_features,
    )  # fmt: skip
    compare(_loops.coincident, batch.positions, pairs.offsets, pairs.i, pairs.j, pairs.shift)


def test_soap_of_unknown_and_coincident_atoms():
    close = Atoms("H3", [[0, 0, 0], [2, 0, 0], [2, 0, 0.05]])
    compare(_loops.forward, *forward_args(SOAP(["H"]), [molecule("H2"), close]))
    compare(_loops.forward, *forward_args(SOAP(["H"]), [molecule("H2O")]))
    batch = as_batch([molecule("H2"), close])
    p = find_pairs(batch, 4.0)
    compare(_loops.coincident, batch.positions, p.offsets, p.i, p.j, p.shift)


@pytest.mark.parametrize("kind", [REPULSION, WELL])
def test_pair_sum(kind: int):
    images = [molecule("CH3CH2OH"), Atoms("H2"), Atoms("Cu", cell=[2.5] * 3, pbc=True)]
    batch = as_batch(images)
    p = find_pairs(batch, 5.0)
    radii = np.where(batch.numbers == 1, 0.5, 1.1)
    zeros = [np.zeros(len(radii)), np.zeros((len(radii), 3)), np.zeros((len(images), 3, 3))]
    args = batch.positions, radii, batch.owner, p.i, p.j, p.shift, kind, 2.0, 3.0
    compare(pair_sum, *args, *zeros, rtol=1e-9)


@pytest.mark.parametrize("strain", [False, True])
@pytest.mark.parametrize("columns", [[0, 1, 2, 3, 4], [4, 1], []])
def test_scatter(columns: list[int], strain: bool):
    r, n = np.random.default_rng(0), 11
    centre, neighbour = r.integers(0, 6, size=(2, n))
    q = len(columns)
    out, sheared = r.normal(size=(6, 3, 5)), r.normal(size=(2 if strain else 0, 3, 3, 5))
    compare(
        scatter, r.normal(size=(n, 3, q)), r.normal(size=(n, 3)), r.normal(size=(4, q)), 0.7,
        r.integers(0, 4, size=n), centre, neighbour, r.normal(size=(n, 3)),
        np.array([0, 0, 0, 1, 1, 1]), np.array(columns, dtype=np.int64), out, sheared,
    )  # fmt: skip


def test_batches():
    small, alone, periodic = molecule("CH3CH2OH"), Atoms("H"), Atoms("Cu", cell=[2] * 3, pbc=True)
    for images in ([small, alone], [small, periodic, alone], [alone], [periodic]):
        batch = as_batch(images)
        compare(small_pairs, batch.positions, batch.offsets, batch.cells, batch.pbc, 4.0)
        compare(is_sound, batch.positions, batch.numbers, batch.offsets, batch.cells, batch.pbc)
    free, no_cell = np.zeros((1, 3), dtype=bool), np.zeros((1, 3, 3))
    one, offsets, gold = np.zeros((1, 3)), np.array([0, 1]), np.array([79])
    compare(is_sound, np.full((1, 3), np.nan), gold, offsets, no_cell, free)
    compare(is_sound, one, np.array([119]), offsets, no_cell, free)
    compare(is_sound, one[:0], gold[:0], np.array([0, 0]), no_cell, free)
    tilted = np.array([[[3.0, 0, 0], [1, 2, 0], [0, 1, 4]]])
    for cell in (tilted, no_cell, np.full((1, 3, 3), np.nan), tilted[:, [0, 0, 0]]):
        for along in ([True, False, True], [True] * 3, [False, True, False]):
            compare(is_sound, one, gold, offsets, cell, np.array([along]))


@pytest.mark.parametrize("along", list(product([False, True], repeat=3)))
def test_pairs_across_tilted_cells(along: tuple[bool, ...]):
    """Cells much shorter than the cutoff, atoms that have left them, directions that are empty."""
    rng = np.random.default_rng(3)
    cell = np.array([[2.1, 0, 0], [0.9, 2.4, 0], [-0.7, 0.5, 3.0]])
    cell[~np.array(along)] = 0.0
    images = [Atoms(f"Cu{n}", 5 * rng.normal(size=(n, 3)), cell=cell, pbc=along) for n in (1, 3, 2)]
    batch = as_batch(images)
    compare(small_pairs, batch.positions, batch.offsets, batch.cells, batch.pbc, 3.5)


def test_loops_against_plain_python():
    offsets = np.array([0, 3, 3, 10])
    for args in ((0, 5), (0, 2), (1, 7), (2, 100)):
        assert part_end(offsets, *args) == part_end.py_func(offsets, *args)
    for last in (10, 9):
        assert ascends(offsets, last) == ascends.py_func(offsets, last) == (last == 10)
    assert all_equal(offsets[1:3], 3) == all_equal.py_func(offsets[1:3], 3)
    assert all_equal(offsets, 3) == all_equal.py_func(offsets, 3)
