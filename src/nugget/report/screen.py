"""A live picture on a terminal that sends only the cells that have changed.

Rich's `Live` sends the whole picture every time. Over a slow line, or into the log of a terminal,
that is some 10 kB four times a second for a spinner that turns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from rich.cells import cell_len
from rich.console import (
    COLOR_SYSTEMS,
    Console,
    ConsoleOptions,
    ConsoleRenderable,
    RenderableType,
    RenderResult,
)
from rich.live import Live
from rich.segment import Segment
from rich.style import Style

Cell = tuple[str, Style | None]
_NEAR = 8  # unchanged cells that are cheaper to send than to jump over


class _Frame:
    """A picture that was rendered before."""

    def __init__(self, lines: list[list[Segment]]) -> None:
        self.lines = lines

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        for line in self.lines:
            yield from line
            yield Segment.line()


class Screen(Live):
    """Shows `view` four times a second; what is printed meanwhile appears above it."""

    def __init__(self, view: RenderableType, console: Console) -> None:
        self._view = view
        self._frame = _Frame([])
        self._shown: list[list[Cell]] | None = None  # None: everything must be drawn
        super().__init__(console=console, refresh_per_second=4)

    def get_renderable(self) -> RenderableType:
        return self._frame

    def refresh(self) -> None:
        with self._lock:
            lines = self.console.render_lines(self._view, self.console.options)
            self._frame = _Frame(lines)
            cells = [list(_cells(line)) for line in lines]
            before = self._shown
            if before is not None and self._started and self._fits(before, cells):
                self._send(list(changes(before, cells, self._text)))
            else:
                super().refresh()
            self._shown = cells

    def process_renderables(self, renderables: list[ConsoleRenderable]) -> list[ConsoleRenderable]:
        self._shown = None
        return super().process_renderables(renderables)

    def _fits(self, before: list[list[Cell]], now: list[list[Cell]]) -> bool:
        """Is it as large as before, and all of it on the screen?"""
        same = [len(line) for line in before] == [len(line) for line in now]
        return same and len(now) <= self.console.height and self.console.is_terminal

    def _send(self, texts: list[str]) -> None:
        if texts:
            self.console.file.write("".join(texts))
            self.console.file.flush()

    def _text(self, cells: Sequence[Cell]) -> str:
        """Cells as a terminal takes them, one escape sequence per run of equal style."""
        name = self.console.color_system
        system = None if name is None else COLOR_SYSTEMS[name]
        text = ""
        for style, run in groupby(cells, key=lambda cell: cell[1]):
            letters = "".join(letter for letter, _ in run)
            text += letters if style is None else style.render(letters, color_system=system)
        return text


def changes(
    before: list[list[Cell]], now: list[list[Cell]], text: Callable[[Sequence[Cell]], str]
) -> Iterator[str]:
    """What to send; the cursor stands in the last line, and does so afterwards."""
    for k, (old, new) in enumerate(zip(before, now, strict=True)):
        for start, end in spans(old, new):
            up = len(now) - 1 - k
            there = f"\x1b[{up}A" if up else ""
            back = f"\x1b[{up}B" if up else ""
            right = f"\x1b[{start}C" if start else ""
            yield f"\r{there}{right}{text(new[start:end])}\r{back}"


def spans(old: list[Cell], new: list[Cell]) -> list[tuple[int, int]]:
    """Parts of a line that differ; all of it if some letters are not one cell wide."""
    if old == new:
        return []
    if any(cell_len(letter) != 1 for letter, _ in (*old, *new)):
        return [(0, len(new))]
    found: list[tuple[int, int]] = []
    for k, (a, b) in enumerate(zip(old, new, strict=True)):
        if a == b:
            continue
        if found and k - found[-1][1] <= _NEAR:
            found[-1] = (found[-1][0], k + 1)
        else:
            found.append((k, k + 1))
    return found


def _cells(line: Sequence[Segment]) -> Iterator[Cell]:
    for letters, style, control in line:
        if not control:
            for letter in letters:
                yield letter, style
