"""Clusters of close-packed motifs: vacant sites by geometry, minima against published energies."""

from __future__ import annotations

import numpy as np
import pytest
from ase.cluster import Icosahedron, Octahedron
from scipy.optimize import minimize
from scipy.spatial.distance import cdist, pdist

from nugget.generators import make_generator, suits
from nugget.generators.caps import coordination, filled, settled, trimmed, vacant_sites
from nugget.systems import PlacedAtoms


def unit(x):
    return x / pdist(x).min()


def lennard_jones(flat):
    """Pairs with a minimum of −1 at r = 1: energy and gradient."""
    x = flat.reshape(-1, 3)
    difference = x[:, None] - x
    r = np.sqrt((difference**2).sum(axis=-1))
    np.fill_diagonal(r, np.inf)
    s = r**-6
    slope = (-12 * s * s + 12 * s) / r
    return float((s * s - 2 * s).sum() / 2), ((slope / r)[..., None] * difference).sum(
        axis=1
    ).ravel()


def test_vacant_sites_of_an_octahedron_are_its_eight_faces():
    x = unit(Octahedron("Au", 2).positions)
    sites, bonds = vacant_sites(x, 1.0)
    assert len(sites) == 8
    assert (bonds == 3).all()
    distances = cdist(sites, x)
    assert np.allclose(np.sort(distances, axis=1)[:, :3], 1.0)
    assert distances.min() > 0.999


def test_a_square_face_offers_four_bonds():
    x = unit(Octahedron("Au", 4, 1).positions)  # 38 atoms, with six square faces
    sites, bonds = vacant_sites(x, 1.0)
    assert bonds.max() == 4
    directions = sites[bonds == 4] - x.mean(axis=0)
    assert {int(k) for k in np.abs(directions).argmax(axis=1)} == {0, 1, 2}


def test_a_removed_vertex_returns():
    rng = np.random.default_rng(0)
    whole = unit(Icosahedron("Au", 3).positions)
    corner = int(np.argmax(((whole - whole.mean(axis=0)) ** 2).sum(axis=1)))
    bond = 1.05  # between the radial and the tangential bonds
    open_ = np.delete(whole, corner, axis=0)
    sites, bonds = vacant_sites(open_, bond)
    assert np.linalg.norm(sites[bonds == bonds.max()] - whole[corner], axis=1).min() < 0.15
    adatom = sites[[np.argmin(bonds)]]
    moved = settled(rng, np.concatenate([open_, adatom]), bond, 5)
    assert (
        coordination(moved, bond).min() > coordination(np.concatenate([open_, adatom]), bond).min()
    )


def test_trimmed_and_filled_have_the_number_of_atoms():
    rng = np.random.default_rng(0)
    x = unit(Octahedron("Au", 5).positions)
    small = trimmed(rng, x, 60, 1.0)
    assert len(small) == 60
    assert len(filled(rng, small, 70, 1.0)) == 70


# Energies of the Cambridge Cluster Database (LJ76 and LJ77: Marks decahedra with adatoms).
@pytest.mark.parametrize(
    ("n", "published"),
    [(31, -133.586422), (38, -173.928427), (55, -279.248470), (77, -409.083517), (98, -543.665361)],
)
def test_lennard_jones_minima_are_among_a_few_motifs(n, published):
    rng = np.random.default_rng(3)
    system, motif = PlacedAtoms.cluster(f"Au{n}"), make_generator("motif")
    lowest = 0.0
    for _ in range(60):
        x = unit(motif(rng, system).positions)
        lowest = min(lowest, minimize(lennard_jones, x.ravel(), jac=True, method="L-BFGS-B").fun)
        if lowest < published + 1e-3:
            break
    assert lowest == pytest.approx(published, abs=1e-3)


def test_motifs_suit_metal_clusters_only():
    motif = make_generator("motif")
    assert suits(motif, PlacedAtoms.cluster("Cu6Au7"))
    for formula in ("Si20", "Au9", "Ti6O6", "Na6Cs6"):
        assert not suits(motif, PlacedAtoms.cluster(formula))
