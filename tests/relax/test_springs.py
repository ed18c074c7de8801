"""Springs that hold molecules: right gradients, and molecules that stay what they are."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from ase import Atoms
from ase.build import molecule

from nugget.relax import relax
from nugget.relax.relaxation import Springs

PAIRS = np.array([[0, 1], [0, 2], [1, 2]])


def pull(images: Sequence[Atoms]) -> tuple[np.ndarray, list[np.ndarray]]:
    """A surface that tears the first hydrogen away with 2 eV/Å."""
    gradients = [np.zeros((len(atoms), 3)) for atoms in images]
    for gradient in gradients:
        gradient[1, 1] = -2.0
    return np.array([-2.0 * atoms.positions[1, 1] for atoms in images]), gradients


def test_gradient_against_differences() -> None:
    rng = np.random.default_rng(0)
    springs = Springs(pull, PAIRS, np.array([1.0, 0.9, 1.5]), 40.0)
    x = rng.normal(size=(2, 3, 3))
    _, gradient = springs.evaluate(x)
    for index in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[index] = 1e-6
        ahead, back = springs.evaluate(x + step)[0], springs.evaluate(x - step)[0]
        slope = (ahead - back)[index[0]] / 2e-6
        assert np.isclose(gradient[index], slope, rtol=1e-6, atol=1e-6)


def test_molecules_keep_their_shape() -> None:
    water = molecule("H2O")
    d = water.get_all_distances()
    lengths = d[PAIRS[:, 0], PAIRS[:, 1]]
    held = Springs(pull, PAIRS, lengths, 100.0)
    [free] = relax([water], pull, steps=20)
    [kept, other] = relax([water, water], held, steps=20)
    assert np.abs(free.atoms.get_all_distances() - d).max() > 0.5
    assert np.abs(kept.atoms.get_all_distances() - d).max() < 0.1
    assert np.array_equal(kept.atoms.positions, other.atoms.positions)
