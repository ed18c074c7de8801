"""A live picture sends only what has changed, and the terminal shows all of it."""

from __future__ import annotations

import io
import re

import numpy as np
import pytest
from rich.console import Console
from rich.panel import Panel
from rich.text import Text

from nugget.report.screen import Screen, spans

WIDTH, HEIGHT = 40, 12
STYLES = ["", "red", "bold green", "dim"]
TOKEN = re.compile(r"\x1b\[(\??[\d;]*)([A-Za-z])|(\r)|(\n)|([^\x1b])", re.DOTALL)


class Terminal:
    """As much of a terminal as is needed: letters, line ends, cursor moves, erased lines."""

    def __init__(self) -> None:
        self.lines: list[list[str]] = [[]]
        self.row = self.column = 0

    def feed(self, text: str) -> None:
        for match in TOKEN.finditer(text):
            number, command, start, end, letter = match.groups()
            count = int(number) if (number or "").isdigit() else 1
            if start:
                self.column = 0
            elif end:
                self.row, self.column = self.row + 1, 0
                while len(self.lines) <= self.row:
                    self.lines.append([])
            elif letter:
                line = self.lines[self.row]
                line += [" "] * (self.column + 1 - len(line))
                line[self.column] = letter
                self.column += 1
            elif command == "A":
                self.row -= count
            elif command == "B":
                self.row += count
            elif command == "C":
                self.column += count
            elif command == "K":
                self.lines[self.row] = []
            else:
                assert command in "mhl", command
            assert self.row >= 0

    def text(self) -> list[str]:
        return ["".join(line).rstrip() for line in self.lines]


class Picture:
    """Some letters in a frame, which change."""

    def __init__(self, rows: int) -> None:
        self.rng = np.random.default_rng(0)
        self.letters = [["."] * (WIDTH - 4) for _ in range(rows)]

    def change(self, count: int) -> None:
        for _ in range(count):
            row = self.letters[self.rng.integers(len(self.letters))]
            row[self.rng.integers(len(row))] = self.rng.choice(list("abcσ⠋"))

    def __rich__(self) -> Panel:
        text = Text()
        for row in self.letters:
            for k, letter in enumerate(row):
                text.append(letter, style=STYLES[(ord(letter) + k // 9) % 4])
            text.append("\n")
        return Panel(text)


@pytest.fixture
def console() -> Console:
    return Console(
        file=io.StringIO(), width=WIDTH, height=HEIGHT, force_terminal=True, color_system="standard"
    )


def sent(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    text = console.file.getvalue()
    console.file.seek(0)
    console.file.truncate()
    return text


def whole(picture: Picture) -> list[str]:
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None)
    console.print(picture)
    return [line.rstrip() for line in sent(console).splitlines()]


def test_the_terminal_shows_what_was_drawn(console):
    picture, terminal = Picture(5), Terminal()
    screen = Screen(picture, console)
    screen.auto_refresh = False
    screen.start(refresh=True)
    first = sent(console)
    terminal.feed(first)
    assert terminal.text() == whole(picture)
    for count in (0, 1, 1, 3, 20, 0, 100):
        picture.change(count)
        screen.refresh()
        text = sent(console)
        terminal.feed(text)
        assert terminal.text() == whole(picture)
        if not count:
            assert text == ""
        if count == 1:
            assert len(text) < 60 < len(first)
    console.print("a word in between")
    picture.change(2)
    screen.refresh()
    terminal.feed(sent(console))
    assert terminal.text() == ["a word in between", *whole(picture)]
    picture.letters.append(["x"] * (WIDTH - 4))  # another height: all is drawn again
    screen.refresh()
    terminal.feed(sent(console))
    assert terminal.text() == ["a word in between", *whole(picture)]
    picture.change(1)
    screen.stop()
    terminal.feed(sent(console))
    assert terminal.text() == ["a word in between", *whole(picture), ""]


def test_a_picture_that_is_too_high_is_cut(console):
    picture = Picture(HEIGHT + 3)
    screen = Screen(picture, console)
    screen.auto_refresh = False
    screen.start(refresh=True)
    picture.change(4)
    screen.refresh()
    screen.stop()
    terminal = Terminal()
    terminal.feed(sent(console))
    assert terminal.text()[-2:] == [whole(picture)[-1], ""]


def test_spans():
    def cells(text):
        return [(letter, None) for letter in text]

    assert spans(cells("abc"), cells("abc")) == []
    far = "." * 30
    assert spans(cells(f"a{far}b"), cells(f"x{far}y")) == [(0, 1), (31, 32)]
    assert spans(cells("a...b"), cells("x...y")) == [(0, 5)]
    assert spans(cells("a中"), cells("b中")) == [(0, 2)]
