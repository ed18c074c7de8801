"""A plot of energies in text: dots of braille, two across and four down in each character."""

from __future__ import annotations

from collections.abc import Sequence

# Bits of the eight dots, by row from the top and by column.
_DOTS = ((0x01, 0x08), (0x02, 0x10), (0x04, 0x20), (0x40, 0x80))
_BLANK = 0x2800
# Share of the energies that the plot shows at their height; those above are drawn at its top.
_SHOWN = 0.8


class Canvas:
    """A grid of dots; (0, 0) is the lower left one. Remembers which characters hold the line."""

    def __init__(self, width: int, height: int) -> None:
        self.columns, self.rows = 2 * width, 4 * height
        self.cells = [[0] * width for _ in range(height)]
        self.line = [[False] * width for _ in range(height)]

    def dot(self, x: int, y: int, line: bool = False) -> None:
        down = self.rows - 1 - y
        row, column = down // 4, x // 2
        self.cells[row][column] |= _DOTS[down % 4][x % 2]
        self.line[row][column] |= line

    def text(self) -> list[str]:
        """One string per row, from the top."""
        return ["".join(chr(_BLANK + cell) for cell in row) for row in self.cells]


def top_of(energies: Sequence[float]) -> float:
    """The energy at the upper edge: early structures far above the rest must not flatten it."""
    ordered = sorted(energies)
    top = ordered[int(_SHOWN * (len(ordered) - 1))]
    return max(top, ordered[0] + 1e-3)


def energy_plot(
    energies: Sequence[float | None], total: int, width: int, height: int
) -> tuple[Canvas, float, float]:
    """Energies (None: failed) of evaluations out of `total`, and the lowest so far as a line.

    Gives the canvas and the energies at its lower and upper edge.
    """
    canvas = Canvas(width, height)
    known = [energy for energy in energies if energy is not None]
    if not known:
        return canvas, 0.0, 0.0
    low, high = min(known), top_of(known)
    total = max(total, len(energies), 2)

    def across(k: int) -> int:
        return round(k * (canvas.columns - 1) / (total - 1))

    def up(energy: float) -> int:
        return round(min((energy - low) / (high - low), 1.0) * (canvas.rows - 1))

    best: float | None = None
    for k, energy in enumerate(energies):
        x = across(k)
        if best is not None:
            for between in range(across(k - 1), x + 1):
                canvas.dot(between, up(best), line=True)
        if energy is None:
            continue
        if best is not None and energy < best:
            for y in range(up(energy), up(best) + 1):
                canvas.dot(x, y, line=True)
        if best is None or energy < best:
            best = energy
        for column in (x, x + 1 if x + 1 < canvas.columns else x - 1):  # one dot is hard to see
            canvas.dot(column, up(energy), line=energy == best)
    return canvas, low, high
