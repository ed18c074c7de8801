"""SOAP's loops in NumPy (`nugget.descriptors.soap_loops`).

c_nlm = Σ_j h_nl(r_ij) S_lm(r_ij) and x = π√(8/(2l+1)) Σ_m c_nlm c_n'lm. Arguments and layouts are
those of the compiled functions, c[atom, channel, lm·width + n] with lm = l² + l + m.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from nugget.descriptors.soap_loops import TOO_CLOSE
from nugget.numerics.arrays import Floats, Ints


class _Pairs(NamedTuple):
    """Pairs within the cutoff: P of them, L = (l_max + 1)² harmonics, w = n_max rounded up to 4."""

    kept: Ints  # (P,) their indices among all pairs
    d: Floats  # (P, 3)
    r: Floats  # (P,)
    h: Floats  # (P, L, w) radial functions h_nl(r)
    slope: Floats  # (P, L, w) their derivatives by r
    solid: Floats  # (P, L) S_lm(d)
    gradient: Floats  # (P, L, 3) ∇S_lm(d)
    sign: Floats  # (L, 1) (−1)^l: S_lm(−d) = (−1)^l S_lm(d)


def _pairs(
    positions: Floats, i: Ints, j: Ints, shift: Floats, table: Floats, norm: Floats, cutoff: float,
    l_max: int,
) -> _Pairs:  # fmt: skip
    d = positions[j] + shift - positions[i]
    r = np.sqrt(np.sum(d**2, axis=1))
    index = np.flatnonzero((r >= TOO_CLOSE) & (r < cutoff))
    d, r = d[index], r[index]
    degree = np.array([lm for lm in range(l_max + 1) for _ in range(2 * lm + 1)])
    shape = len(r), l_max + 1, table.shape[2] // (l_max + 1)
    h, slope = (v.reshape(shape)[:, degree] for v in _radials(r, table, cutoff))
    solid, gradient = harmonics(d, l_max, norm)
    return _Pairs(index, d, r, h, slope, solid, gradient, (-1.0) ** degree[:, None])


def _radials(r: Floats, table: Floats, cutoff: float) -> tuple[Floats, Floats]:
    """h and ∂h/∂r, (P, (l_max + 1)·w), from the polynomials of `radial.table`."""
    per_length = len(table) / cutoff
    interval = np.minimum((r * per_length).astype(np.int64), len(table) - 1)
    u = (r * per_length - interval)[:, None]
    c = table[interval]
    h = np.sum([c[:, n] * u**n for n in range(6)], axis=0)
    slope = np.sum([n * c[:, n] * u ** (n - 1) for n in range(1, 6)], axis=0)
    return h, per_length * slope


def harmonics(d: Floats, l_max: int, norm: Floats) -> tuple[Floats, Floats]:
    """Real solid harmonics r^l Y_lm (P, L) and their gradients (P, L, 3).

    They are norm · q_lm(z, r²) · Re or Im (x + iy)^m, where q_lm = r^(l−m) P_l^m / sin^m has
    ∂q_lm/∂x = −x q_(l−1)(m+1), likewise for y, and ∂q_lm/∂z = (l + m) q_(l−1)m.
    """
    x, y, z = d.T
    power = [(x + 1j * y) ** m for m in range(l_max + 1)]
    q = {(0, 0): np.ones(len(d))}

    def legendre(degree: int, m: int) -> Floats:
        return q.get((degree, m), np.zeros(len(d)))

    for degree in range(1, l_max + 1):
        q[degree, degree] = (2 * degree - 1) * q[degree - 1, degree - 1]
        for m in range(degree):
            up = (2 * degree - 1) * z * legendre(degree - 1, m)
            down = (degree + m - 1) * (x**2 + y**2 + z**2) * legendre(degree - 2, m)
            q[degree, m] = (up - down) / (degree - m)
    solid, gradient = np.empty((len(d), len(norm))), np.empty((len(d), len(norm), 3))
    for degree in range(l_max + 1):
        for m in range(degree + 1):
            across = -legendre(degree - 1, m + 1) * power[m]
            ring = m * q[degree, m] * power[max(m - 1, 0)]  # ∂(x + iy)^m = m (x + iy)^(m−1) (1, i)
            along = (degree + m) * legendre(degree - 1, m) * power[m]
            slopes = np.stack([x * across + ring, y * across + 1j * ring, along], axis=1)
            plus, minus = degree * degree + degree + m, degree * degree + degree - m
            for lm, part in ((minus, np.imag), (plus, np.real)):  # m = 0 keeps the real part
                solid[:, lm] = norm[lm] * part(q[degree, m] * power[m])
                gradient[:, lm] = norm[lm] * part(slopes)
    return solid, gradient


def _blocks(blocks: Ints, l_max: int, n_max: int) -> Iterator[tuple[int, int, int, Ints, Ints]]:
    """DScribe's order of features: channels, l, then n and n' (n ≤ n' within a channel)."""
    for a, b in blocks:
        for degree in range(l_max + 1):
            if a == b:
                n, k = np.triu_indices(n_max)
            else:
                n, k = (index.ravel() for index in np.indices((n_max, n_max)))
            yield a, b, degree, n, k


def _split(c: Floats, l_max: int) -> Floats:
    """c as [atom, species, lm, n]."""
    n_lm = (l_max + 1) ** 2
    return c.reshape(*c.shape[:-1], n_lm, c.shape[-1] // n_lm)


def forward(
    positions: Floats, numbers: Ints, known: Ints, i: Ints, j: Ints, shift: Floats, table: Floats,
    centre: Floats, norm: Floats, cutoff: float, degrees: Sequence[int], radials: Sequence[int],
    n_channels: int, factor: Floats, blocks: Ints,
) -> tuple[Ints, int, Floats, int, Floats]:  # fmt: skip
    """Species, the first unknown atom, c, the first pair that is too close, and features."""
    l_max, n_max = len(degrees) - 1, len(radials)
    species = known[numbers]
    if (species < 0).any():
        return species, int(np.argmax(species < 0)), np.empty((0, 0, 0)), -1, np.empty((0, 0))
    p = _pairs(positions, i, j, shift, table, norm, cutoff, l_max)
    c = np.zeros((len(positions), n_channels, *p.h.shape[1:]))
    c[np.arange(len(c)), species, 0, :n_max] = centre * norm[0]
    a, b, pair = i[p.kept], j[p.kept], p.h * p.solid[:, :, None]
    np.add.at(c, (a, species[b]), pair)
    np.add.at(c, (b, species[a]), p.sign * pair)
    if blocks[0, 0] != blocks[0, 1]:  # the last channel is the sum of the others
        c[:, -1] = c[:, :-1].sum(axis=1)
    x = []
    for s, t, degree, n, k in _blocks(blocks, l_max, n_max):
        first, second = _of(c, s, degree), _of(c, t, degree)
        x.append(factor[degree] * np.einsum("imf,imf->if", first[..., n], second[..., k]))
    r = np.sqrt(np.sum((positions[j] + shift - positions[i]) ** 2, axis=1))
    close = int(np.argmax(r < TOO_CLOSE)) if (r < TOO_CLOSE).any() else -1
    flat = c.reshape(len(c), n_channels, c.shape[2] * c.shape[3])
    return species, -1, flat, close, np.concatenate(x, axis=1)


def _of(c: Floats, kind: int, degree: int) -> Floats:
    """The coefficients of one species and one l, (…, m, n)."""
    return c[..., kind, degree * degree : (degree + 1) * (degree + 1), :]


def _power_spectrum_vjp(
    c: Floats, grad: Floats, factor: Floats, n_max: int, blocks: Ints
) -> Floats:
    """∂/∂c of Σ grad·x, (R, atom, species, lm, n): each of the two c of a product in turn."""
    bar, f = np.zeros((len(grad), *c.shape)), 0
    for a, b, degree, n, k in _blocks(blocks, len(factor) - 1, n_max):
        g = np.zeros((*grad.shape[:2], n_max, n_max))
        g[:, :, n, k] = factor[degree] * grad[:, :, f : f + len(n)]
        first, second = (_of(c, kind, degree)[..., :n_max] for kind in (a, b))
        _of(bar, a, degree)[..., :n_max] += np.einsum("rink,imk->rimn", g, second)
        _of(bar, b, degree)[..., :n_max] += np.einsum("rink,imn->rimk", g, first)
        f += len(n)
    return bar


def backward(
    grad: Floats, c: Floats, factor: Floats, positions: Floats, species: Ints, offsets: Ints,
    pair_offsets: Ints, i: Ints, j: Ints, shift: Floats, table: Floats, norm: Floats, cutoff: float,
    degrees: Sequence[int], radials: Sequence[int], blocks: Ints,
) -> tuple[Floats, Floats]:  # fmt: skip
    """∂/∂positions (R, atoms, 3) and ∂/∂strain (R, structures, 3, 3) of Σ grad·x.

    With C̄ = ∂/∂c, a pair has g = ∂/∂d = Σ (C̄ h' S) d/r + Σ C̄ h ∇S; a strain has Σ g dᵀ.
    """
    l_max = len(degrees) - 1
    p = _pairs(positions, i, j, shift, table, norm, cutoff, l_max)
    a, b = i[p.kept], j[p.kept]
    bar = _power_spectrum_vjp(_split(c, l_max), grad, factor, len(radials), blocks)
    if blocks[0, 0] != blocks[0, 1]:
        bar[:, :, :-1] += bar[:, :, -1:]
    bar = bar[:, a, species[b]] + p.sign * bar[:, b, species[a]]  # (R, P, L, w)
    along = np.einsum("rpln,pln,pl->rp", bar, p.slope, p.solid)
    g = along[..., None] * (p.d / p.r[:, None])
    g += np.einsum("rpln,pln,plc->rpc", bar, p.h, p.gradient)
    by_position = np.zeros((len(grad), *positions.shape))
    strain = np.zeros((len(grad), len(offsets) - 1, 3, 3))
    owner = np.repeat(np.arange(len(offsets) - 1), np.diff(pair_offsets))[p.kept]
    for r in range(len(grad)):
        np.add.at(by_position[r], b, g[r])
        np.subtract.at(by_position[r], a, g[r])
        np.add.at(strain[r], owner, g[r, :, :, None] * p.d[:, None, :])
    return by_position, strain


def coincident(positions: Floats, pair_offsets: Ints, i: Ints, j: Ints, shift: Floats) -> Ints:
    """Structures in which two atoms are closer than TOO_CLOSE."""
    owner = np.repeat(np.arange(len(pair_offsets) - 1), np.diff(pair_offsets))
    square = np.sum((positions[j] + shift - positions[i]) ** 2, axis=1)
    return np.unique(owner[square < TOO_CLOSE**2])


def jacobian(
    c: Floats, positions: Floats, species: Ints, i: Ints, j: Ints, shift: Floats, table: Floats,
    norm: Floats, feature: Ints, factor: Floats, cutoff: float, n_max: int, n_features: int,
) -> tuple[Ints, Ints, Floats, Floats]:  # fmt: skip
    """Centre, neighbour, d and ∂x_centre/∂d (P, 3, f) of each directed pair within the cutoff."""
    l_max, n_species = len(factor) - 1, c.shape[1]
    p = _pairs(positions, i, j, shift, table, norm, cutoff, l_max)
    turn = p.h[:, None] * p.gradient.transpose(0, 2, 1)[..., None]
    slide = (p.slope * p.solid[..., None])[:, None] * (p.d / p.r[:, None])[:, :, None, None]
    slope = (turn + slide)[..., :n_max]  # (P, 3, L, n): ∂c/∂d seen from the first atom
    # Seen from the second atom d is −d: (−1)^l, and −1 from the chain rule.
    slope = np.stack([slope, -p.sign * slope], axis=1).reshape(2 * len(slope), *slope.shape[1:])
    vector = np.stack([p.d, -p.d], axis=1).reshape(-1, 3)
    ends = np.stack([i[p.kept], j[p.kept]], axis=1)
    centre, neighbour = ends.ravel(), ends[:, ::-1].ravel()
    shape = len(centre), (l_max + 1) ** 2, n_species * n_max
    by_species = np.zeros((len(centre), 3, shape[1], n_species, n_max))
    by_species[np.arange(len(centre)), :, :, species[neighbour]] = slope
    if feature[0, 0, 0] < 0:  # products with the last channel, the total
        by_species[:, :, :, -1] = slope
    dc = by_species.reshape(shape[0], 3, *shape[1:])  # (P, 3, L, ν) with ν = (species, n)
    c = _split(c, l_max)[centre, ..., :n_max].swapaxes(1, 2).reshape(shape)
    out = np.zeros((len(centre), 3, n_features))
    n, k = np.nonzero(feature[0] >= 0)
    for degree in range(l_max + 1):
        m = slice(degree * degree, (degree + 1) * (degree + 1))
        product = factor[degree] * np.einsum("pamv,pmw->pavw", dc[:, :, m], c[:, m])
        out[:, :, feature[degree, n, k]] = (product + product.swapaxes(2, 3))[:, :, n, k]
    return centre, neighbour, vector, out
