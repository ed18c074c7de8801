"""Symmetric copies: part of a cluster is repeated by a mirror plane or a rotation axis."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nugget.generators.base import BaseGenerator, Proposal, Proposals, Rng
from nugget.generators.placement import rotation
from nugget.numerics.arrays import Floats, Ints
from nugget.registry import registered
from nugget.systems.placed_atoms import PlacedAtoms

_MIRROR = 1


@registered("generator")
@dataclass(frozen=True, kw_only=True)
class Copies(BaseGenerator):
    """Half of a parent and its mirror image, or a wedge of it and rotated copies of the wedge.

    Planes and axes are drawn through atoms, so that a partly symmetric cluster can become fully
    symmetric. Surplus atoms are moved into the plane or onto the axis. Parts that overlap are moved
    apart by up to 0.3 bond lengths.
    """

    name = "copies"
    needs = 1
    unsuited = "only a free cluster of four or more atoms has parts to copy"
    largest: int = 5  # fold of an axis

    def suits(self, system: PlacedAtoms) -> bool:
        return system.free and len(system.symbols) > 3

    def propose(self, rng: Rng, system: PlacedAtoms, parents: list[Floats]) -> Proposals:
        x = parents[0] - parents[0].mean(axis=0)
        fold = int(rng.integers(_MIRROR, self.largest + 1))
        axis = _suggested_axis(rng, x, fold)
        start = rng.uniform(0.0, 2 * np.pi)
        images = _operations(axis, fold)
        part, rest, outward = _divide(x, system.numbers, axis, fold, start)
        across = x[rest] - (x[rest] @ axis)[:, None] * axis
        between = across if fold == _MIRROR else x[rest] - across  # in the plane, or on the axis
        for gap in (0.0, 0.15, 0.3):
            copied = x.copy()
            copied[rest] = between
            for atoms, image in zip(part, images, strict=True):
                copied[atoms] = (x[part[0]] + gap * system.bond * outward) @ image.T
            yield Proposal(copied)


def _suggested_axis(rng: Rng, x: Floats, fold: int) -> Floats:
    """The normal of a plane connects two atoms; an axis passes through the mean of one to three."""
    chosen = x[rng.choice(len(x), size=2 if fold == _MIRROR else int(rng.integers(1, 4)))]
    axis = chosen[0] - chosen[1] if fold == _MIRROR else chosen.sum(axis=0)
    axis = axis + rng.normal(scale=0.05, size=3)  # never exactly zero
    return np.asarray(axis / np.linalg.norm(axis))


def _operations(axis: Floats, fold: int) -> list[Floats]:
    """The identity, then the reflection or the rotations about the axis."""
    if fold == _MIRROR:
        return [np.eye(3), np.eye(3) - 2.0 * np.outer(axis, axis)]
    return [rotation(axis, 2 * np.pi * k / fold) for k in range(fold)]


def _divide(
    x: Floats, numbers: Ints, axis: Floats, fold: int, start: float
) -> tuple[list[Ints], Ints, Floats]:
    """The copied atoms and those that become their images, the surplus, and the part's direction.

    Of each element, the largest possible number of atoms is copied; the surplus atoms are those
    nearest to the plane or axis.
    """
    count = max(fold, 2)
    height = x @ axis
    flat = x - height[:, None] * axis
    if fold == _MIRROR:
        far, order, outward = np.abs(height), -height, axis
    else:
        one = np.cross(axis, np.eye(3)[np.argmin(np.abs(axis))])
        one /= np.linalg.norm(one)
        two = np.cross(axis, one)
        far = np.linalg.norm(flat, axis=1)
        order = (np.arctan2(flat @ two, flat @ one) - start) % (2 * np.pi)
        middle = start + np.pi / fold
        outward = np.cos(middle) * one + np.sin(middle) * two
    parts: list[list[Ints]] = []
    rest: list[Ints] = []
    for element in np.unique(numbers):
        own = np.flatnonzero(numbers == element)
        own = own[np.argsort(far[own], kind="stable")]
        left = len(own) % count
        rest.append(own[:left])
        by_order = own[left:][np.argsort(order[own[left:]], kind="stable")]
        parts.append(list(by_order.reshape(count, -1)))
    together = [np.concatenate(slices) for slices in zip(*parts, strict=True)]
    return together, np.concatenate(rest), outward
