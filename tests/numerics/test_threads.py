"""Several threads give the bits of one: predictions, fits and relaxations of mixed species."""

from __future__ import annotations

import os
from itertools import pairwise
from threading import Event, Thread

import numpy as np
import pytest
from ase.build import bulk
from ase.calculators.emt import EMT
from ase.calculators.singlepoint import SinglePointCalculator
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits

from nugget import CUR, SOAP, LabelNoise, NuggetError, Potential, set_threads
from nugget.gp.linalg import stacked_qr, update_qr
from nugget.numerics import threads
from nugget.numerics.lapack import right_solve_in_place, tpmqrt, tpqrt
from nugget.relax import relax
from nugget.relax.relaxation import Springs, _groups, concurrent, on_calculator
from nugget.structures.batch import as_batch


def alloys(count: int) -> list:
    rng, images = np.random.default_rng(0), []
    for k in range(count):
        atoms = bulk("Cu", cubic=True).repeat((2, 1, 1 + k % 2))
        atoms.symbols = rng.choice(["Cu", "Au"], len(atoms))
        atoms.rattle(0.1, rng=rng)
        atoms.calc = EMT()
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        atoms.calc = SinglePointCalculator(atoms, energy=energy, forces=forces)
        images.append(atoms)
    return images


IMAGES = alloys(40)


def fitted(threads: int | None, members: int | None = None) -> Potential:
    pot = Potential(
        SOAP(["Cu", "Au"], 4.0), inducing=CUR(60), uncertainty=LabelNoise(members=members)
    )
    return pot.fit(IMAGES[:12], threads=threads)


def test_fits_and_predictions_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch):
    one, several = fitted(1), fitted(3)
    np.testing.assert_array_equal(one.fitted.regression.alpha, several.fitted.regression.alpha)
    np.testing.assert_array_equal(one.fitted.regression.r, several.fitted.regression.r)
    monkeypatch.setattr("nugget.potential.fitted._PART", 60 * 40)  # parts of 40 atoms
    want = {"uncertainty_gradient": True, "stress": True, "forces_uncertainty": True}
    a, b = one.predict(IMAGES, **want, threads=1), several.predict(IMAGES, **want, threads=3)
    for name in ("energy", "energy_uncertainty", "stress"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))
    for name in ("forces", "uncertainty_gradient", "forces_uncertainty"):
        for x, y in zip(getattr(a, name), getattr(b, name), strict=True):
            np.testing.assert_array_equal(x, y)


