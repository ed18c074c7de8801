"""The loops of the RBF kernel in NumPy (`nugget.gp.kernels.rbf_loops` and `nugget.gp.loops`).

k(x, x') = θ₀ exp(−|x−x'|²/2l²). In the block's coordinates x̃ = (x − centre)/l this is
k_ij = θ₀ exp(x̃_i·z̃_j − |x̃_i|²/2 − |z̃_j|²/2). Arguments are those of the compiled functions.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np

from nugget.gp.kernels.rbf_loops import Pack
from nugget.numerics.arrays import Floats, Ints

_LOWEST = -708.0  # exp(-708) is about the last normal number: the least result


def _exponential(t: Floats) -> Floats:
    return np.asarray(np.exp(np.maximum(t, _LOWEST)))


def scaled(x: Floats, centre: Floats, scale: float, out: Floats, half: Floats) -> None:
    """out = (x − centre)·scale and half = |out|²/2, row by row."""
    out[...] = (x - centre) * scale
    half[...] = 0.5 * np.sum(out**2, axis=1)


def _points(pack: Pack, g: int) -> Floats:
    """z̃ (f, m) of one group."""
    own = pack.forward[pack.panels[g] : pack.panels[g + 1]].transpose(1, 0, 2)
    return own.reshape(pack.forward.shape[1], -1)[:, : pack.counts[g]]


def kernel_rows(x: Floats, offsets: Ints, pack: Pack) -> tuple[Floats, Floats, Floats]:
    """x̃ (n, f), k (n, m) and k_sum_s = Σ_{i∈s} k_i (B, m)."""
    zt = _points(pack, 0)
    xs, own = np.empty(x.shape), np.empty(len(x))
    scaled(x, pack.centre[0], pack.scale, xs, own)
    k = pack.amplitude * _exponential(xs @ zt - own[:, None] - 0.5 * np.sum(zt**2, axis=0))
    k_sum = np.zeros((len(offsets) - 1, zt.shape[1]))
    for s, (begin, end) in enumerate(pairwise(offsets)):
        k_sum[s] = k[begin:end].sum(axis=0)
    return xs, k, k_sum


def kernel_rows_vjp(k: Floats, xs: Floats, offsets: Ints, weights: Floats, pack: Pack) -> Floats:
    """scale Σ_j w_j k_ij (z̃_j − x̃_i) with w = weights[r, s(i)]."""
    zt = _points(pack, 0)
    out = np.empty((len(weights), *xs.shape))
    for s, (begin, end) in enumerate(pairwise(offsets)):
        wk = weights[:, s, None, :] * k[begin:end]  # (R, rows, m)
        pulled = wk @ zt.T - wk.sum(axis=2, keepdims=True) * xs[begin:end]
        out[:, begin:end] = pack.scale * pulled
    return out


def group_rows(
    x: Floats, group: Ints, offsets: Ints, pack: Pack
) -> tuple[Floats, Floats, Floats, Ints, Ints, Ints]:
    """k_sum (B, m), k and x̃ of the rows sorted by group, their structures, and the sorting."""
    labels, panels, width = pack.labels, pack.panels, pack.forward.shape[2]
    index = np.argmax(np.append(group[:, None] == labels, np.ones((len(x), 1)), axis=1), axis=1)
    order = np.argsort(index, kind="stable")
    starts = np.searchsorted(index[order], np.arange(len(labels) + 1))
    known = order[: starts[-1]]
    owner = np.searchsorted(offsets, known, side="right") - 1
    xs = (x[known] - pack.centre[index[known]]) * pack.scale
    k = np.zeros((len(known), int(np.diff(panels).max()) * width))
    sums = np.zeros((len(offsets) - 1, panels[-1] * width))
    for g, count in enumerate(pack.counts):
        rows, zt = slice(starts[g], starts[g + 1]), _points(pack, g)
        squares = 0.5 * (np.sum(xs[rows] ** 2, axis=1)[:, None] + np.sum(zt**2, axis=0))
        k[rows, :count] = pack.amplitude * _exponential(xs[rows] @ zt - squares)
        at = panels[g] * width
        np.add.at(sums[:, at : at + count], owner[rows], k[rows, :count])
    return sums[:, pack.place], k, xs, owner, order, starts


def group_rows_vjp(
    weights: Floats, k: Floats, xs: Floats, owner: Ints, order: Ints, starts: Ints, pack: Pack
) -> Floats:
    """scale Σ_j w_j k_ij (z̃_j − x̃_i) with w = weights[r, s(i)], from `group_rows`."""
    panels, width = pack.panels, pack.forward.shape[2]
    out = np.zeros((len(weights), len(order), xs.shape[1]))
    spread = np.zeros((*weights.shape[:2], panels[-1] * width))
    spread[..., pack.place] = weights
    for g, count in enumerate(pack.counts):
        rows, at = slice(starts[g], starts[g + 1]), panels[g] * width
        wk = spread[:, owner[rows], at : at + count] * k[rows, :count]
        pulled = wk @ _points(pack, g).T
        out[:, order[rows]] = pack.scale * (pulled - wk.sum(axis=2, keepdims=True) * xs[rows])
    return out


def std_and_weights(
    k_sum: Floats,
    sizes: Ints,
    alpha: Floats,
    coefficients: Floats,
    wt: Floats,
    rho: Floats,
    variance: Floats,
    sign: float,
) -> tuple[Floats, Floats, Floats]:
    """`std_and_weights` in NumPy."""
    delta = k_sum @ wt.T + np.multiply.outer(sizes, rho)
    square = np.sum(delta**2, axis=1)
    if len(variance):
        square = np.maximum(variance + sign * square, 0.0)
    std = np.sqrt(square)
    unit = np.divide(delta, std[:, None], where=std[:, None] != 0.0, out=np.zeros_like(delta))
    b = sign * unit @ wt
    on_mean, on_std = coefficients.T[:, :, None, None]
    return k_sum @ alpha, std, on_mean * alpha + on_std * b


def value_and_grad(
    x: Floats, group: Ints, offsets: Ints, sizes: Ints, alpha: Floats, coefficients: Floats,
    wt: Floats, rho: Floats, variance: Floats, sign: float, labels: Ints, centre: Floats,
    scale: float, amplitude: float, forward: Floats, half: Floats, panels: Ints, counts: Ints,
    place: Ints, backward: Floats,
) -> tuple[Floats, Floats, Floats]:  # fmt: skip
    """Means, stds and gradients (R, n, f): forward, uncertainty, backward, group by group."""
    k_sum = np.zeros((len(offsets) - 1, len(place)))
    columns = np.searchsorted(panels, place // forward.shape[2], side="right") - 1
    parts: list[tuple[Any, ...]] = []
    for g, label in enumerate(labels):
        rows = np.flatnonzero(group == label)
        within = np.concatenate([[0], np.cumsum(group == label)])[offsets]
        one = slice(g, g + 1)
        pack = Pack(
            labels[one], centre[one], scale, amplitude, forward[panels[g] : panels[g + 1]], half,
            panels[g : g + 2] - panels[g], counts[one], np.arange(counts[g]), backward,
        )  # fmt: skip
        xs, k, partial = kernel_rows(x[rows], within, pack)
        own = np.flatnonzero(columns == g)
        k_sum[:, own] = partial
        parts.append((rows, own, k, xs, within, pack))
    mean, std, weights = std_and_weights(k_sum, sizes, alpha, coefficients, wt, rho, variance, sign)
    gradients = np.zeros((len(coefficients), *x.shape))
    for rows, own, k, xs, within, pack in parts:
        gradients[:, rows] = kernel_rows_vjp(k, xs, within, weights[..., own], pack)
    return mean, std, gradients


def exponentials(k: Floats, hx: Floats, hz: Floats, amplitude: float) -> None:
    """In place: k_ij holds x_i·z_j and becomes θ₀ exp(x_i·z_j − |x_i|²/2 − |z_j|²/2)."""
    k[...] = amplitude * _exponential(k - hx[:, None] - hz)


def exponentials_symmetric(k: Floats, half: Floats, amplitude: float) -> None:
    """`exponentials` of points with themselves: symmetric to the last bit, θ₀ on the diagonal."""
    exponentials(k, half, half, amplitude)
    upper = np.triu(k, 1)
    k[...] = upper + upper.T + amplitude * np.eye(len(k))


def _within(x: Floats, group: Ints, scale: float, amplitude: float) -> tuple[Floats, Floats]:
    """k (n, n), zero between groups, and x_j − x_i (n, n, f) of the rows of one structure."""
    d = x[None, :] - x[:, None]
    k = amplitude * _exponential(-0.5 * scale**2 * np.sum(d**2, axis=2))
    return np.where(group[:, None] == group, k, 0.0), d


def self_sums(
    x: Floats, group: Ints, offsets: Ints, scale: float, amplitude: float, out: Floats
) -> None:
    """out[s] = Σ_{i,j∈s} k(x_i, x_j)."""
    for s, (begin, end) in enumerate(pairwise(offsets)):
        out[s] = _within(x[begin:end], group[begin:end], scale, amplitude)[0].sum()


def self_sums_vjp(
    x: Floats, group: Ints, offsets: Ints, scale: float, amplitude: float, weights: Floats,
    out: Floats,
) -> None:  # fmt: skip
    """out_i += weights_s ∂(Σ_ij k_ij)/∂x_i = 2 weights_s Σ_j k_ij (x_j − x_i)/l²."""
    for s, (begin, end) in enumerate(pairwise(offsets)):
        k, d = _within(x[begin:end], group[begin:end], scale, amplitude)
        out[begin:end] += 2.0 * weights[s] * scale**2 * np.einsum("ij,ijf->if", k, d)
