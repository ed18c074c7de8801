"""Small still pictures as SVG text: structures and charts, for notebooks.

They contain no script and no identifiers, so any number of them can stand in one document. Lines
and letters have the colour of the surrounding text.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from ase import Atoms
from ase.data.colors import jmol_colors

from nugget.numerics.arrays import Floats
from nugget.structures.geometry import RADII

_BALL, _BOND = 0.68, 1.2  # radius over covalent radius, longest bond over the sum of radii
_MOST = 400  # atoms of a picture
CHART = (330, 200)  # pixels
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9")


def structure_picture(atoms: Atoms, size: int = 190) -> str:
    """Balls and bonds, seen from the side if periodic, else on the broad side; empty if large."""
    if not 0 < len(atoms) <= _MOST or not np.isfinite(atoms.positions).all():
        return ""
    view = _side() if atoms.pbc.any() else _broad_side(atoms.positions)
    places = (atoms.positions - atoms.positions.mean(axis=0)) @ view.T
    edges = _edges(atoms, view)
    corners = np.concatenate([places, *edges]) if edges else places
    radii = np.array([RADII[z] if z < len(RADII) else 1.0 for z in atoms.numbers])
    low, high = corners[:, :2].min(axis=0) - 1.2, corners[:, :2].max(axis=0) + 1.2
    scale = size / float((high - low).max())
    middle = (low + high) / 2

    def pixel(point: Floats) -> tuple[float, float]:
        x, y = (point[:2] - middle) * scale
        return size / 2 + float(x), size / 2 - float(y)

    # Everything is drawn from the back to the front.
    things = [
        (float(places[k, 2]), _ball(atoms, k, places, radii, pixel, scale))
        for k in range(len(atoms))
    ]
    for i, j in _bonds(places, radii):
        a, b = pixel(places[i]), pixel(places[j])
        depth = float(min(places[i, 2], places[j, 2])) + 1e-3
        things.append((depth, _line(a, b, "#8a8a8a", max(0.22 * scale, 1.0))))
    for start, end in edges:
        things.append((float(start[2] + end[2]) / 2, _line(pixel(start), pixel(end), "#999", 0.8)))
    inside = "".join(text for _, text in sorted(things, key=lambda one: one[0]))
    return _svg(size, size, atoms.get_chemical_formula(), inside)


def _side() -> Floats:
    """A view along the surface and a little from above."""
    a, b = -1.32, -0.32
    tilt = np.array([[1, 0, 0], [0, np.cos(a), -np.sin(a)], [0, np.sin(a), np.cos(a)]])
    turn = np.array([[np.cos(b), -np.sin(b), 0], [np.sin(b), np.cos(b), 0], [0, 0, 1]])
    return np.asarray(tilt @ turn)


def _broad_side(positions: Floats) -> Floats:
    """The principal axes of the positions, the shortest towards the reader, slightly turned."""
    axes = np.linalg.svd(positions - positions.mean(axis=0), full_matrices=True)[2]
    axes[2] = np.cross(axes[0], axes[1])
    a = 0.3
    turn = np.array([[np.cos(a), 0, np.sin(a)], [0, 1, 0], [-np.sin(a), 0, np.cos(a)]])
    return np.asarray(turn @ axes)


def _edges(atoms: Atoms, view: Floats) -> list[tuple[Floats, Floats]]:
    """Edges of the cell of a crystal."""
    if not atoms.pbc.all() or atoms.cell.rank < 3:
        return []
    origin, edges = atoms.positions.mean(axis=0), []
    for corner in np.ndindex(2, 2, 2):
        for axis in range(3):
            if not corner[axis]:
                start = np.array(corner) @ atoms.cell.array - origin
                edges.append((view @ start, view @ (start + atoms.cell.array[axis])))
    return edges


def _bonds(places: Floats, radii: Floats) -> list[tuple[int, int]]:
    distance = np.linalg.norm(places[:, None] - places[None], axis=2)
    near = distance < _BOND * (radii[:, None] + radii[None])
    return [(int(i), int(j)) for i, j in np.argwhere(np.triu(near, 1))]


def _ball(
    atoms: Atoms,
    k: int,
    places: Floats,
    radii: Floats,
    pixel: Callable[[Floats], tuple[float, float]],
    scale: float,
) -> str:
    x, y = pixel(places[k])
    r = _BALL * float(radii[k]) ** 0.75 * scale
    z = int(atoms.numbers[k])
    colour = np.array(jmol_colors[z] if z < len(jmol_colors) else (0.6, 0.6, 0.6))
    depths = places[:, 2]
    span = float(np.ptp(depths)) or 1.0
    fade = 0.45 * float(depths.max() - depths[k]) / span  # far atoms are paler
    body = _hex(colour + (0.85 - colour) * fade)
    light = _hex(colour + (1 - colour) * (0.55 + 0.3 * fade))
    return (
        f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{r:.1f}" fill="{body}" stroke="#444" '
        f'stroke-opacity="0.55" stroke-width="0.7"/>'
        f'<circle cx="{x - 0.3 * r:.1f}" cy="{y - 0.33 * r:.1f}" r="{0.3 * r:.1f}" fill="{light}"/>'
    )


def _hex(rgb: Floats) -> str:
    return "#" + "".join(f"{round(255 * float(np.clip(part, 0, 1))):02x}" for part in rgb)


def _line(a: Sequence[float], b: Sequence[float], colour: str, width: float) -> str:
    return (
        f'<line x1="{a[0]:.1f}" y1="{a[1]:.1f}" x2="{b[0]:.1f}" y2="{b[1]:.1f}" '
        f'stroke="{colour}" stroke-width="{width:.1f}" stroke-linecap="round"/>'
    )


def _svg(width: int, height: int, title: str, inside: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}" role="img" '
        f'style="margin:4px 18px 4px 0;vertical-align:top"><title>{escape(title)}</title>'
        f"{inside}</svg>"
    )


# --------------------------------------------------------------------------- charts


@dataclass(frozen=True)
class Line:
    """Points of a chart joined by a line, with an optional band of ± `error`."""

    x: Sequence[float]
    y: Sequence[float]
    error: Sequence[float] | None = None
    name: str = ""
    dots: bool = False  # dots with bars instead of a line with a band
    steps: bool = False


def chart(lines: Sequence[Line], x_label: str, y_label: str, size: tuple[int, int]) -> str:
    """A chart with the smallest and largest values at its axes; empty without finite points."""
    finite = [_finite(line) for line in lines]
    kept = [(line, points) for line, points in zip(lines, finite, strict=True) if len(points)]
    if not kept:
        return ""
    every = np.concatenate([points for _, points in kept])
    ends = [(float(v.min()), float(v.max())) for v in (every[:, 0], every[:, 1:])]
    (x0, x1), (y0, y1) = map(_padded, ends)
    width, height = size
    left, right, top, bottom = 62, width - 12, 20, height - 34

    def pixels(x: Floats | float, y: Floats | float) -> Floats:
        across = left + (x - x0) / (x1 - x0) * (right - left)
        up = bottom - (y - y0) / (y1 - y0) * (bottom - top)
        return np.column_stack([np.atleast_1d(across), np.atleast_1d(up)])

    parts = [
        f'<path d="M{left} {top}V{bottom}H{right}" fill="none" stroke="currentColor" '
        'stroke-opacity="0.4"/>',
        *(_text(left - 6, pixels(x0, v)[0, 1] + 4, _number(v, y1 - y0), "end") for v in ends[1]),
        *(_text(pixels(v, y0)[0, 0], bottom + 14, _number(v, x1 - x0), "middle") for v in ends[0]),
        _text((left + right) / 2, bottom + 28, x_label, "middle"),
        _text(left, 11, y_label, "start"),
    ]
    for k, (line, points) in enumerate(kept):
        parts.append(_drawn(line, points, pixels, _COLOURS[k % len(_COLOURS)]))
        if line.name:
            parts.append(
                _text(right, top + 4 + 13 * k, line.name, "end", _COLOURS[k % len(_COLOURS)])
            )
    return _svg(width, height, f"{y_label} against {x_label}", "".join(parts))


def _finite(line: Line) -> Floats:
    """Rows of x, y, y − error, y + error without those that are not finite."""
    y = np.asarray(line.y, float)
    error = np.zeros_like(y) if line.error is None else np.asarray(line.error, float)
    rows = np.column_stack([np.asarray(line.x, float), y, y - error, y + error])
    return np.asarray(rows[np.isfinite(rows).all(axis=1)])


def _padded(ends: tuple[float, float]) -> tuple[float, float]:
    low, high = ends
    pad = 0.04 * (high - low) if high > low else max(0.05 * abs(low), 0.5)
    return low - pad, high + pad


def _drawn(
    line: Line, points: Floats, pixels: Callable[[Floats, Floats], Floats], colour: str
) -> str:
    at, low, high = (pixels(points[:, 0], points[:, k]) for k in (1, 2, 3))
    if line.dots:
        bars = [_line(tuple(a), tuple(b), colour, 1.0) for a, b in zip(low, high, strict=True)]
        dots = [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.4" fill="{colour}"/>' for x, y in at]
        return "".join([*bars, *dots])
    band = ""
    if line.error is not None:
        around = np.concatenate([high, low[::-1]])
        corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in around)
        band = f'<polygon points="{corners}" fill="{colour}" fill-opacity="0.2"/>'
    if line.steps:
        before = np.column_stack([at[1:, 0], at[:-1, 1]])
        at = np.concatenate([at[:1], np.stack([before, at[1:]], axis=1).reshape(-1, 2)])
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
    return f'{band}<polyline points="{corners}" fill="none" stroke="{colour}" stroke-width="1.6"/>'


def _text(x: float, y: float, text: str, anchor: str, colour: str = "currentColor") -> str:
    return (
        f'<text x="{x:.0f}" y="{y:.0f}" text-anchor="{anchor}" font-size="11" '
        f'font-family="sans-serif" fill="{colour}">{escape(text)}</text>'
    )


def _number(value: float, span: float) -> str:
    """With as many decimals as an axis of this length needs; whole numbers have none."""
    decimals = 0 if value == round(value) else int(np.clip(np.ceil(1.5 - np.log10(span)), 0, 6))
    return f"{value:z.{decimals}f}".replace("-", "−")