def test_relaxations_do_not_depend_on_threads(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("nugget.potential.fitted._PART", 60 * 40)
    potential, ends = fitted(1, members=10), []
    for number in (1, 2):
        set_threads(number)
        ends.append(relax(IMAGES[20:], potential.lcb(1.0), fmax=0.05, steps=20))
    set_threads(None)
    for a, b in zip(*ends, strict=True):
        assert a.energy == b.energy
        np.testing.assert_array_equal(a.atoms.positions, b.atoms.positions)


def test_slices_hold_every_structure_once():
    batch = as_batch(IMAGES)
    for rows in (1, 30, 200, 10**6):
        slices = batch.slices(rows)
        assert slices[0][0] == 0
        assert slices[-1][1] == len(batch)
        assert all(a[1] == b[0] for a, b in pairwise(slices))
    assert batch.slices(10**6) == [(0, len(batch))]


def test_qr_in_halves_is_the_qr():
    rng = np.random.default_rng(1)
    rows, rhs = rng.normal(size=(5000, 20)), rng.normal(size=(5000, 1))
    r, z = stacked_qr(np.eye(20), np.zeros((20, 1)), rows, rhs, 2)
    whole = np.concatenate([np.eye(20), rows])
    np.testing.assert_allclose(r.T @ r, whole.T @ whole, rtol=1e-12)
    np.testing.assert_allclose(r.T @ z, rows.T @ rhs, rtol=1e-11)
    assert np.all(np.tril(r, -1) == 0.0)
    plain = update_qr(np.eye(20), np.zeros((20, 1)), rows, rhs)[0]
    np.testing.assert_allclose(np.abs(plain), np.abs(r), rtol=1e-10, atol=1e-11)


def test_numbers_of_threads(monkeypatch: pytest.MonkeyPatch):
    assert threads.number(3) == 3
    assert threads.number(0) == threads.all_cores() >= 1
    monkeypatch.setenv("NUGGET_THREADS", "2")
    assert threads.number(None) == 2
    set_threads(1)
    assert threads.number(None) == 1
    set_threads(None)
    monkeypatch.setenv("NUGGET_THREADS", "many")
    with pytest.raises(NuggetError, match="NUGGET_THREADS"):
        threads.number(None)
    with pytest.raises(NuggetError, match="threads"):
        threads.number(-1)


def test_slices_within_slices_wait_for_nobody():
    def outer(k: int) -> list[int]:
        return threads.each(lambda i: i + k, range(3), 2)

    assert threads.each(outer, range(4), 2) == [[k, k + 1, k + 2] for k in range(4)]


def test_errors_come_out():
    def fails(k: int) -> int:
        raise NuggetError(f"slice {k}")

    with pytest.raises(NuggetError, match="slice 0"):
        threads.each(fails, range(2), 2)


def test_a_late_helper_is_not_waited_for():
    """The owner takes all items that helpers leave: a helper that sleeps holds nothing up."""
    asleep, done = Event(), []
    threads._pool(os.getpid(), 1).submit(asleep.wait, 20.0)
    assert threads.each(lambda k: done.append(k) or k, range(5), 2) == [0, 1, 2, 3, 4]
    asleep.set()
    assert done == [0, 1, 2, 3, 4]


def test_groups_of_a_relaxation_hold_every_structure_once():
    for structures, cores in ((0, 2), (1, 2), (7, 2), (30, 2), (200, 3)):
        groups = _groups(structures, cores)
        assert sorted(np.concatenate([np.zeros(0, int), *groups])) == list(range(structures))
        assert all(len(group) for group in groups)


def test_a_calculator_is_not_asked_by_two_threads():
    pairs, one = np.array([[0, 1]]), fitted(1, members=10).lcb(1.0)
    assert concurrent(one)
    assert concurrent(Springs(one, pairs, np.ones(1), 1.0))
    assert not concurrent(Springs(on_calculator(EMT()), pairs, np.ones(1), 1.0))
    assert not concurrent(on_calculator(EMT()))


def test_routines_without_the_lock_are_those_of_scipy():
    rng = np.random.default_rng(2)
    r, b = np.asfortranarray(np.triu(rng.normal(size=(9, 9)))), rng.normal(size=(30, 9))
    theirs, v, t, _ = lapack.dtpqrt(0, 4, r, b)
    ours, place = r.copy(order="F"), np.asfortranarray(b)
    own_t, info = tpqrt(ours, place, 4)
    assert info == 0
    for x, y in ((theirs, ours), (v, place)):  # T has places that nobody writes to
        np.testing.assert_array_equal(x, y)
    z, rhs = rng.normal(size=(9, 1)), rng.normal(size=(30, 1))
    wanted, _, _ = lapack.dtpmqrt(0, v, t, z, rhs, side="L", trans="T")
    assert tpmqrt(place, own_t, z, rhs) == 0
    np.testing.assert_array_equal(wanted, z)
    room = rng.normal(size=(30, 12))
    rows = room[:, :9]  # with gaps between rows
    wanted = np.linalg.solve(r.T, rows.T).T
    right_solve_in_place(rows, r)
    np.testing.assert_allclose(rows, wanted, rtol=1e-9)


def test_fits_do_not_depend_on_the_threads_of_blas():
    """Two threads of BLAS add up in another order; a fit is on one, whatever the process has."""
    found = []
    for number in (1, 2):
        with threadpool_limits(number):
            pot = Potential(SOAP(["Cu", "Au"], 4.0), inducing=CUR(150)).fit(IMAGES[:30])
            pot.update(IMAGES[30:])
            found.append(pot.fitted.regression.alpha)
    np.testing.assert_array_equal(*found)


def test_blas_is_reset_when_the_last_one_leaves():
    """A thread that comes and goes meanwhile leaves the setting of the other alone."""

    def inside() -> None:
        with threads.one_blas_thread():
            pass

    with threadpool_limits(2):
        with threads.one_blas_thread():
            worker = Thread(target=inside)
            worker.start()
            worker.join()
            assert {lib.num_threads for lib in threads._blas()} == {1}
        assert {lib.num_threads for lib in threads._blas()} == {2}
